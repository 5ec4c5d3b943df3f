//! What pods have on the node's disks: logs, small files, volumes. Blocking, bounded, kept for a
//! while.
//!
//! In: the agent's directory and the directory of pod logs. Out: [`DiskUsage`]. Everything below a
//! pod's directory is reached through [`Rooted`]: no link is followed, and a walk never leaves the
//! file system it began on. Names are bytes. A volume that the file system keeps account of is not
//! walked, and one that is a mount of its own is not touched: its server may be dead, so it is only
//! named ([`Found::mounts`]). A walk looks at [`MOST_ENTRIES`] of each pod, [`DEEPEST`] levels deep:
//! whoever has more is shown with what was counted, and is over any limit.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use ferrolet_linux::{
    mountinfo,
    project_quota::metered,
    rooted::{Kind, Rooted, is_plain_name},
};
use ferrolet_ports::{DiskUsage, FileRoom, InUse, VolumeUsage};
use ferrolet_types::{PodUid, Timestamp};
use rustix::fs::AtFlags;

use super::whole::{room_at, room_of};

/// Entries of one pod that a walk looks at before it gives up.
const MOST_ENTRIES: usize = 2_000_000;
/// Directories within directories that are entered. Each is a descriptor while the walk is below it,
/// and nobody's honest work is deeper.
const DEEPEST: usize = 256;

/// The directory of drivers' volumes.
const DRIVERS: &str = "kubernetes.io~csi";

/// What is said of a tree that was not counted to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uncounted {
    /// What was counted: for whoever shows it.
    Shown,
    /// More than anybody may have: for whoever compares it with a limit.
    OverAnyLimit,
}

/// What one look has found.
pub(super) struct Found {
    pub(super) usage: DiskUsage,
    /// Volumes that are mounts of their own; whoever asks them how full they are may hang.
    pub(super) mounts: Vec<MountedVolume>,
}

/// A volume that is a mount of its own.
pub(super) struct MountedVolume {
    pub(super) uid: PodUid,
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// What one look has walked over of a pod so far.
struct Walked {
    budget: usize,
    /// Files with several names that were counted: device and inode.
    seen: HashSet<(u64, u64)>,
    uncounted: Uncounted,
}

impl Walked {
    fn new(uncounted: Uncounted) -> Self {
        Self { budget: MOST_ENTRIES, seen: HashSet::new(), uncounted }
    }

    /// Counts a tree.
    fn tree(&mut self, directory: &Rooted) -> InUse {
        let mut used = InUse::default();
        match (walk(directory, &mut used, self, 0), self.uncounted) {
            (Counted::All, _) | (Counted::Part, Uncounted::Shown) => used,
            (Counted::Part, Uncounted::OverAnyLimit) => InUse { bytes: u64::MAX, inodes: u64::MAX },
        }
    }
}

/// Whether a tree was counted to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Counted {
    All,
    Part,
}

/// Where pods leave things.
pub(super) struct DiskPlaces {
    /// The agent's directory.
    pub(super) root: PathBuf,
    /// The pods' logs.
    pub(super) pod_logs: PathBuf,
}

impl DiskPlaces {
    pub(super) fn read(&self, at: Timestamp) -> io::Result<Found> {
        let points = self.mount_points()?;
        let mut found = Found { usage: self.empty(at), mounts: Vec::new() };
        let shown = || Walked::new(Uncounted::Shown);
        if let Ok(logs) = Rooted::open(&self.pod_logs) {
            container_logs(&logs, None, &mut found.usage, shown);
        }
        if let Some(pods) = self.pods() {
            for name in directories(&pods) {
                self.pod(&pods, &name, &points, &mut found, &mut shown());
            }
        }
        Ok(found)
    }

    /// What one pod has, for comparing it with limits; of others only the file systems are told.
    pub(super) fn read_pod(&self, uid: &PodUid, at: Timestamp) -> io::Result<Found> {
        let points = self.mount_points()?;
        let mut found = Found { usage: self.empty(at), mounts: Vec::new() };
        let limited = || Walked::new(Uncounted::OverAnyLimit);
        if let Ok(logs) = Rooted::open(&self.pod_logs) {
            container_logs(&logs, Some(uid), &mut found.usage, limited);
        }
        if let Some(pods) = self.pods()
            && is_plain_name(uid.as_str())
        {
            self.pod(&pods, uid.as_str(), &points, &mut found, &mut limited());
        }
        Ok(found)
    }

    fn pods(&self) -> Option<Rooted> {
        Rooted::open(&self.root).and_then(|root| root.directory("pods")).ok()
    }

