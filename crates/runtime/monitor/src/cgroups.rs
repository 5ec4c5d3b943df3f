//! Control groups as a plan says: made, joined, killed, removed.
//!
//! [`kill`] and [`remove`] are also for the service, when a pod's monitor is gone.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use ferrolet_runtime_protocol::launch::{Cgroup, Cgroups, Setting, Write};
use ferrolet_runtime_sys::bpf;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::failure::{Failure, Step};

/// As much of a cgroup's file as is read.
const MAX_FILE: usize = 64 * 1024;
/// Frozen processes are killed in rounds, because some may have been born meanwhile.
const N_ROUNDS: usize = 16;

/// Makes the groups and writes their settings.
pub(crate) fn make(cgroups: &Cgroups) -> Result<(), Failure> {
    for group in &cgroups.groups {
        make_group(group)?;
        if group.is_own && group.is_unified && !cgroups.device_filter.is_empty() {
            bpf::attach_device_filter(open(&group.directory)?, &cgroups.device_filter)
                .step_on("restrict devices of cgroup", &group.directory)?;
        }
    }
    Ok(())
}

fn make_group(group: &Cgroup) -> Result<(), Failure> {
    match rustix::fs::mkdir(&*group.directory, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno).step_on("make cgroup", &group.directory),
    }
    let directory = Path::new(&group.directory);
    for setting in &group.settings {
        let path = directory.join(&setting.file);
        let written = match setting.write() {
            Write::Must => put(&path, &setting.value),
            Write::May => {
                let _not_taken = put(&path, &setting.value);
                Ok(())
            }
            Write::Inherit => inherit(directory, setting),
        };
        written.step_on("set cgroup", &path.to_string_lossy())?;
    }
    Ok(())
}

/// A v1 cpuset takes nobody in before it has processors and memory nodes.
fn inherit(directory: &Path, setting: &Setting) -> Result<(), Errno> {
    let own = directory.join(&setting.file);
    let is_empty = |value: &[u8]| value.trim_ascii().is_empty();
    if !is_empty(&read(&own)?) {
        return Ok(());
    }
    let parent = directory.parent().ok_or(Errno::NOENT)?.join(&setting.file);
    put(&own, String::from_utf8_lossy(&read(&parent)?).trim())
}

/// This process goes into its v1 groups. The v2 group it was born in.
pub(crate) fn join(cgroups: &Cgroups) -> Result<(), Failure> {
    for group in cgroups.groups.iter().filter(|it| it.is_own && !it.is_unified) {
        let path = Path::new(&group.directory).join("cgroup.procs");
        put(&path, "0").step_on("join cgroup", &group.directory)?;
    }
    Ok(())
}

/// The v2 group to be born in.
pub(crate) fn birthplace(cgroups: &Cgroups) -> Result<Option<OwnedFd>, Failure> {
    let group = cgroups.groups.iter().find(|it| it.is_own && it.is_unified);
    group.map(|it| open(&it.directory)).transpose()
}

/// How often the kernel killed something in there for want of memory.
pub(crate) fn oom_kills(cgroups: &Cgroups) -> u64 {
    if cgroups.oom_events.is_empty() {
        return 0;
    }
    read(Path::new(&cgroups.oom_events)).map_or(0, |content| count(&content, "oom_kill"))
}

/// The number behind a word at the beginning of a line.
fn count(content: &[u8], word: &str) -> u64 {
    let text = String::from_utf8_lossy(content);
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.filter(|(name, _)| *name == word).find_map(|(_, n)| n.trim().parse().ok());
    found.unwrap_or(0)
}

/// Kills everything in there: at once where the kernel can, otherwise while it stands still.
pub fn kill(cgroups: &Cgroups) {
    if !cgroups.kill.is_empty() && put(&Path::new(&cgroups.kill).join("cgroup.kill"), "1").is_ok() {
        return;
    }
    if cgroups.freezer.is_empty() {
        return;
    }
    let freezer = Path::new(&cgroups.freezer);
    for _ in 0..N_ROUNDS {
        // What is frozen bears no children; what is killed while frozen dies when it thaws.
        let _may_be_slow = put(&freezer.join("freezer.state"), "FROZEN");
        let content = read(&freezer.join("cgroup.procs")).unwrap_or_default();
        let text = String::from_utf8_lossy(&content).into_owned();
        let pids: Vec<Pid> =
            text.lines().filter_map(|it| it.parse().ok()).filter_map(Pid::from_raw).collect();
        for pid in &pids {
            let _gone = rustix::process::kill_process(*pid, Signal::KILL);
        }
        let _thawed = put(&freezer.join("freezer.state"), "THAWED");
        if pids.is_empty() {
            return;
        }
    }
}

/// Removes the container's own groups; whether nothing is left of them.
#[must_use]
pub fn remove(cgroups: &Cgroups) -> bool {
    let own = cgroups.groups.iter().filter(|it| it.is_own);
    let left = own.filter(|group| !remove_tree(Path::new(&group.directory), 8));
    left.count() == 0
}

/// A container may have made groups below its own.
fn remove_tree(directory: &Path, depth: usize) -> bool {
    match rustix::fs::rmdir(directory) {
        Ok(()) | Err(Errno::NOENT) => return true,
        Err(_) if depth == 0 => return false,
        Err(_) => {}
    }
    let Ok(entries) = fs::read_dir(directory) else { return false };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            remove_tree(&entry.path(), depth - 1);
        }
    }
    matches!(rustix::fs::rmdir(directory), Ok(()) | Err(Errno::NOENT))
}

fn open(directory: &str) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty()).step_on("open cgroup", directory)
}

fn put(path: &Path, value: &str) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    // The kernel takes a setting in one piece.
    rustix::io::retry_on_intr(|| rustix::io::write(&file, value.as_bytes()))?;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut content = Vec::new();
    let limited = io::Read::take(fs::File::from(file), MAX_FILE as u64);
    io::Read::read_to_end(&mut { limited }, &mut content)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_counted_in_both_versions_of_the_file() {
        let v1 = b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        let v2 = b"low 0\nhigh 0\nmax 5\noom 2\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(count(v1, "oom_kill"), 3);
        assert_eq!(count(v2, "oom_kill"), 1);
        assert_eq!(count(b"oom_kill many\n", "oom_kill"), 0);
    }
}
