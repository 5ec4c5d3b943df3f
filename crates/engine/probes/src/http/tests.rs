//! Against real servers on loopback; texts were compared with those of Go's client.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrolet_testkit::FakeOutbound;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, HTTPHeader};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::dial::Dialer;
use crate::prober::Outcome;

/// What a server does with a connection once it has read the request.
#[derive(Clone, Debug)]
enum Does {
    /// Writes this and closes.
    Says(String),
    /// Writes this and keeps the connection open.
    SaysAndStays(String),
    /// Writes this, reads until the other side closes, and so closes last.
    SaysAndWaits(String),
}

/// A server that does one thing, over and over.
pub(crate) struct Server {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Says this to everybody.
    pub(crate) async fn says(text: &str) -> Self {
        Self::start("127.0.0.1", Does::Says(text.to_owned()), None).await
    }

    async fn start(host: &str, does: Does, tls: Option<rustls::ServerConfig>) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let journal = asked.clone();
        let tls = tls.map(|it| tokio_rustls::TlsAcceptor::from(Arc::new(it)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (does, journal, tls) = (does.clone(), journal.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, does, &journal).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, does, &journal).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, asked }
    }

    /// Every request so far, head only.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    does: Does,
    journal: &Mutex<Vec<String>>,
) {
    let mut head = Vec::new();
    // TLS greetings have no blank line; whatever comes first is enough to be answered.
    while !head.ends_with(b"\r\n\r\n") && head.first() != Some(&22) {
        match stream.read_buf(&mut head).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    journal.lock().unwrap().push(text);
    let (Does::Says(text) | Does::SaysAndStays(text) | Does::SaysAndWaits(text)) = &does;
    stream.write_all(text.as_bytes()).await.ok();
    stream.flush().await.ok();
    match does {
        Does::Says(_) => {
            stream.shutdown().await.ok();
        }
        Does::SaysAndStays(_) => std::future::pending().await,
        Does::SaysAndWaits(_) => while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {},
    }
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn get(port: u16, path: &str) -> HTTPGetAction {
    HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::Int(i32::from(port)),
        ..Default::default()
    }
}

fn request(action: &HTTPGetAction) -> Request {
    let host = action.host.as_deref().unwrap_or("127.0.0.1");
    let request = Request::new(action, &Container::default(), host, "probe").unwrap();
    request.speaking(action.protocol.as_deref())
}

fn client() -> Client {
    Client::new(Dialer::new(Arc::new(FakeOutbound::default())))
}

async fn probe(action: &HTTPGetAction) -> Outcome {
    let timeout = Duration::from_secs(5);
    client().probe(request(action), timeout).await
}

#[tokio::test]
async fn the_status_decides() {
    let failed = |status| Outcome::Failure(format!("HTTP probe failed with statuscode: {status}"));
    let warned =
        |body| Outcome::Warning(format!("Probe terminated redirects, Response body: {body}"));
    for (said, outcome) in [
        (answer("200 OK", "fine"), Outcome::Success),
        (answer("204 No Content", ""), Outcome::Success),
        (answer("299 Odd", ""), Outcome::Success),
        (answer("304 Not Modified", ""), warned("")),
        (answer("302 Found", "lost"), warned("lost")),
        (answer("400 Bad Request", ""), failed(400)),
        (answer("500 Internal Server Error", "secret"), failed(500)),
        ("HTTP/1.0 200 OK\r\n\r\nuntil the end".to_owned(), Outcome::Success),
        (answer("200 OK", &"x".repeat(100_000)), Outcome::Success),
    ] {
        let server = Server::says(&said).await;
        assert_eq!(probe(&get(server.port, "/")).await, outcome, "{said:.60}");
    }
}

#[tokio::test]
async fn what_goes_wrong_is_told_in_gos_words() {
    let check = async |says: &str, scheme: &str, expected: &str| {
        let server = Server::says(says).await;
        let mut action = get(server.port, "/x");
        action.scheme = Some(scheme.to_owned());
        let url = format!("{}://127.0.0.1:{}/x", scheme.to_lowercase(), server.port);
        let expected = Outcome::Failure(format!("Get {url:?}: {expected}"));
        assert_eq!(probe(&action).await, expected, "{says}");
    };
    check("", "HTTP", "EOF").await;
    let plain = answer("400 Bad Request", "");
    let no_tls = "http: server gave HTTP response to HTTPS client";
    check(&plain, "HTTPS", no_tls).await;
    let noise = "tls: first record does not look like a TLS handshake";
    check("just some noise, and more of it", "HTTPS", noise).await;
    check("", "HTTPS", "EOF").await;
    let malformed = "net/http: HTTP/1.x transport connection broken: malformed HTTP response";
    check("hello there\r\n\r\n", "HTTP", malformed).await;
}

#[tokio::test]
async fn a_closed_port_is_told_as_in_the_recorded_case() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let text = format!(
        "Get \"http://127.0.0.1:{port}/\": dial tcp 127.0.0.1:{port}: connect: connection refused"
    );
    assert_eq!(probe(&get(port, "/")).await, Outcome::Failure(text));
}

