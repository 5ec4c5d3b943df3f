//! Clients that mean no good, against a listener with two slots: whatever they do, the next honest
//! client is served.

use std::time::Duration;

use ferrolet_testkit::FakeStreams;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::limits::frame;
use super::rig::{Identity, Rig, SOON, Wish, read_all, read_head, split};
use crate::Limits;

const SHORT: Duration = Duration::from_millis(300);
/// More than there are slots.
const MANY: usize = 3;

fn two_slots() -> Wish {
    let limits = Limits {
        connections: 2,
        handshake: SHORT,
        head: SHORT,
        write: SHORT,
        guest_write: SHORT,
        half_closed: SHORT,
        head_bytes: 16 * 1024,
        drain: Duration::from_millis(100),
        ..Limits::MAIN
    };
    Wish { limits, ..Wish::default() }
}

/// An honest client is served, as long as it may have to wait for a slot.
async fn is_served(rig: &Rig, admin: &Identity) {
    let asked = rig.ask(Some(admin), "GET", "/healthz", "");
    let (status, body) = tokio::time::timeout(SOON, asked).await.expect("a slot is free again");
    assert_eq!((status, body.as_str()), (200, "ok"));
}

#[tokio::test]
async fn whoever_does_not_finish_loses_the_slot() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    // A head that says that more of it comes.
    let unfinished = [preface, &frame(4, 0, 0, &[]), &frame(1, 1, 1, &[0x82])].concat();
    // A question whose answer the client has no room for: SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let no_room = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let question = frame(1, 5, 1, &[0x82, 0x87, 0x84, 0x41, 1, b'x']);
    let no_room = [preface, &no_room, &question].concat();
    let cases: [(&str, &str, &[u8]); 8] = [
        ("silence", "http/1.1", b""),
        ("half a line", "http/1.1", b"GET /heal"),
        ("half a head", "http/1.1", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"),
        (
            "an announced body",
            "http/1.1",
            b"POST /run/a/b/c HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
        ),
        ("silence in HTTP/2", "h2", b""),
        ("a preface", "h2", preface),
        ("half a head in HTTP/2", "h2", &unfinished),
        ("no room for an answer", "h2", &no_room),
    ];
    for (what, protocol, bytes) in cases {
        let rig = Rig::new(two_slots()).await;
        let admin = rig.admin();
        let mut held = Vec::new();
        for _ in 0..MANY - 1 {
            let mut stream = rig.connect(None, &[protocol]).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.flush().await.unwrap();
            held.push(stream);
        }
        is_served(&rig, &admin).await;
        for stream in &mut held {
            let mut rest = Vec::new();
            let end = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
            assert!(end.is_ok(), "{what}: the connection is still open");
        }
    }
}

#[tokio::test]
async fn whoever_never_greets_loses_the_slot() {
    let rig = Rig::new(two_slots()).await;
    let admin = rig.admin();
    // The beginning of a TLS record, and nothing at all.
    for bytes in [b"\x16\x03\x01\x02\x00\x01".as_slice(), b""] {
        let mut held = Vec::new();
        for _ in 0..MANY - 1 {
            let mut stream = TcpStream::connect(rig.address).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            held.push(stream);
        }
        is_served(&rig, &admin).await;
    }
}

#[tokio::test]
async fn a_head_that_trickles_is_cut_off() {
    let rig = Rig::new(two_slots()).await;
    let mut stream = rig.connect(None, &["http/1.1"]).await.unwrap();
    let trickle = async {
        // Each byte is progress, the head as a whole is not.
        for byte in b"GET /healthz HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat(&b'y')) {
            let sent = async {
                stream.write_all(&[*byte]).await?;
                stream.flush().await
            };
            if sent.await.is_err() {
                return;
            }
            let mut answer = [0; 64];
            let heard = stream.read(&mut answer);
            match tokio::time::timeout(Duration::from_millis(20), heard).await {
                Err(_nothing_yet) => {}
                Ok(_answer_or_end) => return,
            }
        }
    };
    tokio::time::timeout(SOON, trickle).await.expect("the server does not listen for ever");
}

