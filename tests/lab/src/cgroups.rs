//! The bench's own corner of the cgroup trees: made before an agent starts, removed after
//! everything ended.
//!
//! Works on every hierarchy of a v1 machine and on the one tree of a v2 machine. Removing kills
//! what still runs inside: only groups whose name carries the run id are ever handed to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::process::send_signal;
use crate::wait::wait_until;

const MOUNT: &str = "/sys/fs/cgroup";

/// Whether this machine has the one tree of cgroup v2.
#[must_use]
pub fn is_v2() -> bool {
    Path::new(MOUNT).join("cgroup.controllers").exists()
}

/// Every hierarchy: one directory per v1 controller, or the v2 root itself.
pub fn hierarchies() -> Result<Vec<PathBuf>> {
    let root = Path::new(MOUNT);
    if is_v2() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(root).context("read /sys/fs/cgroup")? {
        let entry = entry?;
        // Links such as cpuacct -> cpu,cpuacct name a hierarchy a second time.
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Makes `group` (an absolute name such as `/ferrolet-ab12cd/node`) in every hierarchy.
pub fn create(group: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let mut at = hierarchy;
        for part in group.trim_matches('/').split('/') {
            let parent = at.clone();
            at.push(part);
            if !at.exists() {
                fs::create_dir(&at).with_context(|| format!("create cgroup {}", at.display()))?;
            }
            // A new v1 cpuset is empty and would refuse every process.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let (from, to) = (parent.join(file), at.join(file));
                if from.exists() && to.exists() && fs::read_to_string(&to)?.trim().is_empty() {
                    fs::write(&to, fs::read_to_string(&from)?.trim())?;
                }
            }
        }
    }
    Ok(())
}

/// All existing directories of `group`, over all hierarchies, deepest first.
pub fn directories(group: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for hierarchy in hierarchies()? {
        collect(&hierarchy.join(group.trim_start_matches('/')), &mut found);
    }
    Ok(found)
}

/// Process ids anywhere inside `group`.
pub fn processes(group: &str) -> Result<Vec<u32>> {
    let mut pids: Vec<u32> = directories(group)?
        .iter()
        .filter_map(|dir| fs::read_to_string(dir.join("cgroup.procs")).ok())
        .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<u32>>())
        .filter(|pid| *pid != 0)
        .collect();
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Kills what runs inside `group` and removes it everywhere.
pub fn remove(group: &str) -> Result<()> {
    wait_until(&format!("cgroup {group} to be empty and removed"), Duration::from_secs(10), || {
        for pid in processes(group)? {
            // It may have ended on its own since we looked.
            let _ = send_signal(pid, Signal::KILL);
        }
        for dir in directories(group)? {
            fs::remove_dir(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        Ok(Some(()))
    })
}

/// One value of a group's file, looked up in the hierarchy that has it.
pub fn value(group: &str, file: &str) -> Result<String> {
    for hierarchy in hierarchies()? {
        let path = hierarchy.join(group.trim_start_matches('/')).join(file);
        if path.exists() {
            return Ok(fs::read_to_string(path)?.trim().to_owned());
        }
    }
    anyhow::bail!("no hierarchy has {file} in cgroup {group}")
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), found);
        }
    }
    found.push(dir.to_owned());
}
