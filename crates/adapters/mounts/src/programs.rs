//! The host's own programs for file systems and disks: `mount`, `blkid`, `mkfs`, `fsck`, `losetup`,
//! `iscsiadm`, `multipath`, and drivers of the administrator. Never through a shell.
//!
//! In: words. Out: nothing, or what the program said, bounded, in upstream's form. A program that
//! hangs is ended with its deadline, and with whoever waits for it, together with what it started;
//! so it holds up its own pod only. Those that write to a disk are the business of
//! [`DeviceWriters`], which ends none.

use std::{path::Path, time::Duration};

use ferrolet_linux::children::{Bounds, Ended, NotRun, run_within};
use ferrolet_ports::{DeviceMount, HostError, MountAccess, Retry};

use super::device_writers::DeviceWriters;

/// Upstream gives a mount two minutes.
const DEADLINE: Duration = Duration::from_secs(120);
/// What a program says beyond this is not kept.
const LONGEST_OUTPUT: u64 = 4096;

/// `mount -t KIND -o OPTIONS SOURCE TARGET`.
pub(super) async fn mount(
    kind: &str,
    source: &str,
    target: &Path,
    options: &[String],
) -> Result<(), HostError> {
    let target = target.display().to_string();
    let mut words = Vec::new();
    if !kind.is_empty() {
        words.extend(["-t".to_owned(), kind.to_owned()]);
    }
    if !options.is_empty() {
        words.extend(["-o".to_owned(), options.join(",")]);
    }
    // Nothing after the dashes is taken for an option, whatever a volume's source looks like.
    words.extend(["--".to_owned(), source.to_owned(), target]);
    let ended = run("mount", &words).await?;
    match ended.code {
        Some(0) => Ok(()),
        code => Err(HostError {
            attempt: "mount failed".to_owned(),
            cause: format!(
                "{}\nMounting command: mount\nMounting arguments: {}\nOutput: {}\n",
                status(code),
                words.join(" "),
                ended.output
            ),
            retry: Retry::Later,
        }),
    }
}

/// Makes a file system where there is none, checks one that is there, and mounts it.
pub(super) async fn format_and_mount(
    writers: &DeviceWriters,
    ask: &DeviceMount,
    target: &Path,
) -> Result<(), HostError> {
    let mut options = ask.options.clone();
    if ask.access == MountAccess::ReadOnly {
        options.push("ro".to_owned());
    }
    options.push("defaults".to_owned());
    let device = &ask.device;
    let refused = |cause: String| HostError {
        attempt: format!(
            "failed to mount device {device} at {} (fstype: {})",
            target.display(),
            ask.file_system
        ),
        cause,
        retry: Retry::Later,
    };
    writers.settle(device).await?;
    match file_system_of(device).await? {
        None if ask.access == MountAccess::ReadOnly => {
            return Err(refused(format!(
                "cannot mount unformatted disk {device} as we are manipulating it in read-only mode"
            )));
        }
        None => {
            let mut words: Vec<String> = Vec::new();
            if ask.file_system.starts_with("ext") {
                // A whole device, and nothing of it kept for root.
                words.extend(["-F".to_owned(), "-m0".to_owned()]);
            }
            words.push(device.clone());
            let program = format!("mkfs.{}", plain_kind(&ask.file_system)?);
            let ended = writers.run(device, &program, words).await?;
            let ended = ended.map_err(|refusal| refused(refusal.to_string()))?;
            if ended.code != Some(0) {
                return Err(refused(format!(
                    "{program}: {}: {}",
                    status(ended.code),
                    ended.output
                )));
            }
        }
        Some(_) if ask.access == MountAccess::ReadWrite => {
            let ended = writers.run(device, "fsck", vec!["-a".to_owned(), device.clone()]).await?;
            judge_check(device, ended)?;
        }
        Some(_) => {}
    }
    mount(&ask.file_system, device, target, &options).await
}

/// Has a mounted file system use all of its device, with the program that belongs to it.
pub(super) async fn grow_files(
    writers: &DeviceWriters,
    device: &str,
    path: &str,
) -> Result<(), HostError> {
    let kind = file_system_of(device).await?;
    let (program, words) = match kind.as_deref() {
        Some("ext3" | "ext4") => ("resize2fs", vec![device]),
        Some("xfs") => ("xfs_growfs", vec!["-d", path]),
        Some("btrfs") => ("btrfs", vec!["filesystem", "resize", "max", path]),
        other => {
            return Err(HostError {
                attempt: format!("resize of device {device} mounted at {path} failed"),
                cause: format!("resize of format {} is not supported", other.unwrap_or_default()),
                retry: Retry::Later,
            });
        }
    };
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let attempt = format!("resize of device {device} failed");
    match writers.run(device, program, words).await? {
        Ok(ended) => succeeded(&attempt, ended),
        Err(refusal) => Err(HostError { attempt, cause: refusal.to_string(), retry: Retry::Later }),
    }
}

