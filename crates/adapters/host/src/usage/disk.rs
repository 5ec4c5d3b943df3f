//! What pods have on the node's disks: logs, small files, volumes. Blocking, bounded, kept for a while.
//!
//! In: the agent's directory and the directory of pod logs. Out: [`DiskUsage`]. Everything below a pod's directory is reached
//! through [`Rooted`]: no link is followed, and a walk never leaves the file system it began on. A volume that the file system
//! keeps account of is not walked. Refuses: walking more than [`MOST_ENTRIES`]; what was not reached by then is left out.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use ferrolet_ports::{DiskUsage, FileRoom, InUse, VolumeUsage};
use ferrolet_types::{PodUid, Timestamp};
use rustix::fs::AtFlags;

use super::whole::{room_at, room_of};
use crate::rooted::{Kind, Rooted, is_plain_name};
use crate::volumes::meter::metered;

/// Entries one walk looks at before it gives up; a pod with more files than this is shown with what was counted.
const MOST_ENTRIES: usize = 2_000_000;
/// Directories within directories that are entered.
const DEEPEST: usize = 64;

/// The directory of drivers' volumes.
const DRIVERS: &str = "kubernetes.io~csi";

/// What one look has walked over so far.
struct Walked {
    budget: usize,
    /// Files with several names that were counted: device and inode.
    seen: HashSet<(u64, u64)>,
}

impl Default for Walked {
    fn default() -> Self {
        Self { budget: MOST_ENTRIES, seen: HashSet::new() }
    }
}

/// Where pods leave things.
pub(super) struct DiskPlaces {
    /// The agent's directory.
    pub(super) root: PathBuf,
    /// The pods' logs.
    pub(super) pod_logs: PathBuf,
}

impl DiskPlaces {
    pub(super) fn read(&self, at: Timestamp) -> DiskUsage {
        let mut found = self.empty(at);
        let mut walked = Walked::default();
        if let Ok(logs) = Rooted::open(&self.pod_logs) {
            container_logs(&logs, None, &mut found, &mut walked);
        }
        let pods = Rooted::open(&self.root).and_then(|root| root.directory("pods"));
        if let Ok(pods) = pods {
            for (name, _) in directories(&pods) {
                self.pod(&pods, &name, &mut found, &mut walked);
            }
        }
        found
    }

    /// What one pod has; of others only the file systems are told.
    pub(super) fn read_pod(&self, uid: &PodUid, at: Timestamp) -> DiskUsage {
        let mut found = self.empty(at);
        let mut walked = Walked::default();
        if let Ok(logs) = Rooted::open(&self.pod_logs) {
            container_logs(&logs, Some(uid), &mut found, &mut walked);
        }
        let pods = Rooted::open(&self.root).and_then(|root| root.directory("pods"));
        if let Ok(pods) = pods
            && is_plain_name(uid.as_str())
        {
            self.pod(&pods, uid.as_str(), &mut found, &mut walked);
        }
        found
    }

    fn empty(&self, at: Timestamp) -> DiskUsage {
        DiskUsage {
            at,
            node: room_at(&self.root).unwrap_or_default(),
            logs: room_at(&self.pod_logs).unwrap_or_default(),
            container_logs: Vec::new(),
            pod_files: Vec::new(),
            volumes: Vec::new(),
        }
    }

    fn pod(&self, pods: &Rooted, name: &str, found: &mut DiskUsage, walked: &mut Walked) {
        let Ok(pod) = pods.directory(name) else {
            return;
        };
        let uid = PodUid::from(name);
        let mut own = InUse::default();
        // Files beside the volumes: the hosts file and termination logs of containers.
        add_entry(&pod, "etc-hosts", &mut own);
        found.pod_files.push((uid.clone(), own));
        if let Ok(volumes) = pod.directory("volumes") {
            self.volumes(&volumes, &uid, found, walked);
        }
    }

