//! A program that is talked to: its output is collected while it runs, its input stays open until
//! it is closed.
//!
//! In: a command. Out: what it has said so far, and how it ended. Refuses: outliving its owner; a
//! session that is dropped is killed.

use std::io::{Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::wait_until;

/// After how long a line that nobody answered is said again.
const AGAIN: Duration = Duration::from_secs(3);

/// One program that runs.
pub(crate) struct Session {
    child: Child,
    input: Option<ChildStdin>,
    output: Heard,
    errors: Heard,
}

/// Bytes that a thread collects.
type Heard = Arc<Mutex<Vec<u8>>>;

impl Session {
    pub(crate) fn start(mut command: Command) -> Result<Session> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        Ok(Session {
            input: child.stdin.take(),
            output: collect(child.stdout.take()),
            errors: collect(child.stderr.take()),
            child,
        })
    }

    /// Writes to its input.
    pub(crate) fn say(&mut self, text: &str) -> Result<()> {
        let input = self.input.as_mut().context("its input is closed")?;
        input.write_all(text.as_bytes())?;
        Ok(input.flush()?)
    }

    /// Ends its input.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Everything it has written so far.
    pub(crate) fn output(&self) -> String {
        let bytes = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Everything it has complained about so far.
    pub(crate) fn errors(&self) -> String {
        let bytes = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until its output contains a text.
    pub(crate) fn wait_for(&mut self, text: &str, patience: Duration) -> Result<()> {
        wait_until(&format!("{text:?} to be said"), patience, || {
            let said = self.output();
            if said.contains(text) {
                return Ok(Some(()));
            }
            self.expect_running()?;
            bail!("it said {said:?} and {:?}", self.errors())
        })
    }

    /// Says a line until an answer to it is heard. To a container that somebody is attached to only
    /// what it writes from then on comes, and the runtime may hand over the first line before it
    /// listens: that answer is in the log alone.
    pub(crate) fn say_until_heard(
        &mut self,
        line: &str,
        answer: &str,
        patience: Duration,
    ) -> Result<()> {
        wait_until(&format!("{answer:?} to be said"), patience, || {
            self.expect_running()?;
            self.say(line)?;
            self.wait_for(answer, AGAIN)?;
            Ok(Some(()))
        })
    }

    /// Fails when it has ended.
    pub(crate) fn expect_running(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(
            ended.is_none(),
            "it ended with {ended:?}, said {:?} and {:?}",
            self.output(),
            self.errors()
        );
        Ok(())
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait_end(&mut self, patience: Duration) -> Result<ExitStatus> {
        let status = wait_until("it to end", patience, || Ok(self.child.try_wait()?))
            .with_context(|| format!("it said {:?} and {:?}", self.output(), self.errors()))?;
        // What it wrote last may still be on its way to the threads that collect it: each lets go
        // of its share at the end.
        wait_until("the rest of its output", patience, || {
            let is_all =
                Arc::strong_count(&self.output) == 1 && Arc::strong_count(&self.errors) == 1;
            Ok(is_all.then_some(()))
        })?;
        Ok(status)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // It is ours and must not outlive us; one that has ended already is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect<R: Read + Send + 'static>(stream: Option<R>) -> Heard {
    let heard = Heard::default();
    let shared = Arc::clone(&heard);
    thread::spawn(move || {
        let mut piece = [0; 8192];
        let Some(mut stream) = stream else { return };
        while let Ok(n @ 1..) = stream.read(&mut piece) {
            let mut bytes = shared.lock().unwrap_or_else(PoisonError::into_inner);
            bytes.extend_from_slice(&piece[..n]);
        }
    });
    heard
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_program_is_heard_told_and_ended() {
        let mut session = Session::start(Command::new("cat")).unwrap();
        session.say("one\n").unwrap();
        session.wait_for("one", SOON).unwrap();
        session.expect_running().unwrap();
        session.say_until_heard("two\n", "two\n", SOON).unwrap();
        session.close_input();
        assert!(session.wait_end(SOON).unwrap().success());
        assert!(session.output().starts_with("one\ntwo\n"));
        assert!(session.say("three").is_err());
        assert!(session.expect_running().is_err());
    }
}
