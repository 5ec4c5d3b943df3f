//! Streams into pods: a runtime's streaming server that is a fake, and clients that upgrade.

use std::net::SocketAddr;
use std::time::Duration;

use ferrolet_ports::{RuntimeError, RuntimeErrorKind};
use ferrolet_testkit::FakeStreams;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::rig::{Rig, SOON, Wish, read_all, read_head, split};
use super::runtime::runtime;

/// A streaming server that answers each request with the given head, and then echoes.
async fn backend(answer: &'static str) -> (SocketAddr, JoinHandle<String>) {
    let echo = |mut stream: TcpStream| async move {
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    };
    runtime(answer.to_owned(), echo).await
}

const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

fn wish(address: SocketAddr) -> Wish {
    Wish {
        streams: FakeStreams::new(Ok(format!("http://{address}/exec/token"))),
        ..Wish::default()
    }
}

fn upgrade(method: &str, path: &str, protocol: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nAuthorization: Bearer secret\r\nCookie: secret\r\n\r\n"
    )
}

#[tokio::test]
async fn an_agreed_upgrade_carries_bytes_both_ways() {
    for protocol in ["SPDY/3.1", "websocket"] {
        let (address, backend) = backend(AGREED).await;
        let rig = Rig::new(wish(address)).await;
        let admin = rig.admin();
        let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
        let path = "/exec/default/web/main?command=ls&command=-l&input=1&output=1&error=1&tty=1";
        let request = upgrade("POST", path, protocol);
        stream.write_all(request.as_bytes()).await.unwrap();
        let (status, head, _) = split(&read_head(&mut stream).await);
        assert_eq!(status, 101);
        assert!(head.to_ascii_lowercase().contains("upgrade: spdy/3.1"), "{head}");
        assert!(head.contains("v4.channel.k8s.io"), "{head}");
        let sent: Vec<u8> = (0..200_000u32).map(|i| i.to_le_bytes()[0]).collect();
        let (mut from, mut to) = tokio::io::split(stream);
        let echo = async {
            let mut heard = vec![0; sent.len()];
            from.read_exact(&mut heard).await.unwrap();
            heard
        };
        let send = async {
            to.write_all(&sent).await.unwrap();
            // TLS keeps what the socket did not take at once.
            to.flush().await.unwrap();
        };
        let ((), heard) =
            tokio::time::timeout(SOON, async { tokio::join!(send, echo) }).await.unwrap();
        assert!(heard == sent, "nothing is lost");
        drop((from, to));
        let head = tokio::time::timeout(SOON, backend).await.unwrap().unwrap();
        assert!(head.starts_with("POST /exec/token HTTP/1.1\r\n"), "{head}");
        assert!(head.to_ascii_lowercase().contains("connection: upgrade"), "{head}");
        assert!(!head.to_ascii_lowercase().contains("secret"), "credentials stay here: {head}");
        let asked = format!("exec {} [\"ls\", \"-l\"] tio", rig.container);
        assert_eq!(rig.streams.asked(), [asked]);
    }
}

#[tokio::test]
async fn attach_and_port_forward_ask_for_the_right_thing() {
    let check = async |path: &str, protocol: &str, asked: &dyn Fn(&Rig) -> String| {
        let (address, _backend) = backend(AGREED).await;
        let rig = Rig::new(wish(address)).await;
        let admin = rig.admin();
        let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
        stream.write_all(upgrade("GET", path, protocol).as_bytes()).await.unwrap();
        assert_eq!(split(&read_head(&mut stream).await).0, 101, "{path}");
        assert_eq!(rig.streams.asked(), [asked(&rig)]);
    };
    // The terminal is the container's, not the client's wish.
    check("/attach/default/web/main?output=1&tty=1", "SPDY/3.1", &|rig| {
        format!("attach {} o", rig.container)
    })
    .await;
    check("/attach/default/web/uid-web/main?input=1", "SPDY/3.1", &|rig| {
        format!("attach {} i", rig.container)
    })
    .await;
    check("/portForward/default/web", "SPDY/3.1", &|rig| format!("forward {} []", rig.sandbox))
        .await;
    check("/portForward/default/web/uid-web?port=80,81", "websocket", &|rig| {
        format!("forward {} [80, 81]", rig.sandbox)
    })
    .await;
}

