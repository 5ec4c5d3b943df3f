//! The files that say what the monitor knows, for when it is gone or not asked. Each is replaced by
//! a rename; a power cut ends the containers too, so nothing is synced.

use std::os::fd::OwnedFd;

use ferrolet_runtime_protocol::VERSION;
use ferrolet_runtime_protocol::record::{ContainerRecord, MonitorRecord};
use prost::Message;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::failure::{Failure, Step};

/// Says that a monitor is there: `monitor`.
pub(super) fn write_monitor(directory: &OwnedFd) -> std::result::Result<(), Failure> {
    let record = MonitorRecord {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        start_ticks: start_ticks().unwrap_or(0),
        protocol: VERSION,
    };
    write(directory, "monitor", &record.encode_to_vec()).step("write record of monitor")
}

/// Whether a container's id can be the name of a directory.
pub(super) fn is_name(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 255
        && id.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_')
}

/// A container's file: `launched` or `exit`, in the container's directory.
pub(super) fn write_container(
    directory: &OwnedFd,
    name: &str,
    record: &ContainerRecord,
) -> Result<()> {
    match rustix::fs::mkdirat(directory, &*record.container, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::openat(directory, &*record.container, flags, Mode::empty())?;
    write(&place, name, &record.encode_to_vec())
}

fn write(directory: &OwnedFd, name: &str, content: &[u8]) -> Result<()> {
    let draft = format!(".{name}");
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, &*draft, flags, Mode::from_raw_mode(0o600))?;
    let mut rest = content;
    while !rest.is_empty() {
        let n = rustix::io::retry_on_intr(|| rustix::io::write(&file, rest))?;
        rest = &rest[n..];
    }
    rustix::fs::renameat(directory, &*draft, directory, name)
}

/// With the pid, a name that is never used again.
fn start_ticks() -> Option<u64> {
    let stat = std::fs::read("/proc/self/stat").ok()?;
    let stat = String::from_utf8_lossy(&stat).into_owned();
    // After the name, which may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The monitor's own OOM score.
pub(super) fn set_oom_score(score: i32) -> Result<()> {
    let path = "/proc/self/oom_score_adj";
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, score.to_string().as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_become_directories() {
        for (id, is_fine) in
            [("0af", true), ("web_1-b", true), ("", false), ("..", false), ("a/b", false)]
        {
            assert_eq!(is_name(id), is_fine, "{id}");
        }
    }

    #[test]
    fn a_record_replaces_the_one_before() {
        let place = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(place.path()).unwrap().into();
        let record = |pid| ContainerRecord { container: "web".into(), pid, ..Default::default() };
        for pid in [1, 2] {
            write_container(&directory, "launched", &record(pid)).unwrap();
        }
        let read = std::fs::read(place.path().join("web/launched")).unwrap();
        assert_eq!(ContainerRecord::decode(&*read), Ok(record(2)));
        assert!(start_ticks().is_some());
    }
}
