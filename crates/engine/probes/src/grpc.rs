//! The gRPC health check, version 1: well when the service says `SERVING`.
//!
//! In the clear, or over TLS that trusts anybody (`mode: TLS`). Like upstream's blocking dial, a connection that cannot be made is tried again until the time is
//! over.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::http::uri::PathAndQuery;
use ferrolet_types::format_go_duration;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{self, Instant};
use tokio_rustls::client::TlsStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use crate::VERSION;
use crate::dial::{Dialer, join_host_port};
use crate::heard::Heard;
use crate::http::{Tls, is_http2};
use crate::prober::Outcome;

/// Pause before the next try to connect, as gRPC's first back-off.
const PAUSE: Duration = Duration::from_secs(1);

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const SERVING: i32 = 1;

/// What a health check is carried by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// The bare connection.
    Clear,
    /// TLS, and nobody asks with whom.
    Tls,
}

/// Who is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) carrier: Carrier,
}

/// Asks servers. Keeps no connection.
pub(crate) struct Client {
    dialer: Dialer,
    tls: Tls,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Client {
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { dialer, tls: Tls::new() }
    }

    pub(crate) async fn probe(
        &self,
        server: Server<'_>,
        service: &str,
        timeout: Duration,
    ) -> Outcome {
        let address = join_host_port(server.host, server.port);
        let deadline = Instant::now() + timeout;
        let limit = format_go_duration(timeout);
        let no_connection = || {
            Outcome::Failure(format!(
                "timeout: failed to connect service {address:?} within {limit}: context deadline exceeded"
            ))
        };
        loop {
            let is_heard = Arc::new(AtomicBool::new(false));
            let connected = self.connected(server, &address, &is_heard);
            let Ok(channel) = time::timeout_at(deadline, connected).await else {
                return no_connection();
            };
            let asked = time::timeout_at(deadline, check(channel, service)).await;
            return match asked {
                Ok(Ok(SERVING)) => Outcome::Success,
                Ok(Ok(status)) => Outcome::Failure(format!(
                    "service unhealthy (responded with \"{}\")",
                    status_name(status)
                )),
                // The connection broke before it was one, as far as gRPC is concerned.
                Ok(Err(status)) if status.source().is_some() => {
                    if time::timeout_at(deadline, time::sleep(PAUSE)).await.is_err() {
                        return no_connection();
                    }
                    continue;
                }
                Ok(Err(status)) => Outcome::Failure(refusal(&status, &limit)),
                // A server of HTTP/2 speaks up before it is asked anything.
                Err(_) if !is_heard.load(Ordering::Relaxed) => no_connection(),
                Err(_) => Outcome::Failure(late(&limit)),
            };
        }
    }

    /// Connects, however often it takes.
    async fn connected(
        &self,
        server: Server<'_>,
        address: &str,
        is_heard: &Arc<AtomicBool>,
    ) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .and_then(|it| it.user_agent(format!("kube-probe/{VERSION}")))
            .map_err(|error| tracing::debug!(address, error = %error, "Not an address for gRPC"));
        let Ok(endpoint) = endpoint else {
            // An address that is none is never connected to.
            return std::future::pending().await;
        };
        let Server { port, carrier, .. } = server;
        loop {
            let doors = (self.dialer.clone(), self.tls.clone());
            let order = (doors, server.host.to_owned(), is_heard.clone());
            let connector = tower::service_fn(move |_| {
                let ((dialer, tls), host, is_heard) = order.clone();
                async move {
                    let stream = dialer.dial(&host, port).await.map_err(std::io::Error::other)?;
                    let stream = Heard::telling(stream, is_heard);
                    let stream: Box<dyn Stream> = match carrier {
                        Carrier::Clear => Box::new(stream),
                        Carrier::Tls => Box::new(secured(&tls, &host, stream).await?),
                    };
                    Ok::<_, std::io::Error>(TokioIo::new(stream))
                }
            });
            match endpoint.connect_with_connector(connector).await {
                Ok(channel) => return channel,
                Err(_) => time::sleep(PAUSE).await,
            }
        }
    }
}

/// A connection on which both sides agreed to speak HTTP/2, as gRPC demands.
async fn secured(tls: &Tls, host: &str, stream: Heard) -> std::io::Result<TlsStream<Heard>> {
    let stream = tls.connect(host, stream).await.map_err(std::io::Error::other)?;
    match is_http2(&stream) {
        true => Ok(stream),
        false => Err(std::io::Error::other("the server does not speak HTTP/2")),
    }
}

async fn check(channel: Channel, service: &str) -> Result<i32, Status> {
    let mut client = Grpc::new(channel);
    let ready = client.ready().await;
    ready.map_err(|error| Status::from_error(error.into()))?;
    let request = tonic::Request::new(HealthCheckRequest { service: service.to_owned() });
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let answer = client.unary(request, path, codec).await?;
    Ok(answer.into_inner().status)
}

fn refusal(status: &Status, limit: &str) -> String {
    let message = status.message();
    match status.code() {
        Code::Unimplemented => format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        ),
        Code::DeadlineExceeded => late(limit),
        Code::Cancelled => {
            format!("error: health rpc probe failed: rpc error: code = Canceled desc = {message}")
        }
        code => {
            format!("error: health rpc probe failed: rpc error: code = {code:?} desc = {message}")
        }
    }
}

fn late(limit: &str) -> String {
    format!("timeout: health rpc did not complete within {limit}")
}

fn status_name(status: i32) -> String {
    match status {
        0 => "UNKNOWN".to_owned(),
        1 => "SERVING".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
