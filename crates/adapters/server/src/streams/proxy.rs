//! Offers a client's upgrade to the runtime's streaming server, and joins the two when it is
//! accepted.
//!
//! In: the address the runtime prepared, the request, and in which manner the two are joined
//! ([`Manner`]). Out: a 101 and a session that carries bytes; or an error as a plain answer on a
//! connection that then closes. Refuses: upgrading the client before the runtime has agreed
//! (CVE-2018-1002105), following or passing on redirects (CVE-2020-8559), and showing the runtime
//! the caller's credentials.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse as _, Response};
use ferrolet_ports::WantedStreams;
use ferrolet_streams::tunnel::tunnel;
use ferrolet_streams::websocket::accept;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::bridge::translate;
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
    #[error("unable to upgrade: missing upgrade headers in response")]
    Headers,
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

/// How a client and the runtime are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// They speak the same: the client's own request is offered, and bytes are carried as they are.
    AsItIs,
    /// The client's WebSocket carries SPDY; it offers these protocols for that.
    Tunnel { protocols: Vec<String> },
    /// The client's WebSocket has channels where the runtime has SPDY streams.
    Translate(WantedStreams),
}

const SPDY: &str = "SPDY/3.1";
/// What names a protocol of SPDY that is carried in a WebSocket.
const TUNNELLED: &str = "SPDY/3.1+";
const CHANNELS: &str = "v5.channel.k8s.io";
/// The newest protocol for a process's streams over SPDY.
const SPDY_STREAMS: &str = "v4.channel.k8s.io";
const SPDY_PROTOCOL: &str = "x-stream-protocol-version";

/// The protocols a WebSocket's client offers.
fn web_protocols(headers: &HeaderMap) -> Vec<&str> {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let lists = offered.filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',').map(str::trim)).collect()
}

/// How a process's streams are joined for this client.
pub(super) fn process_manner(headers: &HeaderMap, wanted: WantedStreams) -> Manner {
    if is_websocket(headers) && web_protocols(headers).contains(&CHANNELS) {
        Manner::Translate(wanted)
    } else {
        Manner::AsItIs
    }
}

/// How forwarded ports are joined for this client.
pub(super) fn port_manner(headers: &HeaderMap) -> Manner {
    let offered = web_protocols(headers).into_iter();
    let protocols: Vec<String> = offered
        .filter_map(|it| it.strip_prefix(TUNNELLED))
        .filter(|it| it.ends_with(".k8s.io"))
        .map(str::to_owned)
        .collect();
    if is_websocket(headers) && !protocols.is_empty() {
        Manner::Tunnel { protocols }
    } else {
        Manner::AsItIs
    }
}

