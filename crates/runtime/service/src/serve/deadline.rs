//! Calls that take longer than their caller waits.
//!
//! In: calls with gRPC's header `grpc-timeout`. Out: their answers, or `DEADLINE_EXCEEDED` when the time is over, with
//! the call dropped. tonic has such a bound of its own, around this one, and answers `CANCELLED`, which kubelets and
//! tools take for a caller that changed its mind. This one is set first, for the same moment, and looked at first.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, Request, Response};
use tokio::time::timeout;
use tonic::{Status, body::Body};
use tower::{Layer, Service};

/// gRPC's name for how long a caller waits.
const HEADER: &str = "grpc-timeout";
/// As many digits as a number may have there.
const MOST_DIGITS: usize = 8;

/// Bounds every call by what its caller says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines;

impl<S> Layer<S> for Deadlines {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded(inner)
    }
}

/// A service whose calls end when their callers do not wait any more.
#[derive(Clone, Debug)]
pub(super) struct Bounded<S>(S);

impl<S, B> Service<Request<B>> for Bounded<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let patience = patience(request.headers());
        let answer = self.0.call(request);
        let Some(patience) = patience else { return Box::pin(answer) };
        let bounded = timeout(patience, answer);
        Box::pin(async move {
            match bounded.await {
                Ok(answer) => answer,
                Err(_) => {
                    let late = format!("the call took longer than its caller waits: {patience:?}");
                    Ok(Status::deadline_exceeded(late).into_http())
                }
            }
        })
    }
}

/// How long a caller waits; none: for ever, or it says so in words that are not gRPC's.
fn patience(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(HEADER)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number = digits.bytes().all(|it| it.is_ascii_digit());
    if !is_number || digits.len() > MOST_DIGITS {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::{ServiceExt as _, service_fn};

    #[test]
    fn callers_say_in_units_how_long_they_wait() {
        let cases = [
            ("2H", Some(Duration::from_secs(7200))),
            ("3M", Some(Duration::from_secs(180))),
            ("120S", Some(Duration::from_secs(120))),
            ("1500m", Some(Duration::from_millis(1500))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("7n", Some(Duration::from_nanos(7))),
            ("999999999S", None),
            ("+1S", None),
            ("1", None),
            ("S", None),
            ("", None),
            ("1x", None),
        ];
        for (text, expected) in cases {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static(HEADER),
                http::HeaderValue::from_static(text),
            )]);
            assert_eq!(patience(&headers), expected, "{text}");
        }
        assert_eq!(patience(&HeaderMap::new()), None);
    }

    async fn answer(waits: &str, takes: Duration) -> Option<String> {
        let service = service_fn(move |_: Request<()>| async move {
            tokio::time::sleep(takes).await;
            Ok::<_, Infallible>(Response::new(Body::default()))
        });
        let request = Request::builder().header(HEADER, waits).body(()).unwrap();
        let response = Deadlines.layer(service).oneshot(request).await.unwrap();
        let status = response.headers().get("grpc-status")?;
        Some(status.to_str().unwrap().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_too_long_is_told_so_by_its_own_code() {
        assert_eq!(answer("1S", Duration::from_millis(10)).await, None);
        let late = (tonic::Code::DeadlineExceeded as i32).to_string();
        assert_eq!(answer("1m", Duration::from_secs(10)).await, Some(late));
    }
}
