//! The machine's journal, read by systemd's own program.
//!
//! In: names of services and what part of their logs is wanted, checked by the caller. Out: text in
//! pieces, for half a minute at most, as upstream. The program is one fixed path, is given
//! arguments and never a line for a shell, and is ended with its reader, and with its half minute
//! whether anybody reads on or not. Few run at a time, and whoever finds no turn within the same
//! time is told so. Refuses: names that are not plain, wherever they come from.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ferrolet_ports::{Fut, HostError, JournalAsk, LogPieces, Retry};
use ferrolet_types::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

/// Where systemd's program is, if it is.
const PROGRAMS: [&str; 2] = ["/usr/bin/journalctl", "/bin/journalctl"];
/// Upstream's time for a whole answer.
const TIME: Duration = Duration::from_secs(30);
/// How long somebody waits for a turn: longer than any turn lasts.
const TURN: Duration = Duration::from_secs(35);
/// Readers at once: a journal can be large, and reading it is work.
const READERS: usize = 4;
const PIECE: usize = 64 * 1024;
/// More names of services than this are not looked at.
const MOST_UNITS: u64 = 1 << 20;
/// More of a complaint is not passed on.
const COMPLAINT: u64 = 4096;

/// The journal, where there is one.
pub(crate) struct Journal {
    program: Option<PathBuf>,
    readers: Arc<Semaphore>,
}

impl Journal {
    /// The journal of this machine.
    pub(crate) fn find() -> Self {
        let paths = PROGRAMS.iter().map(PathBuf::from);
        Self::with(paths.into_iter().find(|path| path.exists()))
    }

    fn with(program: Option<PathBuf>) -> Self {
        Self { program, readers: Arc::new(Semaphore::new(READERS)) }
    }

    /// Those of these services of which there is something.
    pub(crate) async fn knows(&self, services: &[String]) -> Vec<String> {
        let Some(program) = &self.program else {
            return Vec::new();
        };
        let arguments = ["--field=_SYSTEMD_UNIT".to_owned()];
        let Ok(mut reading) = self.start(program, &arguments).await else {
            return Vec::new();
        };
        let Some(stdout) = reading.stdout.take() else {
            return Vec::new();
        };
        let mut units = Vec::new();
        let mut stdout = stdout.take(MOST_UNITS);
        let read = timeout_at(reading.until, stdout.read_to_end(&mut units)).await;
        if !matches!(read, Ok(Ok(_))) {
            return Vec::new();
        }
        let is_known = |service: &&String| {
            let unit = format!("{service}.service");
            let mut lines = units.split(|byte| *byte == b'\n');
            is_plain(service) && lines.any(|line| line == unit.as_bytes())
        };
        services.iter().filter(is_known).cloned().collect()
    }

    /// What there is of services.
    pub(crate) async fn read(&self, ask: &JournalAsk) -> Result<Box<dyn LogPieces>, HostError> {
        let program = self.program.as_ref().ok_or_else(|| failed("this machine has no journal"))?;
        if ask.services.is_empty() || !ask.services.iter().all(|it| is_plain(it)) {
            return Err(failed("a service's name is not plain"));
        }
        Ok(Box::new(self.start(program, &arguments(ask)).await?))
    }

    async fn start(&self, program: &Path, arguments: &[String]) -> Result<Reading, HostError> {
        let turn = timeout(TURN, self.readers.clone().acquire_owned()).await;
        let turn = turn.map_err(|_elapsed| failed("too many read it"))?;
        let turn = turn.expect("the readers are never closed");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|cause| failed(cause.to_string()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (reader, is_read) = oneshot::channel();
        let until = Instant::now() + TIME;
        // A task of its own, because a reader that waits for its own reader does nothing. At most
        // as many as there are turns, each for that time.
        tokio::spawn(end_in_time(child, until, is_read, turn));
        Ok(Reading { stdout, stderr, until, _reader: reader })
    }
}

fn failed(cause: impl Into<String>) -> HostError {
    HostError { attempt: "read the journal".to_owned(), cause: cause.into(), retry: Retry::Later }
}

/// Letters, digits and a few marks, none of which means anything to anybody.
fn is_plain(service: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
    !service.is_empty() && service.len() <= 256 && service.bytes().all(is_good)
}

/// Each is one argument with its name in front, so that no value can be taken for another option.
fn arguments(ask: &JournalAsk) -> Vec<String> {
    let moment = |at: Timestamp| at.0.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    let fixed = ["--utc", "--no-pager", "--output=short-precise"];
    let mut arguments: Vec<String> = fixed.map(str::to_owned).into();
    arguments.extend(ask.since.map(|at| format!("--since={}", moment(at))));
    arguments.extend(ask.until.map(|at| format!("--until={}", moment(at))));
    arguments.extend(ask.tail_lines.map(|n| format!("--lines={n}")));
    arguments.extend(ask.services.iter().map(|it| format!("--unit={it}")));
    arguments.extend(ask.pattern.as_ref().map(|it| format!("--grep={it}")));
    arguments.extend(ask.boot.map(|n| format!("--boot={n}")));
    arguments
}

/// Ends the program when its reader is gone or its time is over, and lets the next one have its
/// turn.
async fn end_in_time(
    mut child: Child,
    until: Instant,
    is_read: oneshot::Receiver<()>,
    turn: OwnedSemaphorePermit,
) {
    // An error says that the reader is gone: it never sends anything.
    let _ = timeout_at(until, is_read).await;
    if let Err(error) = child.start_kill() {
        tracing::debug!(%error, "The journal's program cannot be ended");
    }
    drop(turn);
    // Nobody waits for this; what is not waited for stays as a name in the table of processes.
    let _ = child.wait().await;
}

/// A program that is being read.
struct Reading {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    until: Instant,
    /// Tells by its end that nobody reads any more.
    _reader: oneshot::Sender<()>,
}

impl LogPieces for Reading {
    fn next(&mut self) -> Fut<'_, Result<Option<Vec<u8>>, HostError>> {
        Box::pin(async move {
            if let Some(stdout) = &mut self.stdout {
                if let Some(piece) = piece(stdout, self.until).await? {
                    return Ok(Some(piece));
                }
                self.stdout = None;
            }
            // What it had to complain about comes last, as with upstream.
            let Some(stderr) = self.stderr.take() else {
                return Ok(None);
            };
            piece(&mut stderr.take(COMPLAINT), self.until).await
        })
    }
}

