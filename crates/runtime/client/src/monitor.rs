//! Calls to one pod's monitor.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ferrolet_runtime_protocol::VERSION;
use ferrolet_runtime_protocol::launch::LaunchSpec;
use ferrolet_runtime_protocol::message::{
    Answer, Attach, Container, Empty, Event, Exec, Hello, HelloAnswer, LogLimit, Namespace,
    Request, Signal, SnapshotAnswer, Started,
};
use ferrolet_runtime_protocol::record::Exit;
use ferrolet_runtime_sys::channel;
use rustix::fs::{Mode, OFlags};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::connection::{CallError, Connection};
use crate::run;

/// The name of a monitor's socket in its sandbox's directory.
const SOCKET: &str = "monitor.sock";

/// A monitor that was not reached.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Nobody listens there.
    #[error("connect to monitor in {}", directory.display())]
    Connect {
        /// The sandbox's directory.
        directory: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It listens but does not answer as it should, or its sandbox could not be made.
    #[error("greet monitor in {}", directory.display())]
    Hello {
        /// The sandbox's directory.
        directory: PathBuf,
        /// Why not.
        source: CallError,
    },
}

/// A pod's monitor; a cheap handle.
#[derive(Debug, Clone)]
pub struct Monitor {
    connection: Connection,
}

/// A monitor that has answered.
#[derive(Debug)]
pub struct Greeting {
    /// What it said of itself.
    pub hello: HelloAnswer,
    /// The pod's own namespaces.
    pub namespaces: Vec<(Namespace, OwnedFd)>,
    /// What it tells unasked; ends with the monitor.
    pub events: mpsc::Receiver<Event>,
}

/// The near ends of a process's stdio.
#[derive(Debug)]
pub enum Stdio {
    /// The terminal's master, to read, to write and to resize.
    Terminal(OwnedFd),
    /// Pipes, as far as they were asked for.
    Pipes {
        /// To write to.
        stdin: Option<OwnedFd>,
        /// To read from.
        stdout: Option<OwnedFd>,
        /// To read from.
        stderr: Option<OwnedFd>,
    },
}

/// A command that runs in a container.
#[derive(Debug)]
pub struct Command {
    /// What runs.
    pub started: Started,
    /// Its process.
    pub pidfd: OwnedFd,
    /// Its stdio.
    pub stdio: Stdio,
    /// Its end.
    pub exit: CommandExit,
}

/// The end of a command, to be waited for.
#[derive(Debug)]
pub struct CommandExit(oneshot::Receiver<Exit>);

impl CommandExit {
    /// Waits for it.
    ///
    /// # Errors
    ///
    /// When the monitor is gone.
    pub async fn wait(self) -> Result<Exit, CallError> {
        self.0.await.map_err(|_| CallError::Gone)
    }
}

/// Streams of a container.
#[derive(Debug)]
pub struct Attachment {
    /// Whether its stdio is a terminal; then `stdin` is its master, also to resize.
    pub tty: bool,
    /// To write to.
    pub stdin: Option<OwnedFd>,
    /// To read from.
    pub stdout: Option<OwnedFd>,
    /// To read from.
    pub stderr: Option<OwnedFd>,
}

impl Monitor {
    /// Connects to the monitor whose sandbox has that directory, and waits until the sandbox exists.
    ///
    /// # Errors
    ///
    /// When nobody listens, or the sandbox could not be made.
    pub async fn connect(directory: &Path) -> Result<(Self, Greeting), ConnectError> {
        let connect = || -> io::Result<Connection> {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let place = rustix::fs::open(directory, flags, Mode::empty())?;
            Connection::new(channel::connect(place, SOCKET)?)
        };
        let at = || directory.to_owned();
        let connection =
            connect().map_err(|source| ConnectError::Connect { directory: at(), source })?;
        let events = run::start(&connection);
        let monitor = Self { connection };
        let (hello, descriptors) = monitor
            .hello()
            .await
            .map_err(|source| ConnectError::Hello { directory: at(), source })?;
        let namespaces = hello.namespaces().zip(descriptors).collect();
        Ok((monitor, Greeting { hello, namespaces, events }))
    }

    async fn hello(&self) -> Result<(HelloAnswer, Vec<OwnedFd>), CallError> {
        let hello = Hello { protocol: VERSION, binary: env!("CARGO_PKG_VERSION").to_owned() };
        match self.connection.call(&Request::Hello(hello), &[]).await? {
            (Answer::Hello(hello), descriptors) => Ok((hello, descriptors)),
            (other, _) => Err(CallError::Mismatch(other.kind())),
        }
    }

    /// Everything the monitor knows, and a pidfd for each container that has a process, in order.
    ///
    /// # Errors
    ///
    /// When the monitor is gone.
    pub async fn snapshot(&self) -> Result<(SnapshotAnswer, Vec<OwnedFd>), CallError> {
        match self.connection.call(&Request::Snapshot(Empty {}), &[]).await? {
            (Answer::Snapshot(snapshot), pidfds) => Ok((snapshot, pidfds)),
            (other, _) => Err(CallError::Mismatch(other.kind())),
        }
    }

