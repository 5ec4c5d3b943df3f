//! Child processes of the bench: long-running ones with a log file, and short ones whose output
//! matters.
//!
//! A `Daemon` runs in a process group of its own, so that Ctrl-C in the terminal reaches only the
//! driver, and is killed when dropped.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::wait_until;

/// A child that is meant to run until it is told to stop.
pub struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command` with standard output and error appended to `log`.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Daemon> {
        let out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open log {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name} ({command:?})"))?;
        Ok(Daemon { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// The process id, in the namespace of the caller.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The status if the process has ended by itself.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Fails with the end of the log when the process is no longer there.
    pub fn expect_running(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}\n{}", self.name, self.log_tail(30)),
        }
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            self.child.kill().with_context(|| format!("kill {}", self.name))?;
            self.child.wait()?;
        }
        Ok(())
    }

    /// Asks the process to stop and waits; after `patience` it is killed and that is an error.
    pub fn terminate(&mut self, patience: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        self.signal(Signal::TERM)?;
        let ended = wait_until(&format!("{} to stop on SIGTERM", self.name), patience, || {
            Ok(self.child.try_wait()?)
        });
        if ended.is_err() {
            self.kill()?;
        }
        ended
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        send_signal(self.pid(), signal).with_context(|| format!("signal {}", self.name))
    }

    /// Everything logged so far; a log that is not there yet is empty.
    #[must_use]
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of the log, indented, under the log's path.
    #[must_use]
    pub fn log_tail(&self, n_lines: usize) -> String {
        tail(&self.log, n_lines)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing to tell anyone about any more: the process is ours and must not outlive us.
        let _ = self.kill();
    }
}

/// The last lines of a text file, indented, under its path.
#[must_use]
pub fn tail(path: &Path, n_lines: usize) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(n_lines)..];
    let mut out = format!("    -- last lines of {}\n", path.display());
    for line in shown {
        out.push_str("    | ");
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Sends a signal to a process by number.
pub fn send_signal(pid: u32, signal: Signal) -> Result<()> {
    let raw = i32::try_from(pid).context("process id out of range")?;
    let pid = Pid::from_raw(raw).context("process id 0")?;
    kill_process(pid, signal)?;
    Ok(())
}

/// Runs a command to its end and gives its standard output; a failure carries its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let done =
        command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!("{command:?} ended with {}: {}", done.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Shorthand for [`output`] of a program with arguments.
pub fn call(program: &str, args: &[&str]) -> Result<String> {
    output(Command::new(program).args(args))
}

/// One line to the person who waits.
pub fn say(text: &str) {
    // A closed standard error is no reason to stop a test run.
    let _ = writeln!(std::io::stderr(), "lab: {text}");
}

/// Whether a program of that name is on the PATH or in the system's usual places; gives its path.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/go/bin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Copies a log or state file for someone to read later; a source that is not there is skipped.
pub fn keep(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        return Ok(());
    }
    let mut source = File::open(from)?;
    let mut target = File::create(to)?;
    std::io::copy(&mut source, &mut target)?;
    Ok(())
}
