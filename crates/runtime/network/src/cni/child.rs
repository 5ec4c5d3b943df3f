//! A plugin's process: bytes in, bytes out, a deadline and bounds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::time::Instant;

/// As much as a result may be.
const LONGEST: usize = 1 << 20;
/// As much of a plugin's complaints as is shown.
const COMPLAINT: usize = 4096;

/// What came of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// Its exit code; none after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Runs a program to its end. Blocks as long as that takes, and no longer than the patience; then everything that it
/// started in its group is killed.
pub(crate) fn run(mut command: Command, input: &[u8], patience: Duration) -> io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let outcome = attend(&mut child, input, Instant::now() + patience);
    if outcome.is_err() {
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _gone = kill_process_group(group, Signal::KILL);
        }
        let _killed = child.kill();
        let _reaped = child.wait();
    }
    outcome
}

fn attend(child: &mut Child, mut input: &[u8], deadline: Instant) -> io::Result<Output> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let mut stdin = child.stdin.take();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (Some(stdout), Some(stderr)) = (stdout, stderr) else { return Err(Errno::BADF.into()) };
    for descriptor in
        [stdout.as_fd(), stderr.as_fd()].into_iter().chain(stdin.as_ref().map(AsFd::as_fd))
    {
        let flags = rustix::fs::fcntl_getfl(descriptor)?;
        rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?;
    }
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    loop {
        // Before reading: what was written until the end is read after it.
        let is_over = wait(&ended, &stdout, &stderr, stdin.as_ref(), deadline)?;
        if let Some(pipe) = &stdin
            && !is_over
        {
            match rustix::io::write(pipe, input) {
                Ok(n) => input = input.get(n..).unwrap_or_default(),
                Err(Errno::AGAIN | Errno::INTR) => {}
                // A plugin need not read.
                Err(Errno::PIPE) => input = &[],
                Err(errno) => return Err(errno.into()),
            }
            if input.is_empty() {
                stdin = None;
            }
        }
        drain(stdout.as_fd(), &mut said)?;
        drain(stderr.as_fd(), &mut complained)?;
        complained.truncate(COMPLAINT);
        if said.len() > LONGEST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "its output is over 1 MB"));
        }
        if is_over {
            let status = child.wait()?;
            let (code, signal) = (status.code(), status.signal());
            return Ok(Output { code, signal, stdout: said, stderr: complained });
        }
    }
}

/// Until something happens; true if the process has ended.
fn wait(
    ended: &impl AsFd,
    stdout: &impl AsFd,
    stderr: &impl AsFd,
    stdin: Option<&impl AsFd>,
    deadline: Instant,
) -> io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long"));
    }
    let mut all = vec![PollFd::new(ended, PollFlags::IN)];
    all.push(PollFd::new(stdout, PollFlags::IN));
    all.push(PollFd::new(stderr, PollFlags::IN));
    all.extend(stdin.map(|it| PollFd::new(it, PollFlags::OUT)));
    // Closed pipes are ready for ever, so they must not keep this from waiting; a short wait is enough for the rest.
    let is_closed = |it: &PollFd<'_>| it.revents() == PollFlags::HUP;
    match poll(&mut all, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let keep: Vec<bool> = all.iter().map(|it| !is_closed(it)).collect();
    let mut keep = keep.into_iter();
    all.retain(|_| keep.next().unwrap_or(true));
    let wait = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
    match poll(&mut all, Some(&wait)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(all.first().is_some_and(|it| it.revents().contains(PollFlags::IN)))
}

/// Reads what is there.
fn drain(from: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<()> {
    let mut piece = [0; 4096];
    while into.len() <= LONGEST {
        match rustix::io::read(from, &mut piece) {
            Ok(0) | Err(Errno::AGAIN) => return Ok(()),
            Ok(n) => into.extend_from_slice(&piece[..n]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn input_output_and_code_come_through() {
        let output =
            run(program("cat; echo bad >&2; exit 3"), b"abc", Duration::from_secs(20)).unwrap();
        let expected = Output {
            code: Some(3),
            signal: None,
            stdout: b"abc".to_vec(),
            stderr: b"bad\n".to_vec(),
        };
        assert_eq!(output, expected);
    }

    #[test]
    fn more_input_than_a_pipe_holds_arrives() {
        let input = vec![b'x'; 300_000];
        let output = run(program("wc -c"), &input, Duration::from_secs(20)).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "300000");
        // One that reads nothing is no error.
        let output = run(program("exit 0"), &input, Duration::from_secs(20)).unwrap();
        assert_eq!(output.code, Some(0));
    }

    #[test]
    fn what_hangs_is_killed_and_what_floods_is_refused() {
        let hung = run(program("exec >&- 2>&-; sleep 60"), b"", Duration::from_millis(300));
        assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let flood = run(program("yes"), b"", Duration::from_secs(20));
        assert_eq!(flood.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        // A daemon that keeps the pipes open is not waited for.
        let left = run(program("sleep 5 & echo done"), b"", Duration::from_secs(4)).unwrap();
        assert_eq!(left.stdout, b"done\n");
    }
}
