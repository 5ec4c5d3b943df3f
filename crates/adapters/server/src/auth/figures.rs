//! Figures of what the API server was asked about callers, in upstream's names.
//!
//! One tally for the process (ADR 0018). In: questions and how they ended. Out: [`figures`]. Labels are status codes alone: nothing that a
//! caller says.

use ferrolet_ports::{ApiError, Tally};
use tokio::time::Instant;

/// Upstream's bounds, in seconds.
const BOUNDS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];

static KEPT: Tally = Tally::new();

/// What the API server was asked about callers.
pub(crate) fn figures() -> &'static Tally {
    &KEPT
}

/// What a question is about.
#[derive(Clone, Copy)]
pub(super) enum Question {
    WhoTheyAre,
    WhatTheyMay,
}

/// Asks, and counts.
pub(super) async fn counted<T>(
    question: Question,
    ask: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    let began = Instant::now();
    let answer = ask.await;
    let code = match &answer {
        Ok(_) => "201".to_owned(),
        Err(error) => error
            .code
            .map_or_else(|| "<error>".to_owned(), |code| code.to_string()),
    };
    let (total, duration) = match question {
        Question::WhoTheyAre => (
            "apiserver_delegated_authn_request_total",
            "apiserver_delegated_authn_request_duration_seconds",
        ),
        Question::WhatTheyMay => (
            "apiserver_delegated_authz_request_total",
            "apiserver_delegated_authz_request_duration_seconds",
        ),
    };
    KEPT.add(total, &[&code], 1.0);
    let took = began.elapsed().as_secs_f64();
    KEPT.observe(duration, &[&code], &BOUNDS, took);
    answer
}
