//! Requests that did not come to an answer, or to one that makes no sense, as typed errors. Pure.

use std::{fmt::Display, time::Duration};

use ferrolet_ports::{ApiError, ApiErrorKind};
use http::{HeaderMap, header};

use super::transport::TransportError;

/// The request could not even be written down.
pub(super) fn unsendable(attempt: String, reason: &dyn Display) -> ApiError {
    ApiError { kind: ApiErrorKind::BadRequest, ..malformed(attempt, reason) }
}

/// The answer makes no sense.
pub(super) fn malformed(attempt: String, reason: &dyn Display) -> ApiError {
    ApiError {
        attempt,
        kind: ApiErrorKind::Malformed,
        message: reason.to_string(),
        code: None,
        causes: Vec::new(),
    }
}

/// An error of the way to the server, its whole chain in one sentence.
pub(super) fn broken(attempt: &str, error: &TransportError) -> ApiError {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.ends_with(&text) {
            message = format!("{message}: {text}");
        }
        source = cause.source();
    }
    ApiError {
        attempt: attempt.to_owned(),
        kind: ApiErrorKind::Unavailable,
        message,
        code: None,
        causes: Vec::new(),
    }
}

pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}
