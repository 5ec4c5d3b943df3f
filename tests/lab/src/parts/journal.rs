//! What writes journals that `journalctl` reads, out of Debian's packages without installing them:
//! no service may start on this machine.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::go::cache_directory;
use super::{Part, debian};
use crate::process::find_program;

/// The program's package, and the library that it needs and systemd does not.
const PACKAGES: [&str; 2] = ["systemd-journal-remote", "libmicrohttpd12"];
const PROGRAMS: [&str; 2] =
    ["lib/systemd/systemd-journal-remote", "usr/lib/systemd/systemd-journal-remote"];
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// One line of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalLine {
    /// The service's unit, `kubelet.service`.
    pub unit: String,
    /// When it was written, in seconds since 1970.
    pub at: u64,
    pub message: String,
}

/// Writes journals.
#[derive(Debug, Clone)]
pub struct JournalWriter {
    program: PathBuf,
    libraries: PathBuf,
}

/// Finds or downloads what writes a journal; `journalctl` itself is installed if it is not there.
#[must_use]
pub fn journal_writer() -> Part<JournalWriter> {
    find().into()
}

fn find() -> Result<JournalWriter> {
    if find_program("journalctl").is_none() {
        debian::install(&["systemd"])?;
    }
    let home = cache_directory()?.join("journal-remote");
    debian::unpack(&PACKAGES, &home)?;
    let mut programs = PROGRAMS.iter().map(|it| home.join(it));
    let program = programs.find(|it| it.exists()).context("the package has no program")?;
    Ok(JournalWriter { program, libraries: home.join(LIBRARIES) })
}

impl JournalWriter {
    /// Adds a journal of these lines, of this machine and this boot, to those that `journalctl`
    /// reads by itself.
    pub fn add(&self, name: &str, lines: &[JournalLine]) -> Result<()> {
        let machine = fs::read_to_string("/etc/machine-id").context("read /etc/machine-id")?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.replace('-', "");
        let directory = Path::new("/run/log/journal").join(machine.trim());
        fs::create_dir_all(&directory)?;
        let mut child = Command::new(&self.program)
            .env("LD_LIBRARY_PATH", &self.libraries)
            .arg(format!("--output={}", directory.join(name).with_extension("journal").display()))
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start systemd-journal-remote")?;
        let mut input = child.stdin.take().context("its input is piped")?;
        let text = exported(lines, machine.trim(), boot.trim());
        input.write_all(text.as_bytes())?;
        drop(input);
        let done = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "systemd-journal-remote: {said}");
        Ok(())
    }
}

/// Lines in systemd's format for export.
fn exported(lines: &[JournalLine], machine: &str, boot: &str) -> String {
    let lines = lines.iter().enumerate().map(|(n, line)| {
        let JournalLine { unit, at, message } = line;
        format!(
            "__CURSOR=s=1;i={n}\n__REALTIME_TIMESTAMP={at}000000\n__MONOTONIC_TIMESTAMP={n}000000\n\
             _BOOT_ID={boot}\n_MACHINE_ID={machine}\n_HOSTNAME=lab\n_SYSTEMD_UNIT={unit}\n_PID=1\n\
             SYSLOG_IDENTIFIER=program\nPRIORITY=6\nMESSAGE={message}\n\n"
        )
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_exported_one_after_the_other() {
        let line = |message: &str| JournalLine {
            unit: "a.service".to_owned(),
            at: 7,
            message: message.to_owned(),
        };
        let text = exported(&[line("one"), line("two")], "m", "b");
        assert_eq!(text.matches("\n\n").count(), 2);
        assert!(text.contains("__REALTIME_TIMESTAMP=7000000\n"), "{text}");
        assert!(text.ends_with("PRIORITY=6\nMESSAGE=two\n\n"), "{text}");
    }
}
