//! Ending what still runs in a pod's cgroup, and taking the cgroup down.
//!
//! Blocking passes; the tree repeats them with pauses. v2 has `cgroup.kill` and tells when it is
//! empty; on v1 (and on kernels without it) processes are killed one by one. A process id can be
//! reused between reading and killing, so each process is pinned by a descriptor first and killed
//! only if the cgroup still lists it afterwards.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::fd::OwnedFd,
};

use ferrolet_linux::{
    cgroups::CgroupName,
    offload::{never, refused},
    rooted::{Kind, Rooted},
};
use ferrolet_ports::HostError;
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::place::{Place, is_gone, read_text};

/// Cgroups nested deeper than this are nobody's honest work.
const DEEPEST: usize = 128;
/// Room for half a million process ids.
const PROCS_LIMIT: usize = 4 << 20;

/// Whether a pass left something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swept {
    /// Nothing is left.
    Clean,
    /// Processes are still listed; they may be on their way out.
    Running,
    /// A cgroup was busy, so processes were still leaving it.
    Busy,
}

/// Kills once whatever is in the named cgroups, in every hierarchy.
pub(super) fn kill(places: &[Place], names: &[CgroupName]) -> Result<Swept, HostError> {
    let mut swept = Swept::Clean;
    for place in places {
        for name in names {
            let Some(cgroup) = place.find(name)? else {
                continue;
            };
            let attempt = || format!("kill what runs in cgroup {}", place.shown(name));
            refuse_own(name, attempt)?;
            let left = match place.is_v2().then(|| kill_at_once(&cgroup)) {
                Some(Ok(left)) => Ok(left),
                // No such file: a kernel before 5.14.
                Some(Err(cause)) if !is_gone(&cause) => Err(cause),
                _ => kill_one_by_one(&cgroup),
            };
            match left {
                Ok(Swept::Clean) => {}
                Ok(_) => swept = Swept::Running,
                Err(cause) if is_gone(&cause) => {}
                Err(cause) => return Err(refused(attempt(), &cause)),
            }
        }
    }
    Ok(swept)
}

/// Removes the named cgroups with all below them, in every hierarchy. Absent is success.
pub(super) fn remove(places: &[Place], names: &[CgroupName]) -> Result<Swept, HostError> {
    let mut swept = Swept::Clean;
    for place in places {
        for name in names {
            let Some((component, parents)) = name.components().split_last() else {
                continue;
            };
            let parent = CgroupName::parse(&parents.join("/"));
            let Some(parent) = place.find(&parent)? else {
                continue;
            };
            match remove_below(&parent, component.as_ref(), 0) {
                Ok(()) => {}
                Err(cause) if is_busy(&cause) => swept = Swept::Busy,
                Err(cause) => {
                    let attempt = format!("remove cgroup {}", place.shown(name));
                    return Err(refused(attempt, &cause));
                }
            }
        }
    }
    Ok(swept)
}

/// A node agent that stands inside a pod's cgroup must not end itself along with the pod.
fn refuse_own(name: &CgroupName, attempt: impl FnOnce() -> String) -> Result<(), HostError> {
    let own = std::fs::read("/proc/self/cgroup").unwrap_or_default();
    if stands_in(&String::from_utf8_lossy(&own), &name.to_cgroupfs()) {
        return Err(never(attempt(), "this process stands in it"));
    }
    Ok(())
}