    /// Starts a container, whose sources are found in `mounts`, a mount namespace.
    ///
    /// # Errors
    ///
    /// When it could not be started, with the step and the path at which it failed.
    pub async fn launch(
        &self,
        spec: LaunchSpec,
        mounts: BorrowedFd<'_>,
    ) -> Result<(Started, OwnedFd), CallError> {
        let answer = self.connection.call(&Request::Launch(Box::new(spec)), &[mounts]).await?;
        let (started, mut descriptors) = started(answer)?;
        let pidfd = descriptors.next().ok_or(CallError::Mismatch(0))?;
        Ok((started, pidfd))
    }

    /// Runs a command in a container.
    ///
    /// # Errors
    ///
    /// When it could not be started, with the step at which it failed.
    pub async fn exec(&self, exec: Exec) -> Result<Command, CallError> {
        let (sender, exit) = oneshot::channel();
        let command = exec.command;
        let (tty, stdin, stdout, stderr) = (exec.tty, exec.stdin, exec.stdout, exec.stderr);
        // Before the request: the end may come right after the answer.
        self.connection.shared.state().commands.insert(command, sender);
        let answer = self.connection.call(&Request::Exec(exec), &[]).await.and_then(started);
        let (started, mut descriptors) = answer.inspect_err(|_| {
            self.connection.shared.state().commands.remove(&command);
        })?;
        let mut next = || descriptors.next().ok_or(CallError::Mismatch(0));
        let pidfd = next()?;
        let stdio = if tty.is_some() {
            Stdio::Terminal(next()?)
        } else {
            Stdio::Pipes {
                stdin: stdin.then(&mut next).transpose()?,
                stdout: stdout.then(&mut next).transpose()?,
                stderr: stderr.then(&mut next).transpose()?,
            }
        };
        Ok(Command { started, pidfd, stdio, exit: CommandExit(exit) })
    }

    /// Connects to a container's stdio.
    ///
    /// # Errors
    ///
    /// When there is no such container that runs.
    pub async fn attach(&self, attach: Attach) -> Result<Attachment, CallError> {
        let (attached, descriptors) =
            match self.connection.call(&Request::Attach(attach), &[]).await? {
                (Answer::Attached(attached), descriptors) => (attached, descriptors),
                (other, _) => return Err(CallError::Mismatch(other.kind())),
            };
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or(CallError::Mismatch(0));
        Ok(Attachment {
            tty: attached.tty,
            stdin: attached.stdin.then(&mut next).transpose()?,
            stdout: attached.stdout.then(&mut next).transpose()?,
            stderr: attached.stderr.then(&mut next).transpose()?,
        })
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// When there is nobody to send it to.
    pub async fn signal(&self, signal: Signal) -> Result<(), CallError> {
        self.done(Request::Signal(signal)).await
    }

    /// Closes a container's stdin.
    ///
    /// # Errors
    ///
    /// When there is no such container.
    pub async fn close_stdin(&self, container: &str) -> Result<(), CallError> {
        self.done(Request::CloseStdin(named(container))).await
    }

    /// Has a container's log opened anew, after somebody renamed it.
    ///
    /// # Errors
    ///
    /// When there is no such container that runs, or the file cannot be opened.
    pub async fn reopen_log(&self, container: &str) -> Result<(), CallError> {
        self.done(Request::ReopenLog(named(container))).await
    }

    /// Sets the size at which a container's log is rotated; 0: never.
    ///
    /// # Errors
    ///
    /// When there is no such container.
    pub async fn log_limit(&self, container: &str, max_size: u64) -> Result<(), CallError> {
        let container = container.to_owned();
        self.done(Request::LogLimit(LogLimit { container, max_size })).await
    }

    /// Has a container that ended forgotten.
    ///
    /// # Errors
    ///
    /// When it runs.
    pub async fn forget(&self, container: &str) -> Result<(), CallError> {
        self.done(Request::Forget(named(container))).await
    }

    /// Has everything killed; the monitor leaves then.
    ///
    /// # Errors
    ///
    /// When the monitor is gone already.
    pub async fn end(&self) -> Result<(), CallError> {
        self.done(Request::End(Empty {})).await
    }

    async fn done(&self, request: Request) -> Result<(), CallError> {
        match self.connection.call(&request, &[]).await? {
            (Answer::Done(_), _) => Ok(()),
            (other, _) => Err(CallError::Mismatch(other.kind())),
        }
    }
}

fn named(container: &str) -> Container {
    Container { container: container.to_owned() }
}

type Descriptors = std::vec::IntoIter<OwnedFd>;

fn started(
    (answer, descriptors): (Answer, Vec<OwnedFd>),
) -> Result<(Started, Descriptors), CallError> {
    match answer {
        Answer::Started(started) | Answer::Spawned(started) => {
            Ok((started, descriptors.into_iter()))
        }
        other => Err(CallError::Mismatch(other.kind())),
    }
}

/// The mount namespace of this process, as `launch` takes it.
///
/// # Errors
///
/// The kernel's.
pub fn own_mounts() -> io::Result<OwnedFd> {
    Ok(std::fs::File::open("/proc/self/ns/mnt")?.into())
}