#[tokio::test]
async fn who_keeps_silent_or_breaks_off_is_waited_for_no_longer_than_the_timeout() {
    let timeout = Duration::from_secs(1);
    let silent = Server::start("127.0.0.1", Does::SaysAndStays(String::new()), None).await;
    let outcome = client().probe(request(&get(silent.port, "/")), timeout).await;
    let text = format!(
        "Get \"http://127.0.0.1:{}/\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
        silent.port
    );
    assert_eq!(outcome, Outcome::Failure(text));
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_owned();
    let check = async |does: Does, cause: &str| {
        let server = Server::start("127.0.0.1", does, None).await;
        let outcome = client().probe(request(&get(server.port, "/")), timeout).await;
        let (state, cause) = ("failure", cause.to_owned());
        assert_eq!(outcome, Outcome::Error { state, cause });
    };
    let late =
        "context deadline exceeded (Client.Timeout or context cancellation while reading body)";
    check(Does::SaysAndStays(half.clone()), late).await;
    check(Does::Says(half), "unexpected EOF").await;
}

/// HttpGet: headers, user agent, Accept.
#[tokio::test]
async fn headers_are_sent_as_specified() {
    let check = async |headers: &[(&str, &str)], expected: &[&str], absent: &[&str]| {
        let server = Server::says(&answer("200 OK", "")).await;
        let mut action = get(server.port, "/x?y=z");
        let given = headers.iter().map(|(name, value)| HTTPHeader {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        });
        action.http_headers = Some(given.collect());
        assert_eq!(probe(&action).await, Outcome::Success);
        let asked = server.asked().remove(0);
        assert!(asked.starts_with("GET /x?y=z HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("\r\nConnection: close\r\n"), "{asked}");
        for line in expected {
            let line = line.replace("PORT", &server.port.to_string());
            assert!(asked.contains(&format!("\r\n{line}\r\n")), "{line} in {asked}");
        }
        for name in absent {
            assert!(!asked.contains(&format!("\r\n{name}:")), "{name} in {asked}");
        }
    };
    let usual = ["User-Agent: kube-probe/1.37", "Accept: */*", "Host: 127.0.0.1:PORT"];
    check(&[], &usual, &["Accept-Encoding", "Content-Length"]).await;
    let own = [("X-Muffin", "or"), ("x-muffin", "not"), ("user-agent", "me")];
    check(&own, &["X-Muffin: or", "X-Muffin: not", "User-Agent: me"], &[]).await;
    let empty = [("Accept", ""), ("User-Agent", "")];
    check(&empty, &["Host: 127.0.0.1:PORT"], &["Accept", "User-Agent"]).await;
    check(&[("Host", "muffins.example")], &["Host: muffins.example"], &[]).await;
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_a_failure() {
    let mut action = get(1, "/");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    action.port = IntOrString::Int(i32::from(port));
    action.http_headers = Some(vec![HTTPHeader { name: "a b".to_owned(), value: String::new() }]);
    let cause = "net/http: invalid header field name \"a b\"";
    let text = format!("Get \"http://127.0.0.1:{port}/\": {cause}");
    assert_eq!(probe(&action).await, Outcome::Failure(text));
}

/// HttpGet: redirects.
#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let redirect =
        |to: &str| format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 2\r\n\r\nhm");
    let warning = Outcome::Warning("Probe terminated redirects, Response body: hm".to_owned());
    let well = Server::says(&answer("200 OK", "")).await;
    // The same host on another port.
    let near = Server::says(&redirect(&format!("http://127.0.0.1:{}/there", well.port))).await;
    assert_eq!(probe(&get(near.port, "/here")).await, Outcome::Success);
    let asked = well.asked().remove(0);
    assert!(asked.starts_with("GET /there HTTP/1.1\r\n"), "{asked}");
    let referer = format!("\r\nReferer: http://127.0.0.1:{}/here\r\n", near.port);
    assert!(asked.contains(&referer), "{asked}");
    // Another host, even if it is the same one.
    let far = Server::says(&redirect(&format!("http://localhost:{}/", well.port))).await;
    assert_eq!(probe(&get(far.port, "/")).await, warning);
    let endless = Server::says(&redirect("/again")).await;
    let text = "Get \"/again\": stopped after 10 redirects".to_owned();
    assert_eq!(probe(&get(endless.port, "/")).await, Outcome::Failure(text));
    assert_eq!(endless.asked().len(), 10);
}

pub(crate) fn server_config(protocols: &[&str]) -> rustls::ServerConfig {
    let own = rcgen::generate_simple_self_signed(["wrong.example".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let provider = rustls::crypto::ring::default_provider();
    let mut config = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    config
}

/// HttpGet: TLS is not verified.
#[tokio::test]
async fn certificates_are_not_looked_at() {
    for protocols in [&["http/1.1"][..], &[]] {
        let says = Does::Says(answer("200 OK", "secure"));
        let server = Server::start("127.0.0.1", says, Some(server_config(protocols))).await;
        let mut action = get(server.port, "/");
        action.scheme = Some("HTTPS".to_owned());
        assert_eq!(probe(&action).await, Outcome::Success, "{protocols:?}");
    }
}

/// Answers one request by HTTP/2.
async fn answer_by_http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let service = hyper::service::service_fn(async |request: ::http::Request<_>| {
        let _: &hyper::body::Incoming = request.body();
        let is_ours = request.headers()["user-agent"] == "kube-probe/1.37";
        let status = if is_ours { 201 } else { 500 };
        let response = ::http::Response::builder().status(status);
        response.body(http_body_util::Full::new(hyper::body::Bytes::new()))
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok();
}

#[tokio::test]
async fn secure_servers_may_speak_http2() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = tokio_rustls::TlsAcceptor::from(Arc::new(server_config(&["h2"])));
    tokio::spawn(async move {
        let stream = listener.accept().await.unwrap().0;
        answer_by_http2(tls.accept(stream).await.unwrap()).await;
    });
    let mut action = get(port, "/");
    action.scheme = Some("HTTPS".to_owned());
    assert_eq!(probe(&action).await, Outcome::Success);
}

#[tokio::test]
async fn http2_is_spoken_in_the_clear_to_who_asks_for_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_by_http2(stream));
        }
    });
    let mut action = get(port, "/");
    assert_ne!(probe(&action).await, Outcome::Success);
    action.protocol = Some("HTTP2".to_owned());
    assert_eq!(probe(&action).await, Outcome::Success);
}

#[tokio::test]
async fn ipv6_hosts_are_reached_and_named_in_brackets() {
    let server = Server::start("::1", Does::Says(answer("200 OK", "")), None).await;
    let mut action = get(server.port, "/");
    action.host = Some("::1".to_owned());
    assert_eq!(probe(&action).await, Outcome::Success);
    let asked = server.asked().remove(0);
    let host = format!("\r\nHost: [::1]:{}\r\n", server.port);
    assert!(asked.contains(&host), "{asked}");
}

#[tokio::test]
async fn a_server_that_never_closes_does_not_hold_up_its_probe() {
    for does in [Does::SaysAndStays, Does::SaysAndWaits] {
        let outbound = Arc::new(FakeOutbound::default());
        let client = Client::new(Dialer::new(outbound.clone()));
        let server = Server::start("127.0.0.1", does(answer("200 OK", "ok")), None).await;
        let timeout = Duration::from_secs(5);
        let probe = client.probe(request(&get(server.port, "/")), timeout);
        let in_time = tokio::time::timeout(Duration::from_secs(4), probe).await;
        assert_eq!(in_time, Ok(Outcome::Success));
        // So it is up to the kernel to forget the connection.
        assert_eq!(outbound.n_told(), 1);
    }
}