/// Keeps a device open by a loop device over it, so that it cannot be taken away and replaced by
/// another of its name.
pub(super) async fn lock_device(held: &Path) -> Result<(), HostError> {
    let words = ["-f".to_owned(), held.display().to_string()];
    let ended = run("losetup", &words).await?;
    succeeded(&format!("lock device {}", held.display()), ended)
}

/// Takes such a lock away.
pub(super) async fn unlock_device(lock: &Path) -> Result<(), HostError> {
    let words = ["-d".to_owned(), lock.display().to_string()];
    let ended = run("losetup", &words).await?;
    succeeded(&format!("unlock device {}", lock.display()), ended)
}

fn succeeded(attempt: &str, ended: Ended) -> Result<(), HostError> {
    match ended.code {
        Some(0) => Ok(()),
        code => Err(HostError {
            attempt: attempt.to_owned(),
            cause: format!("{}: {}", status(code), ended.output),
            retry: Retry::Later,
        }),
    }
}

/// What is on the device; `None` when it is blank.
async fn file_system_of(device: &str) -> Result<Option<String>, HostError> {
    let words = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device];
    let ended = run("blkid", &words.map(str::to_owned)).await?;
    match ended.code {
        Some(2) => Ok(None),
        Some(0) => {
            let mut lines = ended.output.lines();
            let kind = lines.find_map(|line| line.strip_prefix("TYPE="));
            // Partitions are data too: such a disk is never formatted.
            Ok(Some(kind.unwrap_or("unknown data, probably partitions").to_owned()))
        }
        code => Err(HostError {
            attempt: format!("blkid {device}"),
            cause: format!("{}: {}", status(code), ended.output),
            retry: Retry::Later,
        }),
    }
}

/// Whether a file system may be mounted for writing after its check, which repairs what can be
/// repaired without asking. One that was not brought to its end may have left it half repaired.
fn judge_check(device: &str, check: Result<Ended, NotRun>) -> Result<(), HostError> {
    /// Bits of the exit code: errors are left, and somebody broke it off.
    const UNCORRECTED: i32 = 4;
    const BROKEN_OFF: i32 = 32;
    let refused =
        |attempt: String, cause: String| Err(HostError { attempt, cause, retry: Retry::Later });
    match check {
        // A host without the program mounts unchecked, as upstream does.
        Err(NotRun::Missing(_)) => Ok(()),
        Err(refusal) => refused(format!("'fsck' of device {device}"), refusal.to_string()),
        Ok(Ended { code: Some(code), output }) if code & UNCORRECTED != 0 => refused(
            format!("'fsck' found errors on device {device} but could not correct them"),
            output,
        ),
        Ok(Ended { code: Some(code), .. }) if code & BROKEN_OFF == 0 => {
            if code > UNCORRECTED {
                tracing::warn!(device, code, "File system could not be checked");
            }
            Ok(())
        }
        Ok(Ended { code, output }) => refused(
            format!("'fsck' of device {device} was broken off"),
            format!("{}: {output}", status(code)),
        ),
    }
}

fn plain_kind(kind: &str) -> Result<&str, HostError> {
    let is_plain = !kind.is_empty() && kind.bytes().all(|it| it.is_ascii_alphanumeric());
    if is_plain {
        return Ok(kind);
    }
    Err(HostError {
        attempt: "make a file system".to_owned(),
        cause: format!("{kind:?} is not the name of one"),
        retry: Retry::Never,
    })
}

/// Runs a program to its end.
pub(super) async fn run(program: &str, words: &[String]) -> Result<Ended, HostError> {
    let bounds = Bounds { time: DEADLINE, output: LONGEST_OUTPUT };
    run_within(program, words, bounds).await.map_err(|refusal| HostError {
        attempt: program.to_owned(),
        cause: refusal.to_string(),
        retry: Retry::Later,
    })
}

/// How a program ended, in upstream's words.
pub(super) fn status(code: Option<i32>) -> String {
    match code {
        Some(code) => format!("exit status {code}"),
        None => "ended by a signal".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_checked_to_the_end_is_not_mounted_for_writing() {
        let check = |ended: Result<Option<i32>, NotRun>, expected: Result<(), &str>| {
            let ended = ended.map(|code| Ended { code, output: String::new() });
            let judged = judge_check("/dev/x", ended).map_err(|error| error.attempt);
            assert_eq!(judged.as_ref().map_err(String::as_str).copied(), expected);
        };
        let left = Err("'fsck' found errors on device /dev/x but could not correct them");
        let broken_off = Err("'fsck' of device /dev/x was broken off");
        check(Ok(Some(0)), Ok(()));
        check(Ok(Some(1)), Ok(()));
        // Nothing is known of this kind of file system.
        check(Ok(Some(8)), Ok(()));
        check(Ok(Some(4)), left);
        check(Ok(Some(12)), left);
        check(Ok(Some(32)), broken_off);
        check(Ok(None), broken_off);
        check(Err(NotRun::Missing("fsck".to_owned())), Ok(()));
        check(Err(NotRun::Overdue(DEADLINE)), Err("'fsck' of device /dev/x"));
    }
}
