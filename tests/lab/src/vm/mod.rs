//! A virtual machine for what this one cannot show: cgroup v2 with every controller, and systemd
//! with logind.
//!
//! ```text
//! files of this machine ─┐
//! kernel modules ────────┼─► initramfs ─► qemu (emulated processor, no disk, no network) ─► code and output of one command
//! init, command ─────────┘
//! ```
//!
//! The guest holds copies of the named files at the same paths, with the libraries that they need,
//! so a program that finds its way here finds it there. With [`machine_with_systemd`] these files lie
//! over a Debian on a disk, and the command is one of systemd's services. Each [`Machine::run`] is a
//! boot of its own, and a boot is dear: one job does everything that needs a guest. The emulator is a
//! child of the bench and ends with it. Refuses: hardware acceleration (`/dev/kvm` opens on machines where no
//! guest boots), and a disk that could outlive the run: what a guest writes is forgotten.

mod archive;
mod files;
mod kernel;
mod luggage;
mod system;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::isolation::Bench;
use crate::parts::{Part, debian};
use crate::process::{Daemon, find_program, tail};
use crate::wait::{PATIENCE, wait_until};
use archive::Archive;
use kernel::Kernel;
use luggage::Luggage;

const EMULATOR: &str = "qemu-system-x86_64";
const INIT: &str = include_str!("../../assets/guest-init.sh");
const INIT_OF_SYSTEMD: &str = include_str!("../../assets/guest-systemd.sh");
/// The guest's last line, followed by the exit code.
const ENDED: &str = "ferrolet-guest ended with ";
/// How much longer things may take on an emulated processor.
const SLOWNESS: u32 = 4;

/// What boots virtual machines: an emulator and a kernel with its modules.
#[derive(Debug, Clone)]
pub struct Machine {
    emulator: PathBuf,
    kernel: Kernel,
    /// A system to start; without one a shell is all there is.
    disk: Option<PathBuf>,
}

/// What a virtual machine is to do.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// Files of this machine that the guest needs; libraries are found by themselves.
    pub files: Vec<PathBuf>,
    pub environment: Vec<(String, String)>,
    pub command: Vec<String>,
    /// How long the whole may take, boot included.
    pub patience: Duration,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub code: i32,
    /// Standard output and standard error together.
    pub output: String,
}

/// Finds or installs the emulator and a kernel; a few seconds and 60 MB the first time.
#[must_use]
pub fn machine() -> Part<Machine> {
    find_machine().into()
}

/// Like [`machine`], with a Debian in which systemd is the first process.
#[must_use]
pub fn machine_with_systemd() -> Part<Machine> {
    let found = find_machine()
        .and_then(|machine| Ok(Machine { disk: Some(system::find_or_make()?), ..machine }));
    found.into()
}

fn find_machine() -> Result<Machine> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("virtual machines are made for x86_64 only");
    }
    if find_program(EMULATOR).is_none() {
        debian::install(&["qemu-system-x86"])?;
    }
    Ok(Machine {
        emulator: find_program(EMULATOR).context("qemu is not installed")?,
        kernel: Kernel::find_or_download()?,
        disk: None,
    })
}

impl Machine {
    /// Boots a guest named `name`, runs the job in it and gives how it ended; everything of it is
    /// removed again. What the job says is handed to `heard` line by line as it comes.
    pub fn run(
        &self,
        bench: &Bench,
        name: &str,
        job: &Job,
        heard: &mut dyn FnMut(&str),
    ) -> Result<Ended> {
        let directory = bench.directory(&format!("vm-{name}"))?;
        let ended = self.boot(&directory, job, || bench.is_interrupted(), heard);
        fs::remove_dir_all(&directory)
            .with_context(|| format!("remove {}", directory.display()))?;
        ended
    }

    fn boot(
        &self,
        directory: &Path,
        job: &Job,
        is_interrupted: impl Fn() -> bool,
        heard: &mut dyn FnMut(&str),
    ) -> Result<Ended> {
        let initramfs = directory.join("initramfs");
        self.write_initramfs(&initramfs, job)?;
        let (console, output) = (directory.join("console"), directory.join("output"));
        let mut command = Command::new(&self.emulator);
        command
            .args(["-accel", "tcg,thread=multi", "-cpu", "max"])
            .args(["-m", "1536", "-smp", "2"])
            .args(["-nodefaults", "-display", "none", "-no-reboot"])
            .arg("-kernel")
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(&initramfs)
            .args(["-append", "console=ttyS0 loglevel=4 panic=-1 apparmor=0 random.trust_cpu=on"])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .arg("-serial")
            .arg(format!("file:{}", output.display()));
        if let Some(disk) = &self.disk {
            for disk in [disk, &write_luggage(directory, job)?] {
                // What is written goes to a file without a name in this directory.
                let drive = format!("file={},if=virtio,format=raw,snapshot=on", disk.display());
                command.args(["-drive", &drive]);
            }
            command.env("TMPDIR", directory);
        }
        let mut daemon = Daemon::spawn("qemu", command, &directory.join("qemu.log"))?;
        let mut n_heard = 0;
        // An interruption ends the wait like an end does.
        let ended = wait_until("the virtual machine to end", job.patience, || {
            let told = fs::read(&output).unwrap_or_default();
            n_heard += hear(told.get(n_heard..).unwrap_or_default(), heard);
            Ok(match (daemon.ended()?, is_interrupted()) {
                (None, false) => None,
                seen => Some(seen.0),
            })
        });
        daemon.kill()?;
        let told = fs::read(&output).unwrap_or_default();
        match ended {
            Ok(None) => bail!("interrupted"),
            Ok(Some(status)) if status.success() => parse(&told).with_context(|| {
                format!(
                    "the virtual machine stopped early\n{}{}",
                    tail(&console, 20),
                    tail(&output, 40)
                )
            }),
            Ok(Some(status)) => bail!("qemu ended with {status}\n{}", daemon.log_tail(20)),
            Err(error) => {
                let shown = format!("{}{}", tail(&console, 20), tail(&output, 40));
                Err(error.context(shown))
            }
        }
    }