#[tokio::test]
async fn an_upgrade_that_fails_half_way_is_an_answer_and_the_end() {
    let check = async |answer: &'static str, status: u16, words: &str| {
        let (address, _backend) = backend(answer).await;
        let rig = Rig::new(wish(address)).await;
        let admin = rig.admin();
        let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
        let path = "/exec/default/web/main?output=1";
        // A second request rides along: it must not reach anybody as part of a tunnel
        // (CVE-2018-1002105).
        let request =
            upgrade("POST", path, "SPDY/3.1") + "GET /pods HTTP/1.1\r\nHost: node\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let whole = read_all(&mut stream).await;
        let (got, head, body) = split(&whole);
        assert_eq!((got, body.as_str()), (status, words), "{head}");
        assert!(!head.to_ascii_lowercase().contains("location"), "{head}");
        assert_eq!(whole.matches("HTTP/1.1 ").count(), 1, "the connection ends: {whole}");
    };
    check("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", 404, "gone").await;
    let moved = "HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n";
    check(moved, 500, "invalid upgrade response: status code 302\n").await;
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        500,
        "invalid upgrade response: status code 200\n",
    )
    .await;
}

#[tokio::test]
async fn what_cannot_be_streamed_is_refused_in_upstreams_words() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let check = async |path: &str, headers: &str, status: u16, words: &str| {
        let got = rig.ask(Some(&admin), "POST", path, headers).await;
        assert_eq!(got, (status, words.to_owned()), "{path}");
    };
    let none = "you must specify at least 1 of stdin, stdout, stderr";
    check("/exec/default/web/main", "", 400, none).await;
    check("/attach/default/web/main", "", 400, none).await;
    check("/exec/default/nope/main?output=1", "", 404, "pod does not exist").await;
    check("/exec/default/web/nope?output=1", "", 500, "container not found (\"nope\")").await;
    check("/exec/default/web/other-uid/main?output=1", "", 500, "container not found (\"main\")")
        .await;
    check(
        "/attach/default/web/nope?output=1",
        "",
        500,
        "container nope not found in pod web_default",
    )
    .await;
    check("/portForward/default/nope", "", 404, "pod does not exist").await;
    check("/portForward/default/web/other-uid", "", 404, "pod not found").await;
    let websocket = "Upgrade: websocket\r\n";
    check("/portForward/default/web", websocket, 400, "query parameter \"port\" is required").await;
    let required = "Upgrade request required\n";
    check("/exec/default/web/main?output=1", "", 500, required).await;
    check("/portForward/default/web", "", 500, required).await;
    check("/run/default/nope/main?cmd=id", "", 404, "pod does not exist").await;
    check("/run/default/web/nope?cmd=id", "", 500, "container not found (\"nope\")").await;
    assert!(rig.streams.asked().is_empty(), "nothing was prepared for any of them");
}

#[tokio::test]
async fn a_runtime_that_refuses_gives_its_own_words() {
    let check = async |kind: RuntimeErrorKind, status: u16, words: &str| {
        let error = RuntimeError { call: "Exec", kind, message: "no".to_owned() };
        let streams = FakeStreams::new(Err(error));
        let rig = Rig::new(Wish { streams, ..Wish::default() }).await;
        let admin = rig.admin();
        let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
        let request = upgrade("POST", "/exec/default/web/main?output=1", "SPDY/3.1");
        let request = request.replace("Connection: Upgrade", "Connection: Upgrade, close");
        stream.write_all(request.as_bytes()).await.unwrap();
        let (got, _, body) = split(&read_all(&mut stream).await);
        assert_eq!((got, body.as_str()), (status, words));
    };
    check(RuntimeErrorKind::NotFound, 404, "rpc error: code = NotFound desc = no").await;
    check(
        RuntimeErrorKind::ResourceExhausted,
        429,
        "rpc error: code = ResourceExhausted desc = no",
    )
    .await;
    check(RuntimeErrorKind::Unavailable, 500, "rpc error: code = Unavailable desc = no").await;
}

#[tokio::test]
async fn a_silent_stream_ends_after_the_idle_time() {
    let (address, _backend) = backend(AGREED).await;
    let wish = Wish { stream_idle_timeout: Duration::from_millis(200), ..wish(address) };
    let rig = Rig::new(wish).await;
    let admin = rig.admin();
    let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
    let request = upgrade("POST", "/exec/default/web/main?output=1", "SPDY/3.1");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(split(&read_head(&mut stream).await).0, 101);
    assert_eq!(read_all(&mut stream).await, "");
}

#[tokio::test]
async fn run_answers_with_what_the_command_wrote() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let (status, _) =
        rig.ask(Some(&admin), "POST", "/run/default/web/main?cmd=echo%20hi", "").await;
    assert_eq!(status, 200);
}
