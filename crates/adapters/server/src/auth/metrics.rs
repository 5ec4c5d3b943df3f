//! Metrics of what the API server was asked about callers.
//!
//! Counted in the tally of the process: questions and how they ended, certificates and tokens that
//! were shown. Labels are status codes and words of ours: nothing that a
//! caller says.

use std::time::Duration;

use ferrolet_ports::{
    ApiError,
    metrics::{self, Gauge, process},
};
use tokio::time::Instant;

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
            metrics::APISERVER_DELEGATED_AUTHN_REQUEST_TOTAL,
            metrics::APISERVER_DELEGATED_AUTHN_REQUEST_DURATION_SECONDS,
        ),
        Question::WhatTheyMay => (
            metrics::APISERVER_DELEGATED_AUTHZ_REQUEST_TOTAL,
            metrics::APISERVER_DELEGATED_AUTHZ_REQUEST_DURATION_SECONDS,
        ),
    };
    process().add(total, [&code], 1.0);
    let took = began.elapsed().as_secs_f64();
    process().observe(duration, [&code], took);
    answer
}

/// A request came with a certificate that holds for so long.
pub(super) fn certificate(remaining_seconds: f64) {
    process().observe(
        metrics::APISERVER_CLIENT_CERTIFICATE_EXPIRATION_SECONDS,
        [],
        remaining_seconds,
    );
}

/// A token was looked up: a `hit` if the answer was known.
pub(super) fn token_found(status: &str, took: Duration) {
    process().add(metrics::AUTHENTICATION_TOKEN_CACHE_REQUEST_TOTAL, [status], 1.0);
    process().observe(
        metrics::AUTHENTICATION_TOKEN_CACHE_REQUEST_DURATION_SECONDS,
        [status],
        took.as_secs_f64(),
    );
}

/// The API server was asked about a token, and answered or not.
pub(super) fn token_fetched(is_answered: bool) {
    let status = if is_answered { "ok" } else { "error" };
    process().add(metrics::AUTHENTICATION_TOKEN_CACHE_FETCH_TOTAL, [status], 1.0);
}

/// A question about a token, `blocked` or `in_flight` for as long as this lives.
pub(super) struct ActiveFetch(&'static str);

impl ActiveFetch {
    const GAUGE: Gauge<1> = metrics::AUTHENTICATION_TOKEN_CACHE_ACTIVE_FETCH_COUNT;

    pub(super) fn new(status: &'static str) -> Self {
        process().adjust(Self::GAUGE, [status], 1.0);
        Self(status)
    }
}

impl Drop for ActiveFetch {
    fn drop(&mut self) {
        process().adjust(Self::GAUGE, [self.0], -1.0);
    }
}