    /// A guest without a system gets everything in memory.
    fn write_initramfs(&self, path: &Path, job: &Job) -> Result<()> {
        let mut archive = Archive::create(path)?;
        archive.copy("/bin/busybox", &busybox()?)?;
        for (name, module) in self.kernel.modules()? {
            archive.copy(&format!("/guest/modules/{name}"), &module)?;
        }
        if self.disk.is_some() {
            archive.text("/init", 0o755, INIT_OF_SYSTEMD)?;
            return archive.finish();
        }
        archive.text("/init", 0o755, INIT)?;
        archive.text("/guest/init", 0o755, INIT)?;
        archive.text("/etc/hosts", 0o644, "127.0.0.1 localhost\n")?;
        archive.text("/guest/command", 0o755, &script(job))?;
        archive.text("/guest/patience", 0o644, &patience(job))?;
        for file in files::with_libraries(&job.files)? {
            archive.mirror(&file)?;
        }
        archive.finish()
    }
}

fn write_luggage(directory: &Path, job: &Job) -> Result<PathBuf> {
    let mut luggage = Luggage::new(&directory.join("luggage"))?;
    luggage.text("/guest/command", &script(job))?;
    luggage.text("/guest/patience", &patience(job))?;
    luggage.copy(Path::new("/usr/bin/busybox"), &busybox()?)?;
    for file in files::with_libraries(&job.files)? {
        luggage.mirror(&file)?;
    }
    let disk = directory.join("luggage.disk");
    luggage.finish(&disk)?;
    Ok(disk)
}

fn busybox() -> Result<PathBuf> {
    find_program("busybox").context("busybox is not installed")
}

/// After how many seconds the guest says what it is doing.
fn patience(job: &Job) -> String {
    (job.patience.as_secs() * 9 / 10).to_string()
}

/// The job as a shell script.
fn script(job: &Job) -> String {
    let mut text = format!("#!/bin/busybox sh\nexport {PATIENCE}={SLOWNESS}\n");
    for (key, value) in &job.environment {
        text.push_str(&format!("export {key}={}\n", quoted(value)));
    }
    let words: Vec<String> = job.command.iter().map(|word| quoted(word)).collect();
    text.push_str(&format!("exec {}\n", words.join(" ")));
    text
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Hands on the complete lines, and says how many bytes they were.
fn hear(told: &[u8], heard: &mut dyn FnMut(&str)) -> usize {
    let end = told.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    String::from_utf8_lossy(&told[..end]).lines().for_each(heard);
    end
}

/// What came over the serial line: output, and the line that ends it.
fn parse(told: &[u8]) -> Result<Ended> {
    let text = String::from_utf8_lossy(told).replace("\r\n", "\n");
    let (output, code) =
        text.rsplit_once(ENDED).context("the guest did not say how its command ended")?;
    Ok(Ended {
        code: code.trim().parse().context("the guest's exit code")?,
        output: output.trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_says_is_output_and_a_code() {
        let ended = parse(b"one\r\ntwo\r\n\r\nferrolet-guest ended with 3\r\n").unwrap();
        assert_eq!((ended.code, ended.output.as_str()), (3, "one\ntwo"));
        assert!(parse(b"one\r\n").is_err());
        assert!(parse(b"ferrolet-guest ended with ").is_err());
    }

    #[test]
    fn only_complete_lines_are_heard() {
        let mut lines = Vec::new();
        let mut note = |line: &str| lines.push(line.to_owned());
        assert_eq!(hear(b"one\r\ntwo\r\nthr", &mut note), 10);
        assert_eq!(hear(b"thr", &mut note), 0);
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn words_reach_the_guest_unchanged() {
        let job = Job {
            environment: vec![("A".to_owned(), "it's $HOME".to_owned())],
            command: vec!["echo".to_owned(), "a b".to_owned()],
            ..Job::default()
        };
        let text = script(&job);
        assert!(text.contains("export A='it'\\''s $HOME'\n"), "{text}");
        assert!(text.ends_with("exec 'echo' 'a b'\n"), "{text}");
    }
}
