//! Against a real HTTP/2 server on loopback that speaks just enough gRPC.

use std::convert::Infallible;

use ::http::{HeaderMap, Request, Response};
use ferrolet_testkit::FakeOutbound;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioExecutor;
use prost::Message as _;
use tokio::net::TcpListener;

use super::*;
use crate::http::tests::server_config;

async fn probe(host: &str, port: u16, service: &str, timeout: Duration) -> Outcome {
    probe_over(Carrier::Clear, (host, port), service, timeout).await
}

async fn probe_over(
    carrier: Carrier,
    (host, port): (&str, u16),
    service: &str,
    timeout: Duration,
) -> Outcome {
    let client = Client::new(Dialer::new(Arc::new(FakeOutbound::default())));
    client.probe(Server { host, port, carrier }, service, timeout).await
}

const ENOUGH: Duration = Duration::from_secs(5);

/// What the server answers.
#[derive(Clone, Copy)]
enum Says {
    Status(i32),
    Refusal(&'static str, &'static str),
    Nothing,
}

async fn answer(says: Says, request: Request<Incoming>) -> Response<Body> {
    let agent = request.headers()["user-agent"].to_str().unwrap().to_owned();
    assert!(agent.starts_with("kube-probe/1.37"), "{agent}");
    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let asked = HealthCheckRequest::decode(&body[5..]).unwrap();
    assert_eq!(asked.service, "web");
    let mut trailers = HeaderMap::new();
    let mut bytes = Vec::new();
    match says {
        Says::Nothing => std::future::pending().await,
        Says::Status(status) => {
            let message = HealthCheckResponse { status }.encode_to_vec();
            bytes.extend([0, 0, 0, 0, u8::try_from(message.len()).unwrap()]);
            bytes.extend(message);
            trailers.insert("grpc-status", "0".parse().unwrap());
        }
        Says::Refusal(code, message) => {
            trailers.insert("grpc-status", code.parse().unwrap());
            trailers.insert("grpc-message", message.parse().unwrap());
        }
    }
    let body = Full::new(Bytes::from(bytes)).with_trailers(std::future::ready(Some(Ok(trailers))));
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(body).unwrap()
}

type Body = http_body_util::combinators::WithTrailers<
    Full<Bytes>,
    std::future::Ready<Option<Result<HeaderMap, Infallible>>>,
>;

async fn server(says: Says) -> u16 {
    server_over(says, None).await
}

async fn server_over(says: Says, tls: Option<rustls::ServerConfig>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = tls.map(|it| tokio_rustls::TlsAcceptor::from(Arc::new(it)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let stream: Box<dyn Stream> = match tls {
                    None => Box::new(stream),
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => Box::new(stream),
                        Err(_) => return,
                    },
                };
                let service = hyper::service::service_fn(move |request| async move {
                    Ok::<_, Infallible>(answer(says, request).await)
                });
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await
                    .ok();
            });
        }
    });
    port
}

#[tokio::test]
async fn a_server_may_be_asked_over_tls_by_whatever_name_it_has() {
    let port = server_over(Says::Status(1), Some(server_config(&["h2"]))).await;
    let at = ("127.0.0.1", port);
    assert_eq!(probe_over(Carrier::Tls, at, "web", ENOUGH).await, Outcome::Success);
    let short = Duration::from_millis(300);
    let says = |outcome: Outcome| format!("{outcome:?}");
    let clear = says(probe_over(Carrier::Clear, at, "web", short).await);
    assert!(clear.contains("timeout: "), "{clear}");
    // Without HTTP/2 there is no gRPC.
    let port = server_over(Says::Status(1), Some(server_config(&["http/1.1"]))).await;
    let old = says(probe_over(Carrier::Tls, ("127.0.0.1", port), "web", short).await);
    assert!(old.contains("failed to connect service"), "{old}");
}

/// Grpc.
#[tokio::test]
async fn only_serving_is_well() {
    let failed = |text: &str| Outcome::Failure(text.to_owned());
    for (says, outcome) in [
        (Says::Status(1), Outcome::Success),
        (Says::Status(2), failed("service unhealthy (responded with \"NOT_SERVING\")")),
        (Says::Status(0), failed("service unhealthy (responded with \"UNKNOWN\")")),
        (
            Says::Refusal("5", "unknown service"),
            failed(
                "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
            ),
        ),
        (
            Says::Refusal("12", "unknown service grpc.health.v1.Health"),
            failed(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health",
            ),
        ),
    ] {
        let port = server(says).await;
        assert_eq!(probe("127.0.0.1", port, "web", ENOUGH).await, outcome);
    }
}

#[tokio::test]
async fn a_call_without_an_answer_times_out() {
    let port = server(Says::Nothing).await;
    let outcome = probe("127.0.0.1", port, "web", Duration::from_secs(1)).await;
    let text = "timeout: health rpc did not complete within 1s";
    assert_eq!(outcome, Outcome::Failure(text.to_owned()));
}

#[tokio::test]
async fn a_port_that_nobody_serves_is_tried_until_the_time_is_over() {
    let check = async |port: u16| {
        let outcome = probe("127.0.0.1", port, "web", Duration::from_secs(1)).await;
        let text = format!(
            "timeout: failed to connect service \"127.0.0.1:{port}\" within 1s: context deadline exceeded"
        );
        assert_eq!(outcome, Outcome::Failure(text));
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    check(port).await;
    // Somebody is there, but does not speak HTTP/2.
    let server = crate::http::tests::Server::says("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    check(server.port).await;
}

#[tokio::test]
async fn the_connection_of_a_call_is_forgotten_soon() {
    let outbound = Arc::new(FakeOutbound::default());
    let client = Client::new(Dialer::new(outbound.clone()));
    let port = server(Says::Status(1)).await;
    for _ in 0..5 {
        let server = Server { host: "127.0.0.1", port, carrier: Carrier::Clear };
        let outcome = client.probe(server, "web", ENOUGH).await;
        assert_eq!(outcome, Outcome::Success);
    }
    assert_eq!(outbound.n_told(), 5);
}
