//! Real sockets, a client that speaks bytes, and short limits instead of paused time (sockets do
//! not pause).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferrolet_ports::{HealthCheck, PodsView};
use ferrolet_types::Pod;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{Limits, Listener, Server, Views, router};

struct Pods(Vec<Pod>);

impl PodsView for Pods {
    fn pods(&self) -> Vec<Pod> {
        self.0.clone()
    }
}

struct Check(&'static str, Result<(), String>);

impl HealthCheck for Check {
    fn name(&self) -> &'static str {
        self.0
    }

    fn check(&self) -> Result<(), String> {
        self.1.clone()
    }
}

const QUICK: Limits = Limits {
    half_closed: Duration::from_secs(1),
    connections: 4,
    strangers: 4,
    introductions: Duration::from_secs(10),
    handshake: Duration::from_millis(300),
    head: Duration::from_millis(300),
    write: Duration::from_millis(300),
    guest_write: Duration::from_millis(300),
    head_bytes: 8192,
    headers: 20,
    drain: Duration::from_millis(300),
};

/// Longer than any limit above, shorter than anybody's patience.
const SOON: Duration = Duration::from_secs(10);

struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

async fn serve(listener: Listener, pods: Vec<Pod>, checks: Vec<Check>, limits: Limits) -> Running {
    let checks = checks.into_iter();
    let checks = checks.map(|check| Arc::new(check) as Arc<dyn HealthCheck>);
    let views = Views { pods: Arc::new(Pods(pods)), checks: checks.collect() };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::bind(any).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async { stopped.await.unwrap_or(()) };
    let task = tokio::spawn(server.serve(router(listener, views), limits, shutdown));
    Running { address, stop: Some(stop), task }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends one request and reads to the end of the connection: status line, and what follows the
    /// head.
    async fn ask(&self, method: &str, path: &str) -> (String, String) {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        self.send(request.as_bytes()).await
    }

    async fn send(&self, request: &[u8]) -> (String, String) {
        let mut stream = self.connect().await;
        stream.write_all(request).await.unwrap();
        let answer = read_all(&mut stream).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.lines().next().unwrap();
        (status.to_owned(), body.to_owned())
    }
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes)).await;
    // A server that closes on bytes it never read resets the connection: an end like any other.
    let _ = read.expect("the server ends the connection in time");
    String::from_utf8(bytes).unwrap()
}

/// Joins the pieces of a chunked body.
fn joined(body: &str) -> String {
    let (mut rest, mut text) = (body, String::new());
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        text += &tail[..size];
        rest = &tail[size + 2..];
    }
    text
}

fn pod(name: &str) -> Pod {
    let text = serde_json::json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        "status": {"phase": "Running"},
    });
    Arc::new(serde_json::from_value(text).unwrap())
}

#[tokio::test]
async fn health_answers_in_upstreams_words() {
    let good = || vec![Check("syncloop", Ok(()))];
    let bad = || vec![Check("syncloop", Err("stuck for 7m".to_owned()))];
    let check = async |checks: Vec<Check>, path: &str, status: &str, body: &str| {
        let server = serve(Listener::ReadOnly, Vec::new(), checks, QUICK).await;
        let expected = (format!("HTTP/1.1 {status}"), body.to_owned());
        assert_eq!(server.ask("GET", path).await, expected, "{path}");
    };
    let (fine, broken) = ("200 OK", "500 Internal Server Error");
    check(good(), "/healthz", fine, "ok").await;
    check(good(), "/healthz/ping", fine, "ok").await;
    check(good(), "/healthz/syncloop", fine, "ok").await;
    let all = "[+]ping ok\n[+]syncloop ok\nhealthz check passed\n";
    check(good(), "/healthz?verbose", fine, all).await;
    check(good(), "/healthz?verbose=1", fine, all).await;
    let failed = "[+]ping ok\n[-]syncloop failed: stuck for 7m\nhealthz check failed\n";
    check(bad(), "/healthz", broken, failed).await;
    check(bad(), "/healthz?verbose", broken, failed).await;
    let one = "internal server error: stuck for 7m\n";
    check(bad(), "/healthz/syncloop", broken, one).await;
    check(bad(), "/healthz?exclude=syncloop", fine, "ok").await;
    let excluded = "[+]ping ok\n[+]syncloop excluded: ok\nwarn: some health checks cannot be \
                    excluded: no matches for \"a\",\"b\"\nhealthz check passed\n";
    let path = "/healthz?verbose&exclude=b&exclude=syncloop&exclude=a";
    check(bad(), path, fine, excluded).await;
    let missing = "404 page not found\n";
    check(good(), "/healthz/nobody", "404 Not Found", missing).await;
    check(good(), "/", "404 Not Found", missing).await;
}

#[tokio::test]
async fn the_health_port_has_nothing_but_a_ping() {
    let bad = vec![Check("syncloop", Err("stuck for 7m".to_owned()))];
    let server = serve(Listener::Health, vec![pod("a")], bad, QUICK).await;
    let check = async |path: &str, status: &str, body: &str| {
        let expected = (format!("HTTP/1.1 {status}"), body.to_owned());
        assert_eq!(server.ask("GET", path).await, expected, "{path}");
    };
    check("/healthz", "200 OK", "ok").await;
    let all = "[+]ping ok\nhealthz check passed\n";
    check("/healthz?verbose", "200 OK", all).await;
    check("/healthz/ping", "200 OK", "ok").await;
    let paths = [
        "/healthz/syncloop",
        "/healthz/log",
        "/",
        "/pods",
        "/metrics",
        "/livez",
        "/readyz",
        "/healthz/",
    ];
    for path in paths {
        check(path, "404 Not Found", "404 page not found\n").await;
    }
}

