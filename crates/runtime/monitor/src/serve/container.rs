//! What a monitor knows of a container, and of a command in one.

use std::os::fd::OwnedFd;

use ferrolet_runtime_protocol::launch::{Cgroups, Stdin};
use ferrolet_runtime_protocol::record::{ContainerRecord, Exit, State};
use rustix::process::Pid;

use super::clients::Clients;
use crate::log::{LogFile, Splitter, Stream};
use crate::report::Report;

/// Who waits for an answer: a connection and its request.
pub(super) type Caller = (u32, u32);

/// A container.
pub(super) struct Container {
    pub(super) id: String,
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    /// Until the first process executes its program.
    pub(super) launch: Option<Pending>,
    pub(super) started_at: i64,
    pub(super) exit: Option<Exit>,
    pub(super) cgroups: Cgroups,
    /// How often the kernel had killed in there for want of memory before it began.
    pub(super) oom_kills_before: u64,
    pub(super) log: Option<LogFile>,
    pub(super) outputs: [Option<Output>; 2],
    /// The writing end, while somebody may still attach to it.
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdin_mode: Stdin,
    pub(super) tty: bool,
    /// The near end of its terminal.
    pub(super) terminal: Option<OwnedFd>,
    /// The file system of its terminals.
    pub(super) devpts: Option<OwnedFd>,
    pub(super) clients: Clients,
}

/// A launch under way.
pub(super) struct Pending {
    pub(super) report: Report,
    pub(super) caller: Caller,
}

/// A stream that a container writes to.
pub(super) struct Output {
    pub(super) source: OwnedFd,
    pub(super) splitter: Splitter,
}

/// A command in a container.
pub(super) struct Command {
    /// The container's key, and its id.
    pub(super) container: String,
    /// The number that its caller gave it.
    pub(super) number: u64,
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) started_at: i64,
    pub(super) launch: Option<Pending>,
    /// The near ends of its stdio, until they are handed over.
    pub(super) stdio: Vec<OwnedFd>,
    /// The group of whatever it starts, where there is one.
    pub(super) cgroups: Cgroups,
    /// Whose command it is.
    pub(super) connection: u32,
}

impl Container {
    pub(super) fn state(&self) -> State {
        match (&self.exit, &self.launch) {
            (Some(_), _) => State::Exited,
            (None, Some(_)) => State::Starting,
            (None, None) => State::Running,
        }
    }

    pub(super) fn record(&self) -> ContainerRecord {
        ContainerRecord {
            container: self.id.clone(),
            state: self.state().into(),
            pid: self.pid.as_raw_nonzero().get(),
            started_at: self.started_at,
            exit: self.exit.clone(),
            lost_lines: self.log.as_ref().map_or(0, |it| it.lost().n_lines),
        }
    }

    pub(super) fn output(&mut self, stream: Stream) -> &mut Option<Output> {
        let [stdout, stderr] = &mut self.outputs;
        match stream {
            Stream::Stdout => stdout,
            Stream::Stderr => stderr,
        }
    }
}
