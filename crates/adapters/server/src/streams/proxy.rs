//! Offers a client's upgrade to the runtime's streaming server, and joins the two when it is accepted.
//!
//! In: the address the runtime prepared, and the request. Out: the runtime's 101 and a session that carries bytes; or an error as
//! a plain answer on a connection that then closes. Refuses: upgrading the client before the runtime has agreed (CVE-2018-1002105),
//! following or passing on redirects (CVE-2020-8559), and showing the runtime the caller's credentials.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::carry::carry;
use crate::refusal::Refusal;
use crate::sessions::Sessions;

/// The runtime listens on this machine; it answers at once or not at all.
const PATIENCE: Duration = Duration::from_secs(30);
/// As much of the runtime's explanation as is passed on.
const EXPLANATION: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
enum ProxyError {
    #[error("the runtime's stream address {0:?} is not plain HTTP")]
    Address(String),
    #[error("connect to the runtime's streaming server: {0}")]
    Connect(std::io::Error),
    #[error("the runtime's streaming server does not answer")]
    Silent,
    #[error("error dialing backend: {0}")]
    Speak(hyper::Error),
    #[error("invalid upgrade response: status code {0}")]
    NotUpgraded(u16),
    #[error("this connection cannot become a stream")]
    Connection,
}

/// Refuses a request that does not ask for an upgrade.
pub(super) fn must_upgrade(parts: &Parts) -> Result<(), Refusal> {
    let headers = &parts.headers;
    let asks = headers.get_all(header::CONNECTION).iter().any(|value| {
        let text = value.to_str().unwrap_or_default();
        text.to_ascii_lowercase().contains("upgrade")
    });
    if asks && headers.contains_key(header::UPGRADE) && parts.version == Version::HTTP_11 {
        return Ok(());
    }
    Err(Refusal::failed("Upgrade request required\n"))
}

/// True when the upgrade is to a WebSocket.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

pub(super) async fn proxy(url: &str, parts: Parts, idle: Duration) -> Response {
    let outcome = tokio::time::timeout(PATIENCE, offer(url, parts, idle)).await;
    let error = match outcome {
        Ok(Ok(answer)) => return answer,
        Ok(Err(error)) => error,
        Err(_elapsed) => ProxyError::Silent,
    };
    tracing::error!(err = %error, "Error while proxying request");
    let mut answer = Refusal::failed(format!("{error}\n")).into_response();
    closing(answer.headers_mut());
    answer
}

async fn offer(url: &str, mut parts: Parts, idle: Duration) -> Result<Response, ProxyError> {
    let sessions = parts.extensions.remove::<Sessions>();
    let sessions = sessions.ok_or(ProxyError::Connection)?;
    let location: Uri = url
        .parse()
        .map_err(|_| ProxyError::Address(url.to_owned()))?;
    let host = location
        .authority()
        .filter(|_| location.scheme_str() == Some("http"));
    let host = host.ok_or_else(|| ProxyError::Address(url.to_owned()))?;
    let port = host.port_u16().unwrap_or(80);
    let name = host.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((name, port))
        .await
        .map_err(ProxyError::Connect)?;
    stream.set_nodelay(true).map_err(ProxyError::Connect)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(ProxyError::Speak)?;
    sessions.run(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(err = %error, "The runtime's stream ended early");
        }
    });
    let offered = offered(&parts, &location)?;
    let answer = sender
        .send_request(offered)
        .await
        .map_err(ProxyError::Speak)?;
    let status = answer.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(join(parts, answer, &sessions, idle));
    }
    if status.as_u16() < 400 {
        return Err(ProxyError::NotUpgraded(status.as_u16()));
    }
    Ok(explained(answer).await)
}

/// The client's request as the runtime sees it.
fn offered(parts: &Parts, location: &Uri) -> Result<hyper::Request<Empty<Bytes>>, ProxyError> {
    let path = location.path_and_query().map_or("/", |it| it.as_str());
    let mut offered = hyper::Request::builder()
        .method(parts.method.clone())
        .uri(path)
        .body(Empty::new())
        .map_err(|_| ProxyError::Address(location.to_string()))?;
    let own = [
        header::AUTHORIZATION,
        header::COOKIE,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
    ];
    for (name, value) in &parts.headers {
        if !own.contains(name) {
            offered.headers_mut().append(name, value.clone());
        }
    }
    if !offered.headers().contains_key(header::HOST) {
        let host = location.authority().map_or("", |it| it.as_str());
        let host =
            HeaderValue::from_str(host).map_err(|_| ProxyError::Address(location.to_string()))?;
        offered.headers_mut().insert(header::HOST, host);
    }
    Ok(offered)
}

/// Both ends agree: passes the agreement on, and carries what follows.
fn join(
    parts: Parts,
    mut answer: hyper::Response<Incoming>,
    sessions: &Sessions,
    idle: Duration,
) -> Response {
    let mut request = Request::from_parts(parts, Body::empty());
    let from_client = hyper::upgrade::on(&mut request);
    let from_runtime = hyper::upgrade::on(&mut answer);
    sessions.run(async move {
        match tokio::try_join!(from_client, from_runtime) {
            Ok((client, runtime)) => carry(TokioIo::new(client), TokioIo::new(runtime), idle).await,
            Err(error) => tracing::debug!(err = %error, "An upgrade was agreed and not kept"),
        }
    });
    let (parts, _) = answer.into_parts();
    let mut agreed = Response::new(Body::empty());
    *agreed.status_mut() = parts.status;
    *agreed.headers_mut() = parts.headers;
    agreed
}

/// The runtime's refusal, as far as it fits.
async fn explained(answer: hyper::Response<Incoming>) -> Response {
    let (parts, body) = answer.into_parts();
    let words = Limited::new(body, EXPLANATION).collect().await;
    let words = words.map(|body| body.to_bytes()).unwrap_or_default();
    let mut explained = Response::new(Body::from(words));
    *explained.status_mut() = parts.status;
    for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
        if let Some(value) = parts.headers.get(&name) {
            explained.headers_mut().insert(name, value.clone());
        }
    }
    closing(explained.headers_mut());
    explained
}

fn closing(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
}