    /// Where something is mounted below the agent's directory, as the kernel names it.
    fn mount_points(&self) -> io::Result<HashSet<PathBuf>> {
        let Ok(root) = Rooted::open(&self.root).and_then(|root| root.real_path()) else {
            return Ok(HashSet::new());
        };
        let mounts = mountinfo::read()?;
        Ok(mountinfo::points_at_or_below(&mounts, &root).map(Path::to_owned).collect())
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

    fn pod(
        &self,
        pods: &Rooted,
        name: &str,
        points: &HashSet<PathBuf>,
        found: &mut Found,
        walked: &mut Walked,
    ) {
        let Ok(pod) = pods.directory(name) else {
            return;
        };
        let uid = PodUid::from(name);
        let mut own = InUse::default();
        // Files beside the volumes: the hosts file and termination logs of containers.
        add_entry(&pod, "etc-hosts", &mut own);
        found.usage.pod_files.push((uid.clone(), own));
        let Ok(volumes) = pod.directory("volumes") else {
            return;
        };
        // A driver alone knows how full its volumes are.
        for plugin in directories(&volumes).into_iter().filter(|it| it != DRIVERS) {
            if let Ok(plugin) = volumes.directory(&plugin) {
                volumes_of(&plugin, &uid, points, found, walked);
            }
        }
    }
}

fn volumes_of(
    plugin: &Rooted,
    uid: &PodUid,
    points: &HashSet<PathBuf>,
    found: &mut Found,
    walked: &mut Walked,
) {
    let Ok(path) = plugin.real_path() else {
        return;
    };
    for name in directories(plugin) {
        let path = path.join(&name);
        if points.contains(&path) {
            found.mounts.push(MountedVolume { uid: uid.clone(), name, path });
            continue;
        }
        let Ok(volume) = plugin.directory(&name) else {
            continue;
        };
        let used = metered(&volume).unwrap_or_else(|| walked.tree(&volume));
        let node = found.usage.node;
        found.usage.volumes.push(VolumeUsage {
            uid: uid.clone(),
            name,
            volume: None,
            at: found.usage.at,
            room: FileRoom { used: used.bytes, inodes_used: used.inodes, ..node },
            is_on_node: true,
        });
    }
}

/// Room on a volume that is a mount of its own: its file system knows by itself how full it is, if it
/// answers. The last step must not be a link.
pub(super) fn mounted_room(place: &Path) -> Option<FileRoom> {
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
    walked: impl Fn() -> Walked,
) {
    for directory in directories(logs) {
        let Some((_, uid)) = directory.rsplit_once('_') else {
            continue;
        };
        if only.is_some_and(|only| only.as_str() != uid) {
            continue;
        }
        let Ok(pod) = logs.directory(&directory) else {
            continue;
        };
        let mut walked = walked();
        for container in directories(&pod) {
            let Ok(own) = pod.directory(&container) else {
                continue;
            };
            let mut used = walked.tree(&own);
            // Its directory is not a log.
            used.inodes = used.inodes.saturating_sub(1);
            used.bytes = used.bytes.saturating_sub(own_bytes(&own));
            found.container_logs.push((PodUid::from(uid), container, used));
        }
    }
}

/// Names of directories that can be ours: uids, plugins, volumes and containers are text.
fn directories(directory: &Rooted) -> Vec<String> {
    let all = directory.entries().unwrap_or_default().into_iter();
    all.filter(|entry| entry.kind == Kind::Directory)
        .filter_map(|entry| entry.name.into_string().ok())
        .collect()
}

fn stat_of(directory: &Rooted, name: impl AsRef<OsStr>) -> io::Result<rustix::fs::Stat> {
    Ok(rustix::fs::statat(directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)?)
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
fn walk(directory: &Rooted, used: &mut InUse, walked: &mut Walked, depth: usize) -> Counted {
    let Ok(own) = stat_of(directory, ".") else {
        return Counted::Part;
    };
    used.bytes += bytes_of(&own);
    used.inodes += 1;
    let Ok(entries) = directory.stream() else {
        return Counted::Part;
    };
    for entry in entries {
        let Ok(entry) = entry else {
            return Counted::Part;
        };
        if walked.budget == 0 {
            return Counted::Part;
        }
        walked.budget -= 1;
        let counted = match entry.kind {
            Kind::Directory => walk_below(directory, &entry.name, used, walked, depth),
            Kind::File | Kind::Link | Kind::Special => count(directory, &entry.name, used, walked),
        };
        if counted == Counted::Part {
            return Counted::Part;
        }
    }
    Counted::All
}

fn walk_below(
    directory: &Rooted,
    name: &OsString,
    used: &mut InUse,
    walked: &mut Walked,
    depth: usize,
) -> Counted {
    if depth >= DEEPEST {
        return Counted::Part;
    }
    match directory.directory(name) {
        Ok(below) => walk(&below, used, walked, depth + 1),
        Err(cause) if is_elsewhere(&cause) => Counted::All,
        Err(_) => Counted::Part,
    }
}

fn count(directory: &Rooted, name: &OsString, used: &mut InUse, walked: &mut Walked) -> Counted {
    match stat_of(directory, name) {
        // A file with several names is there once.
        Ok(stat) if stat.st_nlink > 1 && !walked.seen.insert((stat.st_dev, stat.st_ino)) => {}
        Ok(stat) => {
            used.bytes += bytes_of(&stat);
            used.inodes += 1;
        }
        Err(cause) if is_elsewhere(&cause) => {}
        Err(_) => return Counted::Part,
    }
    Counted::All
}

/// True for what does not count: it is another mount, or it has gone or become something else
/// meanwhile.
fn is_elsewhere(cause: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = cause.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::XDEV | Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}
