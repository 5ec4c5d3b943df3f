//! Calls over a real socket, answered by a peer that the test plays.

use std::os::fd::{AsFd, OwnedFd};

use ferrolet_runtime_protocol::message::{
    Answer, Empty, Event, Exec, Exited, Failed, HelloAnswer, Request, SnapshotAnswer, Started,
};
use ferrolet_runtime_protocol::packet::Header;
use ferrolet_runtime_protocol::record::Exit;
use ferrolet_runtime_sys::channel::{self, Packet, ReceiveError};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use crate::{CallError, ConnectError, Greeting, Monitor, Stdio};

/// The monitor's end.
struct Peer(UnixDatagram);

impl Peer {
    async fn next(&self) -> (Request, u32) {
        loop {
            self.0.readable().await.unwrap();
            let received = self.0.try_io(Interest::READABLE, || {
                match channel::receive(&self.0, &mut [0; channel::BUFFER]) {
                    Err(ReceiveError::Socket(Errno::AGAIN)) => Err(Errno::AGAIN.into()),
                    received => Ok(received.unwrap()),
                }
            });
            if let Ok(Packet { header, body, .. }) = received {
                return (Request::decode(header.kind, &body).unwrap(), header.id);
            }
        }
    }

    fn answer(&self, id: u32, answer: &Answer, descriptors: &[&OwnedFd]) {
        let header = Header { is_in_memfd: false, kind: answer.kind(), id };
        let descriptors: Vec<_> = descriptors.iter().map(|it| it.as_fd()).collect();
        channel::send(&self.0, header, &answer.encode(), &descriptors).unwrap();
    }

    fn tell(&self, event: &Event) {
        let header = Header { is_in_memfd: false, kind: event.kind(), id: 0 };
        channel::send(&self.0, header, &event.encode(), &[]).unwrap();
    }
}

async fn connected() -> (Monitor, Greeting, Peer) {
    let place = tempfile::tempdir().unwrap();
    let directory = std::fs::File::open(place.path()).unwrap();
    let listener = channel::listen(&directory, "monitor.sock").unwrap();
    let serve = async {
        let listener = UnixDatagram::from_std(listener.into()).unwrap();
        listener.readable().await.unwrap();
        let accepted = channel::accept(&listener).unwrap();
        let peer = Peer(UnixDatagram::from_std(accepted.into()).unwrap());
        let (_, id) = peer.next().await;
        let hello = HelloAnswer { protocol: 1, sandbox: "pod".into(), ..Default::default() };
        peer.answer(id, &Answer::Hello(hello), &[]);
        peer
    };
    let (connected, peer) = tokio::join!(Monitor::connect(place.path()), serve);
    let (monitor, greeting) = connected.unwrap();
    (monitor, greeting, peer)
}

fn descriptor() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

#[tokio::test]
async fn answers_find_their_questions_in_any_order() {
    let (monitor, greeting, peer) = connected().await;
    assert_eq!(greeting.hello.sandbox, "pod");
    let serve = async {
        let (_, first) = peer.next().await;
        let (_, second) = peer.next().await;
        peer.answer(second, &Answer::Done(Empty {}), &[]);
        peer.answer(first, &Answer::Snapshot(SnapshotAnswer::default()), &[]);
    };
    let (snapshot, closed, ()) =
        tokio::join!(monitor.snapshot(), monitor.close_stdin("web"), serve);
    assert_eq!(snapshot.unwrap().0, SnapshotAnswer::default());
    closed.unwrap();
}

#[tokio::test]
async fn a_command_has_its_streams_and_its_end() {
    let (monitor, _greeting, peer) = connected().await;
    let exec = Exec { container: "web".into(), command: 9, stdout: true, ..Default::default() };
    let serve = async {
        let (_, id) = peer.next().await;
        let started = Started { pid: 5, started_at: 6 };
        peer.answer(id, &Answer::Started(started), &[&descriptor(), &descriptor()]);
        let exit = Exit { code: 3, finished_at: 7, ..Exit::default() };
        let exited = Exited { container: "web".into(), command: 9, exit: Some(exit) };
        peer.tell(&Event::Exited(exited));
    };
    let (command, ()) = tokio::join!(monitor.exec(exec), serve);
    let command = command.unwrap();
    let Stdio::Pipes { stdin: None, stdout: Some(_), stderr: None } = command.stdio else {
        panic!("{:?}", command.stdio)
    };
    assert_eq!((command.started.pid, command.exit.wait().await.unwrap().code), (5, 3));
}

#[tokio::test]
async fn a_failure_says_at_which_step_and_why() {
    let (monitor, _greeting, peer) = connected().await;
    let serve = async {
        let (_, id) = peer.next().await;
        let failed = Failed {
            step: "mount volume at".into(),
            path: "/data".into(),
            errno: 13,
            not_found: false,
        };
        peer.answer(id, &Answer::Failed(failed), &[]);
    };
    let (ended, ()) = tokio::join!(monitor.forget("web"), serve);
    let error = ended.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(error.to_string(), "mount volume at /data");
    assert_eq!(source, "Permission denied (os error 13)");
}

#[tokio::test]
async fn who_waits_learns_that_the_monitor_is_gone() {
    let (monitor, mut greeting, peer) = connected().await;
    let serve = async {
        peer.next().await;
        drop(peer);
    };
    let (ended, ()) = tokio::join!(monitor.end(), serve);
    assert!(matches!(ended, Err(CallError::Gone)));
    assert_eq!(greeting.events.recv().await, None);
    assert!(matches!(monitor.snapshot().await, Err(CallError::Gone)));
}

#[tokio::test]
async fn without_handles_the_connection_ends() {
    let (monitor, mut greeting, peer) = connected().await;
    drop(monitor);
    assert_eq!(greeting.events.recv().await, None);
    peer.0.readable().await.unwrap();
    let received = channel::receive(&peer.0, &mut [0; channel::BUFFER]);
    assert!(matches!(received, Err(ReceiveError::Closed)));
}

#[tokio::test]
async fn nobody_listens() {
    let place = tempfile::tempdir().unwrap();
    let connected = Monitor::connect(place.path()).await;
    assert!(matches!(connected, Err(ConnectError::Connect { .. })));
}
