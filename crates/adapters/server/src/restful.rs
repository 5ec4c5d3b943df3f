//! What upstream's router says by itself: which methods a path has, where a path without its last
//! slash leads, and that nothing is there.
//!
//! In: the methods that a row answers. Out: the same row with upstream's refusal of all others: a
//! 405 that names them. `HEAD` is one of the others, because upstream's router does not take it for
//! a kind of `GET`.

use std::sync::Arc;

use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::MethodRouter;

use crate::routes::{not_found, text};

/// A row for `GET` alone.
pub(crate) fn reading<S: Clone + Send + Sync + 'static>(row: MethodRouter<S>) -> MethodRouter<S> {
    let refuse = async || refused("GET");
    row.head(refuse).fallback(refuse)
}

/// A row for `POST` alone.
pub(crate) fn writing<S: Clone + Send + Sync + 'static>(row: MethodRouter<S>) -> MethodRouter<S> {
    row.fallback(async || refused("POST"))
}

/// A row for both.
pub(crate) fn reading_and_writing<S: Clone + Send + Sync + 'static>(
    row: MethodRouter<S>,
) -> MethodRouter<S> {
    let refuse = async || refused("GET, POST");
    row.head(refuse).fallback(refuse)
}

fn refused(allowed: &'static str) -> Response {
    let words = "405: Method Not Allowed".to_owned();
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, words);
    let allowed = HeaderValue::from_static(allowed);
    answer.headers_mut().insert(header::ALLOW, allowed);
    answer
}

/// The same path with a slash at its end, where there is something.
pub(crate) async fn with_slash(method: Method, uri: Uri) -> Response {
    let query = uri.query().map(|it| format!("?{it}")).unwrap_or_default();
    let place = format!("{}/{query}", uri.path());
    // Of a request that was routed neither can hold what a header cannot.
    let Ok(location) = HeaderValue::try_from(&place) else {
        return not_found().await;
    };
    let mut answer = if [Method::GET, Method::HEAD].contains(&method) {
        let shown = place.replace('&', "&amp;").replace('"', "&#34;");
        let shown = shown.replace('<', "&lt;").replace('>', "&gt;");
        let page = format!("<a href=\"{shown}\">Temporary Redirect</a>.\n\n");
        ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
    } else {
        StatusCode::OK.into_response()
    };
    *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    answer.headers_mut().insert(header::LOCATION, location);
    answer
}

/// Roots below which upstream's router, and not its multiplexer, finds nothing.
#[derive(Clone)]
pub(crate) struct Services(Arc<[&'static str]>);

impl Services {
    pub(crate) fn new(roots: &[&'static str]) -> Self {
        Self(roots.into())
    }

    /// The 404 of a path that nobody serves.
    pub(crate) async fn nothing_at(self, uri: Uri) -> Response {
        let root = uri.path().trim_start_matches('/').split('/').next();
        if !self.0.contains(&root.unwrap_or_default()) {
            return not_found().await;
        }
        text(StatusCode::NOT_FOUND, "404: Page Not Found".to_owned())
    }
}
