//! Streams into pods, behind the socket: exec, attach and port-forward for clients that CRI's answers send here.
//!
//! ```text
//!  CRI Exec, Attach, PortForward ─ StreamingHandle ─► tokens ─► http://127.0.0.1:PORT/exec/TOKEN
//!  client ─ server: token, protocol ─┬─ process: SPDY streams or WebSocket channels ─► stdio of StreamBackend
//!                                    └─ forward: SPDY, plain or in a WebSocket ─► sockets of StreamBackend
//! ```
//!
//! The server listens on 127.0.0.1 only. An address is good once and for a minute; it holds what was asked for, so a
//! client cannot ask for anything else. Refuses: requests without an upgrade, protocols that it does not know, more than
//! 1,000 addresses at a time. There are no redirects.

mod forward;
mod negotiate;
mod pipe;
mod process;
mod server;
mod status;
mod tokens;
mod transport;

use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::Pin;

pub use server::{StreamingHandle, StreamingServer};
pub use tokens::TooManyRequests;

#[cfg(test)]
mod tests;

/// An answer that takes its time.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which of a process's streams a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// A terminal; then there is no stderr apart.
    pub tty: bool,
    /// Its input.
    pub stdin: bool,
    /// Its output.
    pub stdout: bool,
    /// Its complaints.
    pub stderr: bool,
}

/// A command in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    /// The container's id.
    pub container: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Its streams.
    pub streams: Streams,
}

/// A container's own streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachRequest {
    /// The container's id.
    pub container: String,
    /// Its streams.
    pub streams: Streams,
}

/// The near ends of a process's stdio. They are made non-blocking.
#[derive(Debug)]
pub enum ProcessIo {
    /// A terminal's master, to read, to write and to resize.
    Terminal(OwnedFd),
    /// Pipes, as far as they were asked for. A container's terminal that is attached to has its output in `stdout`, and
    /// its master in `stdin` and in `resize`.
    Pipes {
        /// To write to.
        stdin: Option<OwnedFd>,
        /// To read from.
        stdout: Option<OwnedFd>,
        /// To read from.
        stderr: Option<OwnedFd>,
        /// A terminal's master, to resize.
        resize: Option<OwnedFd>,
    },
}

/// A process that a client is connected to.
pub struct Process {
    /// Its stdio.
    pub io: ProcessIo,
    /// Its exit code, or why there is none. Dropped before it is known, the client is gone, and a command is to be killed.
    /// None for what is only attached to: that ends with its outputs.
    pub exit: Option<Answer<'static, Result<i32, String>>>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("io", &self.io).finish_non_exhaustive()
    }
}

/// What streams lead to; the service implements it. Errors are sentences for the client.
pub trait StreamBackend: Send + Sync + 'static {
    /// Starts a command.
    fn exec(&self, request: ExecRequest) -> Answer<'_, Result<Process, String>>;

    /// Connects to a container.
    fn attach(&self, request: AttachRequest) -> Answer<'_, Result<Process, String>>;

    /// Connects to a port of a sandbox, from within its network namespace; a stream socket
    /// (`ferrolet_runtime_network::connect`, off the async threads).
    fn connect(&self, sandbox: &str, port: u16) -> Answer<'_, Result<OwnedFd, String>>;
}