#[tokio::test]
async fn pods_are_a_list_as_upstream_writes_it() {
    for n_pods in [0, 1, 3, 500] {
        let pods: Vec<Pod> = (0..n_pods).map(|i| pod(&format!("p{i}"))).collect();
        let server = serve(Listener::ReadOnly, pods, Vec::new(), QUICK).await;
        let (status, body) = server.ask("GET", "/pods").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        let text = joined(&body);
        let head = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#;
        assert!(text.starts_with(head) && text.ends_with("]}\n"));
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), n_pods);
        for (i, item) in items.iter().enumerate() {
            let keys: Vec<&String> = item.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["metadata", "spec", "status"]);
            assert_eq!(item["metadata"]["name"], format!("p{i}"));
            assert_eq!(item["status"]["phase"], "Running");
        }
    }
}

#[tokio::test]
async fn only_reading_is_allowed() {
    let server = serve(Listener::ReadOnly, vec![pod("a")], Vec::new(), QUICK).await;
    for (path, expected) in [
        ("/pods", "HTTP/1.1 405 Method Not Allowed"),
        // Health is told whatever the method, as upstream does.
        ("/healthz", "HTTP/1.1 200 OK"),
        ("/healthz/ping", "HTTP/1.1 200 OK"),
    ] {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "JUNK"] {
            let (status, _) = server.ask(method, path).await;
            assert_eq!(status, expected, "{method} {path}");
        }
        let (status, body) = server.ask("HEAD", path).await;
        assert_eq!((status.as_str(), body.as_str()), (expected, ""));
    }
    let mut stream = server.connect().await;
    let request = b"POST /pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    assert!(read_all(&mut stream).await.contains("allow: GET\r\n"));
    // As upstream's: what is not done here is named, and what is not known is not.
    let (status, body) = server.ask("POST", "/exec/default/a/main").await;
    assert_eq!(status, "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(body, "Debug endpoints are disabled.\n");
    for (path, expected) in [
        ("/configz", "404 page not found\n"),
        ("/pods/a", "404: Page Not Found"),
        ("/stats/a", "404: Page Not Found"),
    ] {
        let (status, body) = server.ask("GET", path).await;
        assert_eq!(status, "HTTP/1.1 404 Not Found", "{path}");
        assert_eq!(body, expected, "{path}");
    }
}

#[tokio::test]
async fn junk_and_excess_are_refused() {
    let server = serve(Listener::Health, Vec::new(), Vec::new(), QUICK).await;
    let (status, _) = server.send(b"\x16\x03\x01 this is not HTTP\r\n\r\n").await;
    assert_eq!(status, "HTTP/1.1 400 Bad Request");
    let long = format!("GET /healthz HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(20_000));
    let (status, _) = server.send(long.as_bytes()).await;
    assert_eq!(status, "HTTP/1.1 431 Request Header Fields Too Large");
    let many = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(50));
    let (status, _) = server.send(many.as_bytes()).await;
    assert_eq!(status, "HTTP/1.1 431 Request Header Fields Too Large");
    // A body that is announced and never comes is not waited for.
    let body = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n";
    let (status, text) = server.send(body).await;
    assert_eq!((status.as_str(), text.as_str()), ("HTTP/1.1 200 OK", "ok"));
}

#[tokio::test]
async fn slow_clients_hold_up_nobody_for_long() {
    let server = serve(Listener::Health, Vec::new(), Vec::new(), QUICK).await;
    let mut slow = Vec::new();
    for _ in 0..QUICK.connections {
        let mut stream = server.connect().await;
        stream.write_all(b"GET /healthz HT").await.unwrap();
        slow.push(stream);
    }
    // All slots are taken; this one gets its turn once the slow ones are thrown out.
    let (status, _) = server.ask("GET", "/healthz").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    for mut stream in slow {
        assert_eq!(read_all(&mut stream).await, "");
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let pods: Vec<Pod> = (0..200_000).map(|i| pod(&format!("p{i}"))).collect();
    let limits = Limits { connections: 1, ..QUICK };
    let server = serve(Listener::ReadOnly, pods, Vec::new(), limits).await;
    let mut deaf = server.connect().await;
    let request = b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n";
    deaf.write_all(request).await.unwrap();
    let mut first = [0; 16];
    deaf.read_exact(&mut first).await.unwrap();
    // The only slot is free again although the deaf client keeps its end open.
    let (status, _) = server.ask("GET", "/healthz").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    drop(deaf);
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let server = serve(Listener::Health, Vec::new(), Vec::new(), QUICK).await;
    let mut stream = server.connect().await;
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(&request.repeat(3)).await.unwrap();
    let answers = read_all(&mut stream).await;
    assert_eq!(answers.matches("200 OK").count(), 3, "then idle, then closed");
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_frees_the_port() {
    let limits = Limits { head: Duration::from_secs(60), ..QUICK };
    let mut server = serve(Listener::Health, Vec::new(), Vec::new(), limits).await;
    let mut idle = server.connect().await;
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    idle.write_all(request).await.unwrap();
    let mut first = [0; 15];
    idle.read_exact(&mut first).await.unwrap();
    server.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(SOON, &mut server.task).await.expect("shutdown ends").unwrap();
    assert!(read_all(&mut idle).await.ends_with("ok"));
    Server::bind(server.address).await.expect("the port is free");
}

#[tokio::test]
async fn a_taken_port_is_an_error_that_names_it() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let first = Server::bind(any).await.unwrap();
    let Err(error) = Server::bind(first.address()).await else {
        panic!("two cannot have one port");
    };
    assert_eq!(error.to_string(), format!("listen on {}", first.address()));
    assert!(std::error::Error::source(&error).is_some());
}
