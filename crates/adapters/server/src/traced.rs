//! A span for each request of somebody who was let in, so that the calls made for it have a parent.
//!
//! Stands behind the gate: strangers begin no traces, and whether a guest's `traceparent` is
//! believed is the trace layer's business. The name is bounded like the labels of figures. Costs a
//! look at a flag where nobody traces.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use ferrolet_ports::{TRACE_PARENT, TRACED};
use tracing::Instrument as _;

use crate::metrics;

/// Answers within a span. It ends when the answer begins: a stream may last for days.
pub(crate) async fn trace(request: Request, next: Next) -> Response {
    let (method, root) = metrics::bounded(request.method().as_str(), request.uri().path());
    let parent = request.headers().get(TRACE_PARENT);
    let span = tracing::trace_span!(
        target: TRACED,
        parent: None,
        "request",
        otel.name = %format_args!("{method} /{root}"),
        otel.kind = "server",
        otel.error = tracing::field::Empty,
        http.request.method = method,
        http.response.status_code = tracing::field::Empty,
        traceparent = parent.and_then(|it| it.to_str().ok()),
    );
    let answer = next.run(request).instrument(span.clone()).await;
    let status = answer.status();
    span.record("http.response.status_code", u64::from(status.as_u16()));
    if status >= StatusCode::INTERNAL_SERVER_ERROR {
        span.record("otel.error", status.as_str());
    }
    answer
}
