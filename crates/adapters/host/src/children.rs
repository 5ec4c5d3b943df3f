//! Programs that are started for us, ended together with whatever they started themselves. Never through a shell.
//!
//! In: words, a deadline and how much is listened to. Out: how the program ended and what it said.

use std::{io, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
};

/// How a program ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
}

/// What a program may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) time: Duration,
    /// Bytes on each of its two ways out.
    pub(crate) output: u64,
}

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRun {
    #[error("executable file not found in $PATH: {0}")]
    Missing(String),
    #[error(transparent)]
    Refused(io::Error),
    #[error("no answer within {} s", .0.as_secs())]
    Overdue(Duration),
}

/// Runs a program to its end within bounds. What it writes to either of its two ways out is its output.
pub(crate) async fn run_within(
    program: &str,
    words: &[String],
    bounds: Bounds,
) -> Result<Ended, NotRun> {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::piped());
    run_command(program, command, bounds).await
}

/// Runs a program to its end within bounds, and listens to its complaints only, whatever else it has to say.
pub(crate) async fn run_for_code(
    program: &str,
    words: &[&str],
    bounds: Bounds,
) -> Result<Ended, NotRun> {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::null());
    run_command(program, command, bounds).await
}

async fn run_command(program: &str, mut command: Command, bounds: Bounds) -> Result<Ended, NotRun> {
    let attempt = async {
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = Group::of(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Both at once: a program that fills the one must not wait for us to be done with the other.
        let (said, complained) =
            tokio::try_join!(listen(stdout, bounds.output), listen(stderr, bounds.output))?;
        let ended = child.wait().await?;
        group.let_live();
        let output = [said, complained].concat();
        Ok::<_, io::Error>(Ended {
            code: ended.code(),
            output: String::from_utf8_lossy(&output).into_owned(),
        })
    };
    match tokio::time::timeout(bounds.time, attempt).await {
        Ok(Ok(ended)) => Ok(ended),
        Ok(Err(cause)) if cause.kind() == io::ErrorKind::NotFound => {
            Err(NotRun::Missing(program.to_owned()))
        }
        Ok(Err(cause)) => Err(NotRun::Refused(cause)),
        Err(_elapsed) => Err(NotRun::Overdue(bounds.time)),
    }
}

/// The first part of what comes; then the pipe is closed, and whoever has more to say hears of it.
async fn listen(pipe: Option<impl AsyncRead + Unpin>, limit: u64) -> io::Result<Vec<u8>> {
    let mut heard = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(limit).read_to_end(&mut heard).await?;
    }
    Ok(heard)
}

/// Ends a program's process group when it is dropped, however its run went. The program must lead a group of its own.
pub(crate) struct Group(Option<Pid>);

impl Group {
    /// The group that a child leads.
    pub(crate) fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// The program has ended well: what it left running in the background is meant to stay.
    pub(crate) fn let_live(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // Nobody left is as good.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}
