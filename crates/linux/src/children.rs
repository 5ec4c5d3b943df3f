//! Programs that are started for us, ended together with whatever they started themselves. Never
//! through a shell.
//!
//! In: words, a deadline and how much is listened to. Out: how the program ended and what it said.

use std::{io, process::Stdio, time::Duration};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process, kill_process_group},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
};

/// How a program ended.
pub struct Ended {
    pub code: Option<i32>,
    pub output: String,
}

/// What a program may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub time: Duration,
    /// Bytes on each of its two ways out.
    pub output: u64,
}

/// Why a program did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum NotRun {
    #[error("executable file not found in $PATH: {0}")]
    Missing(String),
    #[error(transparent)]
    Refused(io::Error),
    #[error("no answer within {} s", .0.as_secs())]
    Overdue(Duration),
}

/// Runs a program to its end within bounds. What it writes to either of its two ways out is its
/// output.
pub async fn run_within(program: &str, words: &[String], bounds: Bounds) -> Result<Ended, NotRun> {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::piped());
    run_command(program, command, bounds).await
}

/// Runs a program to its end within bounds, and listens to its complaints only, whatever else it
/// has to say.
pub async fn run_for_code(program: &str, words: &[&str], bounds: Bounds) -> Result<Ended, NotRun> {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::null());
    run_command(program, command, bounds).await
}

/// What a program answered.
pub struct Answer {
    pub code: Option<i32>,
    /// What it wrote to its standard output; `None` when that is longer than anybody listens.
    pub said: Option<Vec<u8>>,
    /// What it wrote to its standard error, the first of it.
    pub complained: String,
}

/// Runs a program for its answer within bounds, with more in its environment than we have.
pub async fn run_for_answer(
    program: &str,
    words: &[String],
    environment: &[(String, String)],
    bounds: Bounds,
) -> Result<Answer, NotRun> {
    let attempt = async {
        let mut child = Command::new(program)
            .args(words)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = Group::of(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (said, complained) =
            tokio::try_join!(listen(stdout, bounds.output + 1), listen(stderr, bounds.output))?;
        let ended = child.wait().await?;
        group.let_live();
        let is_whole = u64::try_from(said.len()).is_ok_and(|length| length <= bounds.output);
        Ok::<_, io::Error>(Answer {
            code: ended.code(),
            said: Some(said).filter(|_| is_whole),
            complained: String::from_utf8_lossy(&complained).into_owned(),
        })
    };
    match tokio::time::timeout(bounds.time, attempt).await {
        Ok(answer) => answer.map_err(|cause| not_run(program, cause)),
        Err(_elapsed) => Err(NotRun::Overdue(bounds.time)),
    }
}

/// Runs a program to its end, however long it takes and whether somebody still waits for it or not:
/// what it does must not be broken off. Of what it writes so many bytes are kept.
pub async fn run_to_end(program: &str, words: &[String], output: u64) -> Result<Ended, NotRun> {
    let attempt = async {
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        hear_out(&mut child, output).await
    };
    attempt.await.map_err(|cause| not_run(program, cause))
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
        let ended = hear_out(&mut child, bounds.output).await?;
        group.let_live();
        Ok::<_, io::Error>(ended)
    };
    match tokio::time::timeout(bounds.time, attempt).await {
        Ok(ended) => ended.map_err(|cause| not_run(program, cause)),
        Err(_elapsed) => Err(NotRun::Overdue(bounds.time)),
    }
}

async fn hear_out(child: &mut Child, limit: u64) -> io::Result<Ended> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Both at once: a program that fills the one must not wait for us to be done with the other.
    let (said, complained) = tokio::try_join!(listen(stdout, limit), listen(stderr, limit))?;
    let ended = child.wait().await?;
    let output = [said, complained].concat();
    Ok(Ended { code: ended.code(), output: String::from_utf8_lossy(&output).into_owned() })
}

fn not_run(program: &str, cause: io::Error) -> NotRun {
    match cause.kind() {
        io::ErrorKind::NotFound => NotRun::Missing(program.to_owned()),
        _ => NotRun::Refused(cause),
    }
}

/// The first part of what comes. The rest is read and forgotten: a pipe that is closed kills whoever
/// has more to say, in the middle of what it does.
async fn listen(pipe: Option<impl AsyncRead + Unpin>, limit: u64) -> io::Result<Vec<u8>> {
    let mut heard = Vec::new();
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(limit).read_to_end(&mut heard).await?;
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    }
    Ok(heard)
}

/// Ends a program's process group when it is dropped, however its run went. The program must lead a
/// group of its own.
pub struct Group(Option<Pid>);

impl Group {
    /// The group that a child leads.
    pub fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// The program has ended well: what it left running in the background is meant to stay.
    pub fn let_live(mut self) {
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

/// Ends a process at once; one that is gone is no error.
pub fn kill(process: u32) -> io::Result<()> {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    match process.map(|pid| kill_process(pid, Signal::KILL)) {
        None | Some(Ok(()) | Err(Errno::SRCH)) => Ok(()),
        Some(Err(error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_has_much_to_say_comes_to_its_end() {
        let words = ["if=/dev/zero", "bs=1024", "count=1000"].map(str::to_owned);
        let bounds = Bounds { time: Duration::from_secs(60), output: 4096 };
        let ended = run_within("dd", &words, bounds).await.unwrap();
        assert_eq!(ended.code, Some(0));
        assert!(ended.output.starts_with(&"\0".repeat(4096)));
        let ended = run_to_end("dd", &words, 10).await.unwrap();
        assert_eq!((ended.code, ended.output.len()), (Some(0), 20));
    }

    #[tokio::test]
    async fn an_answer_is_what_was_said_and_not_what_was_complained() {
        let bounds = Bounds { time: Duration::from_secs(60), output: 100 };
        let more = [("FERROLET_TEST".to_owned(), "seen".to_owned())];
        let words = ["FERROLET_TEST".to_owned()];
        let answer = run_for_answer("printenv", &words, &more, bounds).await.unwrap();
        assert_eq!((answer.code, answer.said.as_deref()), (Some(0), Some(&b"seen\n"[..])));
        let words = ["/no/such/file".to_owned()];
        let answer = run_for_answer("ls", &words, &[], bounds).await.unwrap();
        assert_eq!(answer.said.as_deref(), Some(&b""[..]));
        assert!(answer.complained.contains("/no/such/file"));
        let words = ["if=/dev/zero", "bs=1024", "count=1"].map(str::to_owned);
        let answer = run_for_answer("dd", &words, &[], bounds).await.unwrap();
        assert_eq!(answer.said, None);
        let short = Bounds { time: Duration::from_millis(100), ..bounds };
        let overdue = run_for_answer("sleep", &["60".to_owned()], &[], short).await;
        assert!(matches!(overdue, Err(NotRun::Overdue(_))));
    }
}
