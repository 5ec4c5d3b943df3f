//! Where streams into containers begin: addresses on the runtime's own streaming server.
//!
//! Implemented by the adapter `cri`, faked by `testkit`. Refuses: connecting; that is the server's
//! business.

use ferrolet_types::{ContainerId, SandboxId};

use crate::{Fut, RuntimeError};

/// Prepares streams and answers with the URL to open them at.
pub trait Streams: Send + Sync {
    /// A command in a container.
    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        wanted: WantedStreams,
    ) -> Fut<'a, Result<String, RuntimeError>>;
    /// A container's main process.
    fn attach<'a>(
        &'a self,
        id: &'a ContainerId,
        wanted: WantedStreams,
    ) -> Fut<'a, Result<String, RuntimeError>>;
    /// Ports of a pod; empty when the client names them later, in its streams.
    fn port_forward<'a>(
        &'a self,
        id: &'a SandboxId,
        ports: &'a [i32],
    ) -> Fut<'a, Result<String, RuntimeError>>;
}

/// Which of a process's streams are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedStreams {
    /// With a terminal.
    pub tty: bool,
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}
