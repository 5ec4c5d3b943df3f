//! A request that is not granted: a status and one sentence, small enough to be an error value.

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::routes::text;

/// What the client is told instead of what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) words: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { status, words }
    }

    /// 400.
    pub(crate) fn bad(words: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, words)
    }

    /// 404.
    pub(crate) fn not_found(words: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, words)
    }

    /// 500.
    pub(crate) fn failed(words: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, words)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut answer = text(self.status, self.words);
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            // A prepared stream that nobody opens is forgotten after a minute.
            let minute = HeaderValue::from_static("60");
            answer.headers_mut().insert("retry-after", minute);
        }
        answer
    }
}
