//! The process that monitors are forked from: single-threaded, started once by the service, and gone
//! with it.
//!
//! Its stdin is the channel. It makes the seed namespace, then forks a monitor for each request; the
//! memory that it had by then is shared by all of them.

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use ferrolet_runtime_protocol::message::{Answer, Empty, Request, Started};
use ferrolet_runtime_protocol::packet::Header;
use ferrolet_runtime_protocol::sandbox::SandboxSpec;
use ferrolet_runtime_sys::channel::{self, Packet, ReceiveError};
use ferrolet_runtime_sys::fork::{Forked, Namespaces, SingleThread};
use ferrolet_runtime_sys::{process, signals};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;

use crate::failure::{Failure, Step};
use crate::{seed, serve};

/// The name of a monitor's socket in its sandbox's directory.
pub(crate) const SOCKET: &str = "monitor.sock";

/// Runs until the service is gone. To be called first in `main`, before anything starts a thread.
#[must_use]
pub fn main() -> ExitCode {
    match run() {
        Ok(None) => ExitCode::SUCCESS,
        // In the child: everything of the spawner's is closed by now.
        Ok(Some(birth)) => serve::run(birth),
        Err(failure) => {
            let failed = failure.message();
            let errno = Errno::from_raw_os_error(failed.errno);
            eprintln!("ferrolet spawner: {} {}: {errno}", failed.step, failed.path);
            ExitCode::FAILURE
        }
    }
}

/// What a monitor is born with.
pub(crate) struct Birth {
    pub(crate) alone: SingleThread,
    pub(crate) seed: OwnedFd,
    pub(crate) directory: OwnedFd,
    pub(crate) listener: OwnedFd,
    pub(crate) spec: SandboxSpec,
}

/// In the spawner, until its service is gone; in a child, with what it is to be.
fn run() -> Result<Option<Birth>, Failure> {
    let alone =
        SingleThread::prove().ok_or_else(|| Failure::refused("more than one thread", ""))?;
    let channel = take_stdin()?;
    // Nothing in a container may look into a process that is on its way there, so none of these can
    // be looked into, until they execute.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide process")?;
    signals::ignore_children();
    signals::ignore_session();
    let seed = seed::make(&alone)?;
    let mut buffer = vec![0; channel::BUFFER];
    loop {
        let mut ready = [PollFd::new(&channel, PollFlags::IN)];
        let _woken = rustix::event::poll(&mut ready, None);
        match channel::receive(&channel, &mut buffer) {
            Ok(packet) => {
                if let Some((directory, listener, spec)) = serve(&alone, &channel, &packet) {
                    return Ok(Some(Birth { alone, seed, directory, listener, spec }));
                }
            }
            Err(ReceiveError::Socket(Errno::AGAIN | Errno::INTR)) => {}
            Err(ReceiveError::Closed) => return Ok(None),
            Err(_) => return Err(Failure::refused("the service is not understood", "")),
        }
    }
}

/// The channel, and an empty stdin instead: what is forked inherits neither.
fn take_stdin() -> Result<OwnedFd, Failure> {
    let channel = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).step("take channel")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .step("open /dev/null")?;
    process::become_stdio(&null, 0).step("replace stdin")?;
    Ok(channel)
}

/// A child's directory, socket and description.
type Part = (OwnedFd, OwnedFd, SandboxSpec);

/// Answers one request; in the child that it made, what that child is for.
fn serve(alone: &SingleThread, channel: &OwnedFd, packet: &Packet) -> Option<Part> {
    let (answer, pidfd) = match Request::decode(packet.header.kind, &packet.body) {
        Ok(Request::Spawn(spec)) => match spawn(alone, spec) {
            Ok(Spawned::Child(part)) => return Some(*part),
            Ok(Spawned::Parent(started, pidfd)) => (Answer::Spawned(started), Some(pidfd)),
            Err(failure) => (Answer::Failed(failure.message()), None),
        },
        _ => (Answer::Unknown(Empty {}), None),
    };
    let header = Header { is_in_memfd: false, kind: answer.kind(), id: packet.header.id };
    let descriptors: Vec<_> = pidfd.iter().map(AsFd::as_fd).collect();
    // A service that takes no answers is one that is gone, which the next packet tells.
    let _gone = channel::send(channel, header, &answer.encode(), &descriptors);
    None
}

enum Spawned {
    Parent(Started, OwnedFd),
    Child(Box<Part>),
}

/// The monitor's socket exists before the monitor does, so that whoever knows of the one can connect
/// to the other.
fn spawn(alone: &SingleThread, spec: SandboxSpec) -> Result<Spawned, Failure> {
    let path = spec.directory.as_str();
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno).step_on("make directory", path),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).step_on("open directory", path)?;
    let listener = channel::listen(&directory, SOCKET).step_on("listen in", path)?;
    match alone.fork(Namespaces::default(), None).step("fork monitor")? {
        Forked::Child => Ok(Spawned::Child(Box::new((directory, listener, spec)))),
        Forked::Parent(child) => {
            let pid = child.pid.as_raw_nonzero().get();
            let started = Started { pid, started_at: serve::wall_clock() };
            Ok(Spawned::Parent(started, child.pidfd))
        }
    }
}
