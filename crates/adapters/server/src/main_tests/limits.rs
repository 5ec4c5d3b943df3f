//! Clients that mean no good: silent, flooding, idle.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::rig::{Rig, SOON, Wish, read_all, split};
use crate::Limits;

fn quick() -> Wish {
    let limits = Limits {
        connections: 2,
        head: Duration::from_millis(300),
        drain: Duration::from_millis(100),
        ..Limits::MAIN
    };
    Wish { limits, ..Wish::default() }
}

#[tokio::test]
async fn idle_connections_of_either_protocol_are_let_go() {
    let rig = Rig::new(quick()).await;
    let mut first = rig.connect(None, &["http/1.1"]).await.unwrap();
    let mut second = rig.connect(None, &["h2"]).await.unwrap();
    // Both slots are taken; this one waits until one is free again.
    let admin = rig.admin();
    assert_eq!(rig.ask(Some(&admin), "GET", "/healthz", "").await.0, 200);
    assert_eq!(read_all(&mut first).await, "");
    let mut rest = Vec::new();
    let end = tokio::time::timeout(SOON, second.read_to_end(&mut rest)).await;
    let _ = end.expect("the server ends an idle HTTP/2 connection");
}

#[tokio::test]
async fn what_is_not_tls_is_not_answered() {
    let rig = Rig::new(Wish::default()).await;
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let end = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await;
    let _ = end.expect("the server ends the connection");
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn floods_of_headers_are_refused() {
    // A small bound, so that what is sent in excess fits into buffers on the way and nobody waits
    // for anybody.
    let limits = Limits { head_bytes: 16 * 1024, ..Limits::MAIN };
    let rig = Rig::new(Wish { limits, ..Wish::default() }).await;
    let flood = "X: y\r\n".repeat(500);
    assert_eq!(rig.ask(None, "GET", "/healthz", &flood).await.0, 431);
    let long = format!("X: {}\r\n", "y".repeat(20 * 1024));
    let mut stream = rig.connect(None, &["http/1.1"]).await.unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\n{long}\r\n");
    // The server may hang up before it has read everything.
    let _ = stream.write_all(request.as_bytes()).await;
    let _ = stream.flush().await;
    let (status, _, _) = split(&read_all(&mut stream).await);
    assert!(status == 431 || status == 0, "{status}");
}

#[tokio::test]
async fn a_flood_of_resets_ends_the_connection() {
    let rig = Rig::new(Wish::default()).await;
    let mut stream = rig.connect(None, &["h2"]).await.unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    // :method GET, :scheme https, :path /, and an authority without Huffman coding.
    let head = [0x82, 0x87, 0x84, 0x41, 1, b'x'];
    for i in 0..5000u32 {
        let id = 2 * i + 1;
        bytes.extend(frame(1, 5, id, &head));
        bytes.extend(frame(3, 0, id, &8u32.to_be_bytes()));
    }
    // The server may hang up in the middle.
    let _ = stream.write_all(&bytes).await;
    let _ = stream.flush().await;
    let mut answer = Vec::new();
    let end = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await;
    let _ = end.expect("the server ends the connection");
    let goaway = frame(7, 0, 0, &[0; 8]);
    assert!(answer.windows(9).any(|it| it[3..9] == goaway[3..9]), "it says goodbye");
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}
