//! The client against a bus of the test's own, which speaks the protocol from the other side.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use ferrolet_ports::{Power as _, PowerNews};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    sync::mpsc,
};

use crate::{Connection, Kind, Logind, Message, Value, connection::Peer};

/// Says `OK` to everybody and gives each call to the test.
struct FakeBus {
    _held: TempDir,
    socket: PathBuf,
    listener: UnixListener,
}

impl FakeBus {
    fn new() -> Self {
        let held = TempDir::new().unwrap();
        let socket = held.path().join("bus");
        let listener = UnixListener::bind(&socket).unwrap();
        Self { _held: held, socket, listener }
    }

    /// The next client, after the handshake.
    async fn accept(&self) -> Peer {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        expect(&mut stream, "\0AUTH EXTERNAL ").await;
        stream.write_all(b"OK 1234\r\n").await.unwrap();
        expect(&mut stream, "NEGOTIATE_UNIX_FD").await;
        stream.write_all(b"AGREE_UNIX_FD\r\n").await.unwrap();
        expect(&mut stream, "BEGIN").await;
        let mut peer = Peer::new(stream);
        let hello = peer.receive().await.unwrap();
        assert_eq!(hello.member.as_deref(), Some("Hello"));
        answer(&mut peer, &hello, vec![Value::text(":1.7")]).await;
        peer
    }
}

async fn expect(stream: &mut UnixStream, start: &str) {
    let mut line = String::new();
    while !line.ends_with("\r\n") {
        line.push(char::from(stream.read_u8().await.unwrap()));
    }
    assert!(line.starts_with(start), "{line:?}");
}

async fn answer(peer: &mut Peer, to: &Message, body: Vec<Value>) {
    let reply = Message { reply_to: Some(to.serial), body, ..Message::new(Kind::Reply) };
    peer.send(reply).await.unwrap();
}

async fn say(peer: &mut Peer, goes_down: Value) {
    let signal = Message {
        path: Some("/org/freedesktop/login1".to_owned()),
        interface: Some("org.freedesktop.login1.Manager".to_owned()),
        member: Some("PrepareForShutdown".to_owned()),
        body: vec![goes_down],
        ..Message::new(Kind::Signal)
    };
    peer.send(signal).await.unwrap();
}

#[tokio::test]
async fn logind_is_asked_to_wait_and_heard() {
    let bus = FakeBus::new();
    let drop_ins = bus.socket.with_file_name("drop-ins");
    let logind = Logind::at(&bus.socket, &drop_ins);
    let (locks, mut taken) = mpsc::unbounded_channel();
    let served = async {
        let mut peer = bus.accept().await;
        let mut delay = 5_000_000_u64;
        loop {
            let call = peer.receive().await.unwrap();
            match call.member.as_deref().unwrap() {
                "AddMatch" => answer(&mut peer, &call, Vec::new()).await,
                "Get" => {
                    answer(&mut peer, &call, vec![Value::variant(Value::U64(delay))]).await;
                }
                "KillUnit" => {
                    delay = 30_000_000;
                    answer(&mut peer, &call, Vec::new()).await;
                }
                "Inhibit" => {
                    assert_eq!(call.body[0], Value::text("shutdown"));
                    assert_eq!(call.body[3], Value::text("delay"));
                    // A signal that overtakes the answer is not lost.
                    say(&mut peer, Value::Bool(true)).await;
                    let (kept, given) = rustix::pipe::pipe().unwrap();
                    locks.send(kept).unwrap();
                    let reply = Message {
                        reply_to: Some(call.serial),
                        body: vec![Value::Descriptor(0)],
                        descriptors: vec![given],
                        ..Message::new(Kind::Reply)
                    };
                    peer.send(reply).await.unwrap();
                    say(&mut peer, Value::text("nonsense")).await;
                    say(&mut peer, Value::Bool(false)).await;
                }
                other => panic!("{other}"),
            }
        }
    };
    let asked = async {
        let mut power = logind.listen().await.unwrap();
        assert_eq!(power.longest_delay().await.unwrap(), Duration::from_secs(5));
        power.ask_for_delay(Duration::from_secs(30)).await.unwrap();
        assert_eq!(power.longest_delay().await.unwrap(), Duration::from_secs(30));
        let text = std::fs::read_to_string(drop_ins.join("99-kubelet.conf")).unwrap();
        assert!(text.ends_with("InhibitDelayMaxSec=30\n"), "{text}");
        power.hold_up().await.unwrap();
        let lock: OwnedFd = taken.recv().await.unwrap();
        assert!(!is_ended(&lock), "the lock is held");
        assert_eq!(power.next().await.unwrap(), PowerNews::GoesDown);
        assert_eq!(power.next().await.unwrap(), PowerNews::StaysUp);
        power.release();
        assert!(is_ended(&lock), "the lock is let go");
    };
    tokio::select! {
        () = served => {}
        () = asked => {}
    }
}

/// True when nobody has the other end any more.
fn is_ended(pipe: &OwnedFd) -> bool {
    rustix::io::ioctl_fionbio(pipe, true).unwrap();
    let mut byte = [0];
    matches!(rustix::io::read(pipe, &mut byte), Ok(0))
}

#[tokio::test]
async fn a_bus_that_is_not_there_or_hangs_up_is_an_error() {
    let error = Connection::open(Path::new("/nowhere/bus")).await.unwrap_err();
    assert_eq!(error.to_string(), "connect to the bus at /nowhere/bus");
    let bus = FakeBus::new();
    let (opened, ()) = tokio::join!(Connection::open(&bus.socket), async {
        drop(bus.listener.accept().await.unwrap());
    });
    assert!(opened.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_never_answers_is_given_up() {
    let bus = FakeBus::new();
    // It takes the connection and says nothing.
    let error = Connection::open(&bus.socket).await.unwrap_err();
    assert_eq!(error.to_string(), "the connection to the bus broke");
}
