//! Cgroup arithmetic: from requests and limits to the kernel's numbers, and the names of cgroups.
//!
//! In: a pod's specification. Out: [`PodCgroup`], what the host adapter writes. Later also admission and assignment policies.
//! Refuses: touching a cgroup file.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use ferrolet_types::{PodUid, Qos};

/// A pod's cgroup: where it stands and what bounds it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCgroup {
    /// Whose it is.
    pub uid: PodUid,
    /// Decides the parent.
    pub qos: Qos,
    /// Bounds.
    pub limits: CgroupLimits,
}

/// Bounds of one cgroup; `None` leaves the kernel's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CgroupLimits {
    /// Weight in v1's scale (2..262144).
    pub cpu_shares: Option<u64>,
    /// Microseconds per period; `None` is unlimited.
    pub cpu_quota: Option<i64>,
    /// Microseconds of a period.
    pub cpu_period: Option<u64>,
    /// Bytes.
    pub memory: Option<i64>,
    /// Processes and threads.
    pub pids: Option<i64>,
}
