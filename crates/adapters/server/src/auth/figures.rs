//! Figures of what the API server was asked about callers, in upstream's names.
//!
//! One tally for the process (ADR 0018). In: questions and how they ended, certificates and tokens
//! that were shown. Out: [`figures`]. Labels are status codes and words of ours: nothing that a
//! caller says.

use std::time::Duration;

use ferrolet_ports::{ApiError, Tally};
use tokio::time::Instant;

/// Upstream's bounds, in seconds.
const BOUNDS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];

/// Upstream's bounds for what is left of a certificate: none to a year, in seconds.
const REMAINING: [f64; 14] = [
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

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
        Err(error) => error.code.map_or_else(|| "<error>".to_owned(), |code| code.to_string()),
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

/// A request came with a certificate that holds for so long.
pub(super) fn certificate(remaining_seconds: f64) {
    let family = "apiserver_client_certificate_expiration_seconds";
    KEPT.observe(family, &[], &REMAINING, remaining_seconds);
}

/// A token was looked up: a `hit` if the answer was known.
pub(super) fn token_found(status: &str, took: Duration) {
    KEPT.add("authentication_token_cache_request_total", &[status], 1.0);
    let family = "authentication_token_cache_request_duration_seconds";
    KEPT.observe(family, &[status], &Tally::SECONDS, took.as_secs_f64());
}

/// The API server was asked about a token, and answered or not.
pub(super) fn token_fetched(is_answered: bool) {
    let status = if is_answered { "ok" } else { "error" };
    KEPT.add("authentication_token_cache_fetch_total", &[status], 1.0);
}

/// A question about a token, `blocked` or `in_flight` for as long as this lives.
pub(super) struct ActiveFetch(&'static str);

impl ActiveFetch {
    const FAMILY: &'static str = "authentication_token_cache_active_fetch_count";

    pub(super) fn new(status: &'static str) -> Self {
        KEPT.add(Self::FAMILY, &[status], 1.0);
        Self(status)
    }
}

impl Drop for ActiveFetch {
    fn drop(&mut self) {
        KEPT.add(Self::FAMILY, &[self.0], -1.0);
    }
}
