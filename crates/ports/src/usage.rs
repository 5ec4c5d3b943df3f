//! What the node, its pods and their containers use, at one moment.
//!
//! Implemented by the adapter `host` from cgroup files, read by the server and by whoever reclaims.
//! Refuses: names; a reader of cgroups knows identities only, and who wants names asks the pods.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ferrolet_types::{ContainerId, PodUid, Timestamp};

use crate::{DiskUsage, FileRoom, Fut, HostError, UsageFigures};

/// Reads what is used.
pub trait Usage: Send + Sync {
    /// Processor, memory and swap of everything, read at most `max_age` ago. Callers at the same
    /// time share one reading.
    fn snapshot(&self, max_age: Duration) -> Fut<'_, Result<Arc<UsageSnapshot>, HostError>>;

    /// What the kernel tells of every cgroup, in at least this detail and read at most `max_age`
    /// ago. Costs some five files per cgroup, or twenty in all detail: whoever can live with an
    /// older reading shares it with others.
    fn figures(
        &self,
        detail: Detail,
        max_age: Duration,
    ) -> Fut<'_, Result<Arc<UsageFigures>, HostError>>;

    /// What is on the disks. Costs a walk over logs and volumes; kept for a while.
    fn disk(&self) -> Fut<'_, Result<Arc<DiskUsage>, HostError>>;

    /// What one pod has on the disks, read anew: its logs, files and volumes. Costs a walk over
    /// them.
    fn disk_of<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<DiskUsage, HostError>>;

    /// Room on the file system that holds a directory of the operator's or the runtime's choice.
    fn room_at<'a>(&'a self, place: &'a str) -> Fut<'a, Result<FileRoom, HostError>>;
}

/// How much of each cgroup is read. More detail has all that less has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What a summary shows that has these containers: processor, memory and swap, waiting,
    /// networks, and how many processes there are. Of whatever else is in pods, sandboxes above
    /// all, only networks and processes.
    Summary(Arc<HashSet<ContainerId>>),
    /// Everything.
    Whole,
}

impl Detail {
    /// True when whoever asks for `asked` finds everything in a reading of this detail.
    pub fn covers(&self, asked: &Self) -> bool {
        match (self, asked) {
            (Self::Whole, _) => true,
            (Self::Summary(_), Self::Whole) => false,
            (Self::Summary(read), Self::Summary(asked)) => asked.is_subset(read),
        }
    }

    /// True when this container's usage is read.
    pub fn has_usage_of(&self, id: &ContainerId) -> bool {
        match self {
            Self::Whole => true,
            Self::Summary(containers) => containers.contains(id),
        }
    }
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSnapshot {
    /// The whole machine.
    pub node: CgroupUsage,
    /// All pods together; `None` when their cgroup is not there.
    pub all_pods: Option<CgroupUsage>,
    /// Each pod that has a cgroup, by identity.
    pub pods: Vec<PodUsage>,
}

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// Which.
    pub uid: PodUid,
    /// All of it together, its sandbox included.
    pub total: CgroupUsage,
    /// What is below it: containers, and the sandbox under its own id.
    pub containers: Vec<(ContainerId, CgroupUsage)>,
}

/// One cgroup. What the kernel does not tell is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupUsage {
    /// When it was read.
    pub at: Timestamp,
    /// Processor time since the cgroup was made, in nanoseconds.
    pub cpu_nanos: Option<u64>,
    /// Processor time per second, in nanoseconds, over the last seconds; needs two readings.
    pub cpu_nano_cores: Option<u64>,
    /// Memory.
    pub memory: Option<MemoryUsage>,
    /// Bytes of swap in use.
    pub swap_bytes: Option<u64>,
    /// Bytes of swap that may be used; `None` for no limit.
    pub swap_limit_bytes: Option<u64>,
}

/// Memory of one cgroup, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Everything charged to it.
    pub usage: u64,
    /// What cannot be dropped easily: usage without inactive file pages.
    pub working_set: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// How much it may use; `None` for no limit.
    pub limit: Option<u64>,
    /// Page faults.
    pub page_faults: u64,
    /// Page faults that had to wait for a disk.
    pub major_page_faults: u64,
}