async fn piece(
    from: &mut (impl AsyncRead + Unpin),
    until: Instant,
) -> Result<Option<Vec<u8>>, HostError> {
    let mut piece = vec![0; PIECE];
    if Instant::now() >= until {
        // What is left in the pipe of a program that was ended is not its end.
        return Err(failed(format!("no end within {} s", TIME.as_secs())));
    }
    match timeout_at(until, from.read(&mut piece)).await {
        Ok(Ok(0)) => Ok(None),
        Ok(Ok(n)) => {
            piece.truncate(n);
            Ok(Some(piece))
        }
        Ok(Err(cause)) => Err(failed(cause.to_string())),
        Err(_elapsed) => Err(failed(format!("no end within {} s", TIME.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A program that plays the part of systemd's.
    fn program(directory: &Path, script: &str) -> Journal {
        let path = directory.join("journalctl");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Journal::with(Some(path))
    }

    async fn text(journal: &Journal, ask: &JournalAsk) -> Result<String, HostError> {
        let mut pieces = journal.read(ask).await?;
        let mut text = Vec::new();
        while let Some(piece) = pieces.next().await? {
            text.extend(piece);
        }
        Ok(String::from_utf8(text).unwrap())
    }

    fn ask(services: &[&str]) -> JournalAsk {
        JournalAsk {
            services: services.iter().map(|it| (*it).to_owned()).collect(),
            ..JournalAsk::default()
        }
    }

    #[tokio::test]
    async fn a_service_is_read_with_what_was_asked_and_complaints_last() {
        let held = tempfile::tempdir().unwrap();
        let journal =
            program(held.path(), "for word in \"$@\"; do echo \"[$word]\"; done; echo oh >&2");
        let ask = JournalAsk {
            since: Some(Timestamp::from_second(1_767_225_600)),
            until: Some(Timestamp::from_second(1_767_225_661)),
            tail_lines: Some(5),
            pattern: Some("a b; c".to_owned()),
            boot: Some(-1),
            ..ask(&["kubelet", "sshd"])
        };
        let expected = "[--utc]\n[--no-pager]\n[--output=short-precise]\n[--since=2026-01-01 00:00:00 UTC]\n\
                        [--until=2026-01-01 00:01:01 UTC]\n[--lines=5]\n[--unit=kubelet]\n[--unit=sshd]\n\
                        [--grep=a b; c]\n[--boot=-1]\noh\n";
        assert_eq!(text(&journal, &ask).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn only_services_that_the_journal_knows_are_its_own() {
        let held = tempfile::tempdir().unwrap();
        let journal = program(held.path(), "echo kubelet.service; echo xsshd.service");
        let asked = ["kubelet", "sshd", "nothing"].map(str::to_owned);
        assert_eq!(journal.knows(&asked).await, ["kubelet"]);
        assert!(Journal::with(None).knows(&asked).await.is_empty());
        let gone = Journal::with(Some(held.path().join("nothing")));
        assert!(gone.knows(&asked).await.is_empty());
    }

    /// CVE-2024-9042: words of a query reached a command line.
    #[tokio::test]
    async fn names_that_are_not_plain_are_never_passed_on() {
        let held = tempfile::tempdir().unwrap();
        let journal = program(held.path(), "echo ran");
        for name in ["", "a b", "a;id", "$(id)", "a\nb", "../x", "a'b", "\u{e9}"] {
            assert!(text(&journal, &ask(&[name])).await.is_err(), "{name:?}");
        }
        assert!(text(&journal, &ask(&[])).await.is_err());
        assert_eq!(text(&journal, &ask(&["a@1:b.c"])).await.unwrap(), "ran\n");
    }

    #[tokio::test(start_paused = true)]
    async fn readers_who_do_not_read_keep_nobody_out_for_long() {
        let held = tempfile::tempdir().unwrap();
        let journal = program(held.path(), "exec sleep 1000");
        let mut idle = Vec::new();
        for _ in 0..READERS {
            idle.push(journal.read(&ask(&["a"])).await.unwrap());
        }
        let began = Instant::now();
        journal.read(&ask(&["a"])).await.unwrap();
        assert!(began.elapsed() < TURN, "{:?}", began.elapsed());
        let error = idle[0].next().await.unwrap_err();
        assert_eq!(error.cause, "no end within 30 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_does_not_end_is_not_waited_for() {
        let held = tempfile::tempdir().unwrap();
        let journal = program(held.path(), "exec sleep 1000");
        let error = text(&journal, &ask(&["a"])).await.unwrap_err();
        assert_eq!(error.cause, "no end within 30 s");
    }
}
