//! Certificates change while the server runs; protocol versions are as configured.

use rustls::ProtocolVersion;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::rig::{Authority, Rig, SOON, Wish, read_head, split};
use crate::{OldestTls, TlsOptions};

#[tokio::test]
async fn a_new_certificate_is_shown_from_the_next_handshake_on() {
    let rig = Rig::new(Wish::default()).await;
    let shown = async || {
        let stream = rig.connect(None, &["h2"]).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let before = shown().await;
    assert_eq!(before, shown().await);
    let next = rig.authority.server("node");
    rig.certificate.set_pem(next.certificate.as_bytes(), next.key.as_bytes()).unwrap();
    let after = shown().await;
    assert_ne!(before, after);
    // What cannot be used changes nothing.
    let other = rig.authority.server("node");
    assert!(rig.certificate.set_pem(next.certificate.as_bytes(), other.key.as_bytes()).is_err());
    assert!(rig.certificate.set_pem(b"", b"").is_err());
    assert_eq!(after, shown().await);
    // One file may hold both.
    let both = other.certificate + &other.key;
    rig.certificate.set_pem(both.as_bytes(), both.as_bytes()).unwrap();
}

#[tokio::test]
async fn without_a_certificate_there_is_no_handshake() {
    let rig = Rig::new(Wish { has_certificate: false, ..Wish::default() }).await;
    assert!(rig.connect(None, &["http/1.1"]).await.is_err());
    let first = rig.authority.server("node");
    rig.certificate.set_pem(first.certificate.as_bytes(), first.key.as_bytes()).unwrap();
    assert!(rig.connect(None, &["http/1.1"]).await.is_ok());
}

#[tokio::test]
async fn new_authorities_count_on_open_connections_too() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n";
    stream.write_all(request).await.unwrap();
    assert_eq!(split(&read_head(&mut stream).await).0, 200);
    let mut body = [0; 2];
    stream.read_exact(&mut body).await.unwrap();
    let other = Authority::new("another");
    rig.authorities.set_pem(other.pem.as_bytes()).unwrap();
    stream.write_all(request).await.unwrap();
    assert_eq!(split(&read_head(&mut stream).await).0, 401);
    // Rotation: both count while both are in the file.
    let both = other.pem.clone() + &rig.authority.pem;
    rig.authorities.set_pem(both.as_bytes()).unwrap();
    assert_eq!(rig.ask(Some(&admin), "GET", "/healthz", "").await.0, 200);
    assert!(rig.authorities.set_pem(b"nothing").is_err());
    assert_eq!(rig.ask(Some(&admin), "GET", "/healthz", "").await.0, 200);
}

#[tokio::test]
async fn versions_and_protocols_are_agreed_as_configured() {
    let options = TlsOptions {
        oldest: OldestTls::V13,
        cipher_suites: vec!["TLS_AES_128_GCM_SHA256".to_owned()],
        curves: vec![29],
    };
    let rig = Rig::new(Wish { options, ..Wish::default() }).await;
    let stream = rig.connect(None, &["h2", "http/1.1"]).await.unwrap();
    let session = stream.get_ref().1;
    assert_eq!(session.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(session.alpn_protocol(), Some(&b"h2"[..]));
    let stream = rig.connect(None, &[]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), None);
}

#[tokio::test]
async fn http2_serves_the_same() {
    let rig = Rig::new(Wish::default()).await;
    let admin = rig.admin();
    let stream = rig.connect(Some(&admin), &["h2"]).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let driver = tokio::spawn(connection);
    for (path, expected) in [("/pods", 200), ("/nowhere", 404), ("/healthz", 200)] {
        let request = hyper::Request::get(format!("https://localhost{path}"))
            .body(http_body_util::Empty::<hyper::body::Bytes>::new())
            .unwrap();
        let answer = tokio::time::timeout(SOON, sender.send_request(request)).await;
        assert_eq!(answer.unwrap().unwrap().status().as_u16(), expected, "{path}");
    }
    // An upgrade makes no sense here, and nothing is asked of the runtime for it.
    let request = hyper::Request::post("https://localhost/exec/default/web/main?output=1")
        .body(http_body_util::Empty::<hyper::body::Bytes>::new())
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status().as_u16(), 500);
    assert!(rig.streams.asked().is_empty());
    drop(sender);
    driver.await.unwrap().unwrap();
}