pub(super) async fn proxy(url: &str, parts: Parts, manner: Manner, idle: Duration) -> Response {
    if manner != Manner::AsItIs
        && let Err(refusal) = must_be_a_handshake(&parts.headers)
    {
        return refusal.into_response();
    }
    let outcome = tokio::time::timeout(PATIENCE, offer(url, parts, manner, idle)).await;
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

/// What upstream's WebSocket library wants of a request.
fn must_be_a_handshake(headers: &HeaderMap) -> Result<(), Refusal> {
    let has = |name, value: &str| headers.get(name).is_some_and(|it| it == value);
    if !has(header::SEC_WEBSOCKET_VERSION, "13") {
        return Err(Refusal::bad("websocket version not supported\n"));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY);
    if key.is_none_or(|key| key.is_empty() || key.len() > 64) {
        return Err(Refusal::bad("websocket key is missing\n"));
    }
    Ok(())
}

async fn offer(
    url: &str,
    mut parts: Parts,
    manner: Manner,
    idle: Duration,
) -> Result<Response, ProxyError> {
    let sessions = parts.extensions.remove::<Sessions>();
    let sessions = sessions.ok_or(ProxyError::Connection)?;
    let location: Uri = url.parse().map_err(|_| ProxyError::Address(url.to_owned()))?;
    let host = location.authority().filter(|_| location.scheme_str() == Some("http"));
    let host = host.ok_or_else(|| ProxyError::Address(url.to_owned()))?;
    let port = host.port_u16().unwrap_or(80);
    let name = host.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((name, port)).await.map_err(ProxyError::Connect)?;
    stream.set_nodelay(true).map_err(ProxyError::Connect)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(ProxyError::Speak)?;
    sessions.run(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(err = %error, "The runtime's stream ended early");
        }
    });
    let offered = match &manner {
        Manner::AsItIs => offered(&parts, &location)?,
        Manner::Tunnel { protocols } => spdy_request(&location, protocols)?,
        Manner::Translate(_) => spdy_request(&location, &[SPDY_STREAMS.to_owned()])?,
    };
    let answer = sender.send_request(offered).await.map_err(ProxyError::Speak)?;
    let status = answer.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        if manner != Manner::AsItIs && !is_spdy(answer.headers()) {
            return Err(ProxyError::Headers);
        }
        return Ok(join(parts, answer, manner, &sessions, idle));
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
    let own =
        [header::AUTHORIZATION, header::COOKIE, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
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

/// A request of our own, for a client that speaks something else.
fn spdy_request(
    location: &Uri,
    protocols: &[String],
) -> Result<hyper::Request<Empty<Bytes>>, ProxyError> {
    let path = location.path_and_query().map_or("/", |it| it.as_str());
    let host = location.authority().map_or("", |it| it.as_str());
    let mut request = hyper::Request::post(path)
        .header(header::HOST, host)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, SPDY);
    for protocol in protocols {
        request = request.header(SPDY_PROTOCOL, protocol);
    }
    request.body(Empty::new()).map_err(|_| ProxyError::Address(location.to_string()))
}

fn is_spdy(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE);
    upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(SPDY.as_bytes()))
}

/// Both ends agree: passes the agreement on, and carries what follows.
fn join(
    parts: Parts,
    mut answer: hyper::Response<Incoming>,
    manner: Manner,
    sessions: &Sessions,
    idle: Duration,
) -> Response {
    let headers = match &manner {
        Manner::AsItIs => answer.headers().clone(),
        Manner::Tunnel { .. } => {
            let chosen = answer.headers().get(SPDY_PROTOCOL);
            let chosen = chosen.and_then(|it| it.to_str().ok());
            let chosen = chosen.map(|it| format!("{TUNNELLED}{it}"));
            handshake(&parts.headers, chosen.as_deref())
        }
        Manner::Translate(_) => handshake(&parts.headers, Some(CHANNELS)),
    };
    let mut request = Request::from_parts(parts, Body::empty());
    let from_client = hyper::upgrade::on(&mut request);
    let from_runtime = hyper::upgrade::on(&mut answer);
    sessions.run(async move {
        let (client, runtime) = match tokio::try_join!(from_client, from_runtime) {
            Ok((client, runtime)) => (TokioIo::new(client), TokioIo::new(runtime)),
            Err(error) => {
                tracing::debug!(err = %error, "An upgrade was agreed and not kept");
                return;
            }
        };
        match manner {
            Manner::AsItIs => carry(client, runtime, idle).await,
            Manner::Tunnel { .. } => tunnel(client, runtime, idle).await,
            Manner::Translate(wanted) => translate(client, runtime, wanted, idle).await,
        }
    });
    let mut agreed = Response::new(Body::empty());
    *agreed.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *agreed.headers_mut() = headers;
    agreed
}

/// Our side of a WebSocket's handshake.
fn handshake(asked: &HeaderMap, protocol: Option<&str>) -> HeaderMap {
    let key = asked.get(header::SEC_WEBSOCKET_KEY);
    let key = key.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    let texts = [
        (header::SEC_WEBSOCKET_ACCEPT, Some(accept(key))),
        (header::SEC_WEBSOCKET_PROTOCOL, protocol.map(str::to_owned)),
    ];
    for (name, text) in texts {
        if let Some(value) = text.and_then(|it| HeaderValue::from_str(&it).ok()) {
            headers.insert(name, value);
        }
    }
    headers
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
