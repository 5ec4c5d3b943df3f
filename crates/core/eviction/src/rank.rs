//! Whom it costs: the order in which pods go when something is short.
//!
//! Memory and disk: pods that use more than they asked for first, among them those of lower
//! priority, among these the one that is furthest above its request. Process numbers: lower
//! priority, then most processes. A pod whose statistics are missing comes last, because nothing
//! says that it is to blame; upstream takes it first.

use std::cmp::Reverse;

use ferrolet_config::config::Signal;
use ferrolet_types::{GracePeriod, PodUid, Quantity};

use crate::{FileSystems, StarvedResource, resource_of};

/// A pod that runs here, as far as it matters for ranking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub uid: PodUid,
    /// Its name, for messages.
    pub name: String,
    /// Its priority.
    pub priority: i32,
    /// Static, mirrored or of a system priority: never a victim.
    pub is_critical: bool,
    /// Memory that it asked for.
    pub memory_request: Quantity,
    /// Local storage that it asked for.
    pub storage_request: Quantity,
    /// Memory that it asked for as a whole pod, where it did.
    pub own_memory_request: Option<Quantity>,
    /// The grace that its containers were promised.
    pub grace: Option<GracePeriod>,
    /// What it uses; none when that is not known.
    pub used: Option<PodUse>,
}

/// What a pod uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUse {
    /// Working set of the whole pod, in bytes.
    pub memory: u64,
    /// Processes and threads.
    pub n_processes: u64,
    /// Each container.
    pub containers: Vec<ContainerUse>,
    /// `hostPath` and what is as short-lived as the pod: `emptyDir`, config maps and the like.
    pub local_volumes: FileUse,
}

/// What a container uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUse {
    /// Its name.
    pub name: String,
    /// Memory that it asked for.
    pub memory_request: Quantity,
    /// Local storage that it asked for.
    pub storage_request: Quantity,
    /// Working set in bytes; none when that is not known.
    pub memory: Option<u64>,
    /// Its own files; none when that is not known.
    pub rootfs: Option<FileUse>,
    /// Its logs; none when that is not known.
    pub logs: Option<FileUse>,
}

/// Files, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    /// In bytes.
    pub bytes: u64,
    /// In inodes.
    pub inodes: u64,
}

impl FileUse {
    fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

/// The pods that may go for a signal, first the one that goes first. Equals stay in the order in
/// which they were given.
pub fn rank(signal: Signal, layout: FileSystems, candidates: &[Candidate]) -> Vec<&Candidate> {
    let mut victims: Vec<&Candidate> = candidates.iter().filter(|it| !it.is_critical).collect();
    let resource = resource_of(signal);
    match resource {
        StarvedResource::Memory => victims.sort_by_key(|it| {
            let used = it.used.as_ref().map(|used| amount(used.memory));
            by_excess(it, used, it.memory_request, it.memory_request)
        }),
        StarvedResource::Pids => victims.sort_by_key(|it| {
            let n_processes = it.used.as_ref().map(|used| used.n_processes);
            (n_processes.is_none(), it.priority, Reverse(n_processes))
        }),
        StarvedResource::EphemeralStorage | StarvedResource::Inodes => {
            victims.sort_by_key(|it| {
                let files = it.used.as_ref().map(|used| files_on(used, signal, layout));
                match resource {
                    StarvedResource::Inodes => {
                        // Nobody asks for inodes; the distance is still measured from the request
                        // for storage, as upstream does.
                        let used = files.map(|it| amount(it.inodes));
                        by_excess(it, used, Quantity::ZERO, it.storage_request)
                    }
                    _ => {
                        let used = files.map(|it| amount(it.bytes));
                        by_excess(it, used, it.storage_request, it.storage_request)
                    }
                }
            });
        }
    }
    victims
}

type Key = (bool, bool, i32, Reverse<Option<Quantity>>);

/// Unknown last; above `request` first; lower priority first; furthest above `base` first.
fn by_excess(
    candidate: &Candidate,
    used: Option<Quantity>,
    request: Quantity,
    base: Quantity,
) -> Key {
    let is_above = used.is_some_and(|used| used > request);
    let excess = used.map(|used| used.minus(base));
    (used.is_none(), !is_above, candidate.priority, Reverse(excess))
}

fn amount(value: u64) -> Quantity {
    Quantity::from_bytes(i64::try_from(value).unwrap_or(i64::MAX))
}

/// What of a pod lies on the file system that is short.
fn files_on(used: &PodUse, signal: Signal, layout: FileSystems) -> FileUse {
    let is_image_fs = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    let is_container_fs =
        matches!(signal, Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree);
    // Images are shared and count for nobody.
    let (with_rootfs, with_logs_and_volumes) = match layout {
        FileSystems::One => (true, true),
        FileSystems::ImagesAndContainersApart if is_image_fs || is_container_fs => (true, false),
        FileSystems::ImagesAndContainersApart => (false, true),
        FileSystems::ImagesApart if is_image_fs => (false, false),
        FileSystems::ImagesApart => (true, true),
    };
    let mut sum = FileUse::default();
    for container in &used.containers {
        if with_rootfs {
            sum = sum.plus(container.rootfs.unwrap_or_default());
        }
        if with_logs_and_volumes {
            sum = sum.plus(container.logs.unwrap_or_default());
        }
    }
    if with_logs_and_volumes { sum.plus(used.local_volumes) } else { sum }
}

#[cfg(test)]
mod tests;
