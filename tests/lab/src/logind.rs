//! A private bus with a stand-in for logind on it (`tests/logind`): says that the machine goes down,
//! and knows who holds it up. Ends with the value.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::process::{Daemon, find_program, send_signal};
use crate::wait::wait_until;

const START: Duration = Duration::from_secs(20);

/// A running bus and its logind.
pub struct Logind {
    log: PathBuf,
    socket: PathBuf,
    logind: Daemon,
    // Last, because it is what the other lives on.
    _bus: Daemon,
}

impl Logind {
    /// Starts both in `directory`, which is made; its path is short, as those of sockets are.
    pub fn start(program: &Path, directory: &Path) -> Result<Logind> {
        // What an earlier one said is not said again.
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        fs::create_dir_all(directory)?;
        let (socket, settings) = (directory.join("bus"), directory.join("bus.conf"));
        let allowed = "<allow send_destination=\"*\"/><allow receive_sender=\"*\"/><allow own=\"*\"/><allow user=\"*\"/>";
        fs::write(
            &settings,
            format!(
                "<busconfig><type>system</type><listen>unix:path={}</listen><auth>EXTERNAL</auth><policy context=\"default\">{allowed}</policy></busconfig>",
                socket.display()
            ),
        )?;
        let mut command = Command::new(find_program("dbus-daemon").context("no dbus-daemon")?);
        command
            .arg(format!("--config-file={}", settings.display()))
            .args(["--nofork", "--nopidfile"]);
        let bus = Daemon::spawn("bus", command, &directory.join("bus.log"))?;
        wait_until("the bus to listen", START, || Ok(socket.exists().then_some(())))?;
        let log = directory.join("logind.log");
        let mut command = Command::new(program);
        command.env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", socket.display()));
        let logind = Daemon::spawn("logind", command, &log)?;
        let started = Logind { log, socket, logind, _bus: bus };
        wait_until("logind to be there", START, || Ok(started.has_said("ready").then_some(())))?;
        Ok(started)
    }

    /// What an agent's environment must say to find it.
    #[must_use]
    pub fn environment(&self) -> (String, String) {
        let address = format!("unix:path={}", self.socket.display());
        ("DBUS_SYSTEM_BUS_ADDRESS".to_owned(), address)
    }

    /// The machine goes down.
    pub fn go_down(&self) -> Result<()> {
        send_signal(self.logind.pid(), Signal::USR1)
    }

    /// It stays up after all.
    pub fn stay_up(&self) -> Result<()> {
        send_signal(self.logind.pid(), Signal::USR2)
    }

    /// How often that line was said.
    #[must_use]
    pub fn n_said(&self, line: &str) -> usize {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter(|it| *it == line).count()
    }

    fn has_said(&self, line: &str) -> bool {
        self.n_said(line) > 0
    }
}