#[tokio::test]
async fn half_closed_clients_end() {
    let rig = Rig::new(two_slots()).await;
    let admin = rig.admin();
    rig.logs.append(&rig.log_path, b"begun\n");
    // Whoever has asked a whole question is answered.
    for (request, expected) in [
        ("", 0),
        ("GET /heal", 0),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("GET /pods HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ("GET /stats/summary HTTP/1.1\r\nHost: x\r\n\r\n", 500),
        ("GET /containerLogs/default/web/main?follow=true HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    ] {
        for _ in 0..MANY {
            let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            // Says goodbye in TLS and closes its half of the connection, and keeps the other one
            // open.
            stream.shutdown().await.unwrap();
            let (status, _, _) = split(&read_all(&mut stream).await);
            // Half a question may be called a bad one.
            let is_good = status == expected || (expected == 0 && status == 400);
            assert!(is_good, "{request:?} is {status}");
        }
        is_served(&rig, &admin).await;
    }
}

#[tokio::test]
async fn a_guest_that_never_reads_is_dropped() {
    let rig = Rig::new(two_slots()).await;
    let admin = rig.admin();
    // More than the kernel buffers for both ends.
    for _ in 0..48 {
        rig.logs.append(&rig.log_path, &[b'x'; 1 << 20]);
    }
    let mut deaf = Vec::new();
    for _ in 0..2 {
        let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
        let path = "/containerLogs/default/web/main";
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(split(&read_head(&mut stream).await).0, 200);
        deaf.push(stream);
    }
    is_served(&rig, &admin).await;
}

#[tokio::test]
async fn bodies_without_end_are_not_read() {
    let rig = Rig::new(two_slots()).await;
    let admin = rig.admin();
    let announced = "Content-Length: 99999999999\r\n";
    let in_pieces = "Transfer-Encoding: chunked\r\n";
    for (line, headers, status) in [
        ("POST /run/default/web/main?cmd=id", announced, 200),
        ("POST /run/default/web/main?cmd=id", in_pieces, 200),
        ("GET /pods", in_pieces, 200),
        ("POST /pods", announced, 405),
        ("PUT /nowhere", in_pieces, 404),
    ] {
        let stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
        let (mut from, mut to) = tokio::io::split(stream);
        let head = format!("{line} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        let piece = format!("10000\r\n{}\r\n", "z".repeat(0x10000));
        let send = async {
            let mut n_sent = 0;
            to.write_all(head.as_bytes()).await.unwrap();
            // Until the server hangs up: what it took by then is what buffers hold.
            while to.write_all(piece.as_bytes()).await.is_ok() && to.flush().await.is_ok() {
                n_sent += piece.len();
                assert!(n_sent < 64 << 20, "{line}: the body is being read");
            }
        };
        let hear = async {
            let mut answer = Vec::new();
            let _ = from.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        let both = async { tokio::join!(send, hear) };
        let ((), answer) = tokio::time::timeout(SOON, both).await.expect("the connection ends");
        // A reset may overtake the answer; a wrong answer it must not be.
        let (got, _, _) = split(&answer);
        assert!(got == status || got == 0, "{line} {headers}: {answer}");
        is_served(&rig, &admin).await;
    }
}

/// RUSTSEC-2024-0332: a head that goes on and on.
#[tokio::test]
async fn a_flood_of_continuations_ends_the_connection() {
    let rig = Rig::new(Wish::default()).await;
    let stream = rig.connect(None, &["h2"]).await.unwrap();
    let (mut from, mut to) = tokio::io::split(stream);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frame(1, 0, 1, &[0x82, 0x87, 0x84]));
    // A header that is neither indexed nor compressed: `a: 4000 times b`.
    let value = [b'b'; 4000];
    let line = [[0u8, 1, b'a', 0x7f, 0xa1, 0x1e].as_slice(), &value].concat();
    let send = async {
        let _ = to.write_all(&bytes).await;
        for _ in 0..5000 {
            if to.write_all(&frame(9, 0, 1, &line)).await.is_err() || to.flush().await.is_err() {
                return true;
            }
        }
        false
    };
    let hear = async {
        let mut answer = Vec::new();
        let _ = from.read_to_end(&mut answer).await;
        answer
    };
    let both = async { tokio::join!(send, hear) };
    let (was_cut_off, answer) =
        tokio::time::timeout(SOON, both).await.expect("the server ends the connection");
    let says_goodbye = answer.windows(9).any(|it| it[3] == 7 && it[4..9] == [0; 5]);
    assert!(was_cut_off || says_goodbye, "20 MB of head were taken");
}

#[tokio::test]
async fn upgrades_that_fail_half_way_leave_nothing() {
    let half_head = "HTTP/1.1 101 Switching Pro";
    let whole =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    let nonsense = "\x16\x03\x01 not HTTP\r\n\r\n";
    // What the runtime says before it hangs up, and what the client hears.
    for (answer, expected) in [("", 500), (half_head, 500), (nonsense, 500), (whole, 101)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_gone) => break,
                    }
                }
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let rig = Rig::new(Wish {
            streams: FakeStreams::new(Ok(format!("http://{address}/token"))),
            ..two_slots()
        })
        .await;
        let admin = rig.admin();
        let request = "POST /exec/default/web/main?output=1 HTTP/1.1\r\nHost: x\r\n\
                       Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
        for _ in 0..MANY {
            let mut stream = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let (status, _, _) = split(&read_all(&mut stream).await);
            assert_eq!(status, expected, "{answer:?}");
            // This one does not wait to hear.
            let mut gone = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
            gone.write_all(request.as_bytes()).await.unwrap();
            drop(gone);
        }
        is_served(&rig, &admin).await;
        runtime.abort();
    }
}