    fn volumes(&self, volumes: &Rooted, uid: &PodUid, found: &mut DiskUsage, walked: &mut Walked) {
        for (plugin, _) in directories(volumes) {
            // A driver alone knows how full its volumes are.
            if plugin == DRIVERS {
                continue;
            }
            let Ok(plugin) = volumes.directory(&plugin) else {
                continue;
            };
            for (name, is_mount) in directories(&plugin) {
                let own = if is_mount { None } else { plugin.directory(&name).ok() };
                let room = match own {
                    Some(volume) => {
                        let used = metered(&volume).unwrap_or_else(|| {
                            let mut used = InUse::default();
                            walk(&volume, &mut used, walked, 0);
                            used
                        });
                        let room =
                            FileRoom { used: used.bytes, inodes_used: used.inodes, ..found.node };
                        Some((room, true))
                    }
                    // Another mount: its file system knows by itself how full it is.
                    None => plugin
                        .real_path()
                        .ok()
                        .and_then(|path| mounted_room(&path.join(&name)))
                        .map(|room| (room, false)),
                };
                if let Some((room, is_on_node)) = room {
                    found.volumes.push(VolumeUsage {
                        uid: uid.clone(),
                        name,
                        volume: None,
                        at: found.at,
                        room,
                        is_on_node,
                    });
                }
            }
        }
    }
}

/// Room on a volume that is a mount of its own. The last step must not be a link.
fn mounted_room(place: &Path) -> Option<FileRoom> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(place, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstatvfs(&opened).ok()?;
    Some(room_of(&stat))
}

fn container_logs(
    logs: &Rooted,
    only: Option<&PodUid>,
    found: &mut DiskUsage,
    walked: &mut Walked,
) {
    for (directory, _) in directories(logs) {
        let Some((_, uid)) = directory.rsplit_once('_') else {
            continue;
        };
        if only.is_some_and(|only| only.as_str() != uid) {
            continue;
        }
        let Ok(pod) = logs.directory(&directory) else {
            continue;
        };
        for (container, _) in directories(&pod) {
            let Ok(own) = pod.directory(&container) else {
                continue;
            };
            let mut used = InUse::default();
            walk(&own, &mut used, walked, 0);
            // Its directory is not a log.
            used.inodes = used.inodes.saturating_sub(1);
            used.bytes = used.bytes.saturating_sub(own_bytes(&own));
            found.container_logs.push((PodUid::from(uid), container, used));
        }
    }
}

/// Directories below, each with whether it is on another file system.
fn directories(directory: &Rooted) -> Vec<(String, bool)> {
    let own = stat_of(directory, ".").map(|stat| stat.st_dev);
    let all = directory.entries().unwrap_or_default().into_iter();
    all.filter(|entry| entry.kind == Kind::Directory)
        .filter_map(|entry| {
            let name = entry.name.into_string().ok()?;
            let device = stat_of(directory, &name).map(|stat| stat.st_dev);
            let is_mount = matches!((&own, &device), (Ok(own), Ok(it)) if own != it);
            Some((name, is_mount))
        })
        .collect()
}

fn stat_of(directory: &Rooted, name: &str) -> io::Result<rustix::fs::Stat> {
    Ok(rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn own_bytes(directory: &Rooted) -> u64 {
    stat_of(directory, ".").map_or(0, |stat| bytes_of(&stat))
}

fn bytes_of(stat: &rustix::fs::Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

fn add_entry(directory: &Rooted, name: &str, used: &mut InUse) {
    if let Ok(stat) = stat_of(directory, name) {
        used.bytes += bytes_of(&stat);
        used.inodes += 1;
    }
}

/// Counts a directory and everything below it on the same file system.
fn walk(directory: &Rooted, used: &mut InUse, walked: &mut Walked, depth: usize) {
    let Ok(own) = stat_of(directory, ".") else {
        return;
    };
    used.bytes += bytes_of(&own);
    used.inodes += 1;
    for entry in directory.entries().unwrap_or_default() {
        if walked.budget == 0 {
            return;
        }
        walked.budget -= 1;
        if entry.kind == Kind::Directory {
            // Another mount is refused by the kernel, and not counted.
            if depth < DEEPEST
                && let Ok(below) = directory.directory(&entry.name)
            {
                walk(&below, used, walked, depth + 1);
            }
            continue;
        }
        let name = entry.name.to_string_lossy();
        if let Ok(stat) = stat_of(directory, &name) {
            // A file with several names is there once.
            if stat.st_nlink > 1 && !walked.seen.insert((stat.st_dev, stat.st_ino)) {
                continue;
            }
            used.bytes += bytes_of(&stat);
            used.inodes += 1;
        }
    }
}
