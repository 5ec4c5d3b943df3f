//! The client against a bus of the test's own, which speaks the protocol from the other side.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use ferrolet_ports::{Power as _, PowerNews, Slice, SliceProperty, Slices as _};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    sync::mpsc,
};

use crate::{Connection, Kind, Logind, Message, Systemd, Value, connection::Peer};

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

fn burstable() -> Slice {
    Slice {
        name: "kubepods-burstable.slice".to_owned(),
        parent: "kubepods.slice".to_owned(),
        properties: vec![
            SliceProperty::Number("CPUWeight", 8),
            SliceProperty::Mask("AllowedCPUs", vec![3]),
        ],
    }
}

async fn refuse(peer: &mut Peer, to: &Message, name: &str) {
    let refusal = Message {
        reply_to: Some(to.serial),
        error: Some(format!("org.freedesktop.systemd1.{name}")),
        body: vec![Value::text("why")],
        ..Message::new(Kind::Error)
    };
    peer.send(refusal).await.unwrap();
}

async fn end_job(peer: &mut Peer, job: u32, result: &str) {
    let signal = Message {
        path: Some("/org/freedesktop/systemd1".to_owned()),
        interface: Some("org.freedesktop.systemd1.Manager".to_owned()),
        member: Some("JobRemoved".to_owned()),
        body: vec![
            Value::U32(job),
            Value::Path(format!("/job/{job}")),
            Value::text("kubepods-burstable.slice"),
            Value::text(result),
        ],
        ..Message::new(Kind::Signal)
    };
    peer.send(signal).await.unwrap();
}

/// Takes the next client, and answers until it asks for something else than to be told of signals.
async fn next_call(bus: &FakeBus) -> (Peer, Message) {
    let mut peer = bus.accept().await;
    loop {
        let call = peer.receive().await.unwrap();
        if call.member.as_deref() != Some("AddMatch") {
            return (peer, call);
        }
        answer(&mut peer, &call, Vec::new()).await;
    }
}

fn property(name: &str, value: Value) -> Value {
    Value::Struct(vec![Value::text(name), Value::variant(value)])
}

#[tokio::test]
async fn a_slice_is_made_once_its_job_is_done() {
    let bus = FakeBus::new();
    let systemd = Systemd::at(&bus.socket);
    let slice = burstable();
    let (made, ()) = tokio::join!(systemd.ensure(&slice), async {
        let (mut peer, call) = next_call(&bus).await;
        assert_eq!(call.member.as_deref(), Some("StartTransientUnit"));
        assert_eq!(call.body[0], Value::text("kubepods-burstable.slice"));
        assert_eq!(call.body[1], Value::text("replace"));
        let Value::Array(_, properties) = &call.body[2] else { panic!("{call:?}") };
        let wants = Value::Array("s".to_owned(), vec![Value::text("kubepods.slice")]);
        let mask = Value::Array("y".to_owned(), vec![Value::Byte(3)]);
        for expected in [
            property("Wants", wants),
            property("DefaultDependencies", Value::Bool(false)),
            property("MemoryAccounting", Value::Bool(true)),
            property("CPUWeight", Value::U64(8)),
            property("AllowedCPUs", mask),
        ] {
            assert!(properties.contains(&expected), "{expected:?}");
        }
        // Somebody else's job ends, and ours before the answer is there.
        end_job(&mut peer, 6, "failed").await;
        end_job(&mut peer, 7, "done").await;
        answer(&mut peer, &call, vec![Value::Path("/job/7".to_owned())]).await;
    });
    made.unwrap();
}

#[tokio::test]
async fn a_slice_that_is_there_gets_the_properties_until_the_next_boot() {
    let bus = FakeBus::new();
    let systemd = Systemd::at(&bus.socket);
    let slice = burstable();
    let (made, ()) = tokio::join!(systemd.ensure(&slice), async {
        let (mut peer, call) = next_call(&bus).await;
        refuse(&mut peer, &call, "UnitExists").await;
        let call = peer.receive().await.unwrap();
        assert_eq!(call.member.as_deref(), Some("SetUnitProperties"));
        assert_eq!(call.body[1], Value::Bool(true));
        let Value::Array(_, properties) = &call.body[2] else { panic!("{call:?}") };
        assert_eq!(properties.len(), 2, "{properties:?}");
        answer(&mut peer, &call, Vec::new()).await;
    });
    made.unwrap();
}

#[tokio::test]
async fn what_systemd_does_not_know_is_gone_and_what_it_fails_at_is_told() {
    let bus = FakeBus::new();
    let systemd = Systemd::at(&bus.socket);
    let (stopped, ()) = tokio::join!(systemd.stop("kubepods-podx.slice"), async {
        let (mut peer, call) = next_call(&bus).await;
        assert_eq!(call.member.as_deref(), Some("StopUnit"));
        refuse(&mut peer, &call, "NoSuchUnit").await;
    });
    stopped.unwrap();
    let (stopped, ()) = tokio::join!(systemd.stop("kubepods-podx.slice"), async {
        let (mut peer, call) = next_call(&bus).await;
        answer(&mut peer, &call, vec![Value::Path("/job/1".to_owned())]).await;
        end_job(&mut peer, 1, "timeout").await;
        // It hangs up only after it was heard.
        let _ = peer.receive().await;
    });
    let error = stopped.unwrap_err();
    assert_eq!(
        error.to_string(),
        "stop kubepods-podx.slice by systemd: StopUnit ended with timeout"
    );
    let properties = burstable().properties;
    let (set, ()) = tokio::join!(systemd.set("absent.slice", &properties), async {
        let (mut peer, call) = next_call(&bus).await;
        refuse(&mut peer, &call, "NoSuchUnit").await;
        let _ = peer.receive().await;
    });
    let error = set.unwrap_err().to_string();
    assert!(error.ends_with("org.freedesktop.systemd1.NoSuchUnit: why"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_systemd_that_hangs_holds_nobody_up_for_ever() {
    let bus = FakeBus::new();
    let systemd = Systemd::at(&bus.socket);
    let slice = burstable();
    let served = async {
        let (mut peer, call) = next_call(&bus).await;
        answer(&mut peer, &call, vec![Value::Path("/job/1".to_owned())]).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        made = systemd.ensure(&slice) => {
            let error = made.unwrap_err().to_string();
            assert!(error.contains("the end of StartTransientUnit within 30s"), "{error}");
        }
        () = served => {}
    }
}