/// Limits as they are, but for a few seats: whoever holds connections open holds them for a minute.
fn few_seats() -> Wish {
    let limits =
        Limits { connections: 2, strangers: 4, drain: Duration::from_millis(100), ..Limits::MAIN };
    Wish { limits, ..Wish::default() }
}

/// Shorter than any time that a connection is kept for.
const AT_ONCE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn strangers_who_hold_every_seat_do_not_keep_anybody_out() {
    let rig = Rig::new(few_seats()).await;
    let admin = rig.admin();
    // Somebody who was let in stays, whatever comes.
    let mut guest = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
    let request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    guest.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(split(&read_head(&mut guest).await).0, 200);
    let mut bare = Vec::new();
    let mut greeted = Vec::new();
    for n in 0..12 {
        // Some never greet, some greet and say nothing, some begin to ask.
        if n % 3 == 0 {
            bare.push(TcpStream::connect(rig.address).await.unwrap());
            continue;
        }
        let mut stream = rig.connect(None, &["http/1.1"]).await.unwrap();
        if n % 3 == 1 {
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHo").await;
        }
        greeted.push(stream);
        let asked = rig.ask(Some(&admin), "GET", "/healthz", "");
        let (status, _) = tokio::time::timeout(AT_ONCE, asked).await.expect("there is a seat");
        assert_eq!(status, 200);
    }
    guest.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(split(&read_head(&mut guest).await).0, 200);
}

#[tokio::test]
async fn whoever_is_not_let_in_has_little_time() {
    let mut wish = few_seats();
    wish.limits.introductions = SHORT;
    let rig = Rig::new(wish).await;
    let admin = rig.admin();
    let mut guest = rig.connect(Some(&admin), &["http/1.1"]).await.unwrap();
    let mut stranger = rig.connect(None, &["http/1.1"]).await.unwrap();
    let request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    for stream in [&mut guest, &mut stranger] {
        stream.write_all(request.as_bytes()).await.unwrap();
    }
    assert_eq!(split(&read_head(&mut guest).await).0, 200);
    let refused = tokio::time::timeout(AT_ONCE, read_all(&mut stranger)).await;
    assert_eq!(split(&refused.expect("the connection ends")).0, 401);
    guest.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(split(&read_head(&mut guest).await).0, 200);
}