/// Whether a `/proc/PID/cgroup` names the path or something below it, in any hierarchy.
fn stands_in(proc_cgroup: &str, path: &str) -> bool {
    proc_cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|own| {
        own.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn kill_at_once(cgroup: &Rooted) -> io::Result<Swept> {
    cgroup.write_existing("cgroup.kill", b"1")?;
    let events = read_text(cgroup, "cgroup.events")?;
    if events.lines().any(|line| line == "populated 1") {
        Ok(Swept::Running)
    } else {
        Ok(Swept::Clean)
    }
}

fn kill_one_by_one(cgroup: &Rooted) -> io::Result<Swept> {
    let listed = processes(cgroup)?;
    if listed.is_empty() {
        return Ok(Swept::Clean);
    }
    let mut pinned: BTreeMap<i32, OwnedFd> = BTreeMap::new();
    for id in listed {
        // Zero stands for a process that our namespace cannot name; it stays listed and is reported
        // as running.
        let Some(pid) = Pid::from_raw(id).filter(|_| id > 0) else {
            continue;
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pin) => {
                pinned.insert(id, pin);
            }
            Err(Errno::SRCH) => {}
            Err(refusal) => return Err(refusal.into()),
        }
    }
    for id in processes(cgroup)? {
        if let Some(pin) = pinned.get(&id) {
            match pidfd_send_signal(pin, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
    }
    Ok(Swept::Running)
}

/// Every process in the cgroup and below it.
fn processes(cgroup: &Rooted) -> io::Result<Vec<i32>> {
    let mut ids = Vec::new();
    gather(cgroup, 0, &mut ids)?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn gather(cgroup: &Rooted, depth: usize, ids: &mut Vec<i32>) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(too_deep());
    }
    match cgroup.read("cgroup.procs", PROCS_LIMIT) {
        Ok(text) => ids.extend(whole_lines(&String::from_utf8_lossy(&text))),
        Err(cause) if is_gone(&cause) => {}
        Err(cause) => return Err(cause),
    }
    for child in subdirectories(cgroup)? {
        match cgroup.directory(&child) {
            Ok(child) => gather(&child, depth + 1, ids)?,
            Err(cause) if is_gone(&cause) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// The numbers of complete lines: a number that was cut off would name another process.
fn whole_lines(text: &str) -> impl Iterator<Item = i32> + '_ {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.parse().ok())
}

fn remove_below(parent: &Rooted, name: &OsStr, depth: usize) -> io::Result<()> {
    // Most are empty by now, and one call is enough.
    match parent.remove_directory(name) {
        Ok(()) => return Ok(()),
        Err(cause) if is_busy(&cause) || is_not_empty(&cause) => {}
        Err(cause) => return Err(cause),
    }
    if depth > DEEPEST {
        return Err(too_deep());
    }
    match parent.directory(name) {
        Ok(cgroup) => {
            for child in subdirectories(&cgroup)? {
                remove_below(&cgroup, &child, depth + 1)?;
            }
        }
        Err(cause) if is_gone(&cause) => return Ok(()),
        Err(cause) => return Err(cause),
    }
    parent.remove_directory(name)
}

/// A container with cgroups of its own names them as it likes, so names are bytes.
fn subdirectories(cgroup: &Rooted) -> io::Result<Vec<OsString>> {
    let entries = match cgroup.entries() {
        Ok(entries) => entries,
        Err(cause) if is_gone(&cause) => return Ok(Vec::new()),
        Err(cause) => return Err(cause),
    };
    Ok(entries
        .into_iter()
        .filter(|entry| entry.kind == Kind::Directory)
        .map(|entry| entry.name)
        .collect())
}

fn is_busy(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

fn is_not_empty(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(Errno::NOTEMPTY.raw_os_error())
}

fn too_deep() -> io::Error {
    io::Error::other(format!("cgroups are nested deeper than {DEEPEST} levels"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_whose_name_is_no_text_goes_with_its_pod() {
        use std::os::unix::ffi::OsStrExt as _;
        let held = tempfile::tempdir().unwrap();
        let inner = held.path().join("pod").join(OsStr::from_bytes(b"\xff")).join("below");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join("cgroup.procs"), "7\n").unwrap();
        let root = Rooted::open(held.path()).unwrap();
        assert_eq!(processes(&root).unwrap(), [7]);
        std::fs::remove_file(inner.join("cgroup.procs")).unwrap();
        remove_below(&root, OsStr::new("pod"), 0).unwrap();
        assert_eq!(root.entries().unwrap(), []);
    }

    #[test]
    fn a_number_that_was_cut_off_is_not_taken_for_a_process() {
        let check = |text: &str, ids: &[i32]| {
            assert_eq!(whole_lines(text).collect::<Vec<_>>(), ids, "{text}");
        };
        check("", &[]);
        check("12\n345\n", &[12, 345]);
        check("12\n345", &[12]);
        check("x\n7\n", &[7]);
    }

    #[test]
    fn own_cgroup_is_recognised_by_whole_components() {
        let own = "4:memory:/kubepods/pod1/abc\n0::/init.scope\n";
        assert!(stands_in(own, "/kubepods/pod1"));
        assert!(stands_in(own, "/kubepods/pod1/abc"));
        assert!(!stands_in(own, "/kubepods/pod"));
        assert!(!stands_in(own, "/kubepods/pod2"));
    }
}
