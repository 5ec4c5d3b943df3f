//! The spawner: started once, asked for a monitor per pod, ending with its connection.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ferrolet_runtime_protocol::message::{Answer, Request, Started};
use ferrolet_runtime_protocol::sandbox::SandboxSpec;
use ferrolet_runtime_sys::{channel, mounts};
use rustix::fs::CWD;
use thiserror::Error;

use crate::connection::{CallError, Connection};
use crate::run;

/// What to execute as the spawner.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable; the service's own is `/proc/self/exe`.
    pub path: PathBuf,
    /// The arguments by which its `main` knows that it is the spawner.
    pub args: Vec<OsString>,
}

/// A spawner that did not start.
#[derive(Debug, Error)]
#[error("start spawner: {step}")]
pub struct StartError {
    step: &'static str,
    source: io::Error,
}

/// A monitor that was started.
#[derive(Debug)]
pub struct Spawned {
    /// Its process.
    pub started: Started,
    /// Its process, as a descriptor.
    pub pidfd: OwnedFd,
}

/// The spawner.
#[derive(Debug)]
pub struct Spawner {
    connection: Connection,
    child: Child,
}

impl Spawner {
    /// Starts it, from a read-only clone of its executable: what runs in a container cannot open
    /// that for writing, as it once could.
    ///
    /// # Errors
    ///
    /// When it could not be started.
    pub fn start(program: &Program) -> Result<Self, StartError> {
        let at = |step| move |source: io::Error| StartError { step, source };
        let executable = mounts::detached(CWD, &program.path)
            .and_then(|tree| mounts::make_readonly(&tree).map(|()| tree))
            .map_err(|errno| at("clone executable")(errno.into()))?;
        let (near, far) = channel::pair().map_err(|errno| at("socket")(errno.into()))?;
        // Resolved by the child, before its descriptors are closed on execution.
        let child = Command::new(format!("/proc/self/fd/{}", executable.as_raw_fd()))
            .args(&program.args)
            .stdin(Stdio::from(far))
            .stdout(Stdio::null())
            .spawn()
            .map_err(at("execute"))?;
        let connection = Connection::new(near).map_err(at("socket"))?;
        // A spawner tells nothing unasked.
        drop(run::start(&connection));
        Ok(Self { connection, child })
    }

    /// The spawner's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has a pod's monitor forked. It listens already when this returns.
    ///
    /// # Errors
    ///
    /// When the spawner is gone, or its directory cannot be made.
    pub async fn spawn(&self, spec: SandboxSpec) -> Result<Spawned, CallError> {
        match self.connection.call(&Request::Spawn(spec), &[]).await? {
            (Answer::Spawned(started), descriptors) => {
                let pidfd = descriptors.into_iter().next().ok_or(CallError::Mismatch(0))?;
                Ok(Spawned { started, pidfd })
            }
            (other, _) => Err(CallError::Mismatch(other.kind())),
        }
    }
}

impl Drop for Spawner {
    /// Its monitors stay.
    fn drop(&mut self) {
        let _gone =
            rustix::net::shutdown(&self.connection.shared.socket, rustix::net::Shutdown::Both);
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
