//! Commands whose whole output is wanted: probes, hooks, `crictl exec --sync`.

use std::{os::fd::OwnedFd, time::Duration};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_client::{CommandExit, Monitor, Stdio};
use ferrolet_runtime_plan::Refusal;
use ferrolet_runtime_protocol::{
    launch::Process,
    message::{Exec, Signal},
};
use tokio::{io::AsyncReadExt as _, net::unix::pipe, time::timeout};

use super::{Runtime, error::RuntimeError};

/// Output that is kept of each stream; what is more is read and thrown away.
const MOST_OUTPUT: usize = 16 << 20;
/// How long after a command's end its output is waited for: something that it started may hold it open for ever.
const DRAINING: Duration = Duration::from_secs(5);
const SIGKILL: i32 = 9;

impl Runtime {
    /// Runs a command in a container and waits for it.
    pub(crate) async fn exec_sync(
        &self,
        request: cri::ExecSyncRequest,
    ) -> Result<cri::ExecSyncResponse, RuntimeError> {
        if request.cmd.first().is_none_or(String::is_empty) {
            return Err(Refusal::Missing("the command").into());
        }
        let (monitor, container, process) = self.running(&request.container_id)?;
        let number = self.next_command();
        let exec = Exec {
            container: container.clone(),
            command: number,
            process: Some(Process { args: request.cmd, ..process }),
            tty: None,
            stdin: false,
            stdout: true,
            stderr: true,
        };
        // A caller that leaves, and one whose time is over, have everything killed that the command started.
        let mut guard = CommandGuard::new(monitor.clone(), container, number);
        let command = monitor.exec(exec).await;
        let command = command.map_err(|error| RuntimeError::Monitor("exec in container", error))?;
        let Stdio::Pipes { stdout, stderr, .. } = command.stdio else {
            return Err(Refusal::Unsupported("a terminal").into());
        };
        let ended = gather(command.exit, stdout, stderr);
        let seconds = u64::try_from(request.timeout).unwrap_or(0);
        let response = if seconds == 0 {
            ended.await?
        } else {
            let overdue = |_| RuntimeError::CommandOverdue(request.timeout);
            timeout(Duration::from_secs(seconds), ended).await.map_err(overdue)??
        };
        guard.let_go();
        Ok(response)
    }
}

async fn gather(
    exit: CommandExit,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
) -> Result<cri::ExecSyncResponse, RuntimeError> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = {
        let reading =
            async { tokio::join!(read_all(stdout, &mut out), read_all(stderr, &mut err)) };
        let exiting = exit.wait();
        tokio::pin!(reading, exiting);
        let mut is_read = false;
        let exit = tokio::select! {
            // Both are polled on by the other arm's branch until they are done.
            exit = &mut exiting => exit,
            _ = &mut reading => {
                is_read = true;
                exiting.await
            }
        };
        if !is_read {
            let _held_open = timeout(DRAINING, &mut reading).await;
        }
        exit.map_err(|error| RuntimeError::Monitor("exec in container", error))?
    };
    Ok(cri::ExecSyncResponse { stdout: out, stderr: err, exit_code: exit.code })
}

/// Reads to the end, and keeps as much as is kept.
async fn read_all(from: Option<OwnedFd>, into: &mut Vec<u8>) {
    let Some(Ok(mut pipe)) = from.map(pipe::Receiver::from_owned_fd) else { return };
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        let room = MOST_OUTPUT - into.len();
        into.extend_from_slice(&buffer[..n.min(room)]);
    }
}

/// Kills a command that is not waited for to its end.
pub(super) struct CommandGuard {
    monitor: Option<Monitor>,
    container: String,
    number: u64,
}

impl CommandGuard {
    pub(super) fn new(monitor: Monitor, container: String, number: u64) -> Self {
        Self { monitor: Some(monitor), container, number }
    }

    /// The command has ended by itself.
    pub(super) fn let_go(&mut self) {
        self.monitor = None;
    }
}

impl Drop for CommandGuard {
    fn drop(&mut self) {
        let Some(monitor) = self.monitor.take() else { return };
        let signal = Signal {
            container: std::mem::take(&mut self.container),
            command: self.number,
            signal: SIGKILL,
            everything: true,
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { monitor.signal(signal).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[tokio::test]
    async fn output_beyond_what_is_kept_is_read_and_dropped() {
        let (reads, mut writes) = std::io::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            let block = vec![7_u8; 1 << 20];
            for _ in 0..17 {
                writes.write_all(&block).unwrap();
            }
        });
        let mut kept = Vec::new();
        read_all(Some(reads.into()), &mut kept).await;
        writer.join().unwrap();
        assert_eq!(kept.len(), MOST_OUTPUT);
    }
}
