//! What happened in the world, in order: the ground on which invariants are checked.

use ferrolet_types::{ContainerId, ContainerName, GracePeriod, PodUid, SandboxId, Timestamp};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// To which pod, if to one.
    pub uid: Option<PodUid>,
    /// What.
    pub act: Act,
}

/// What happened. Only effects are here: a call that failed before it changed anything leaves no
/// entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields say what they are")]
pub enum Act {
    /// A sandbox was made.
    SandboxRan { id: SandboxId, attempt: u32 },
    /// A ready sandbox was stopped.
    SandboxStopped { id: SandboxId },
    /// A sandbox was removed.
    SandboxRemoved { id: SandboxId },
    /// A container was made.
    ContainerCreated { id: ContainerId, name: ContainerName, attempt: u32, sandbox: SandboxId },
    /// A container's process began.
    ContainerStarted { id: ContainerId, name: ContainerName },
    /// A container's process never began; the container is dead.
    ContainerFailedToStart { id: ContainerId, name: ContainerName },
    /// A running container was asked to stop.
    ContainerSignalled { id: ContainerId, name: ContainerName, grace: GracePeriod },
    /// A container's process ended, for whatever cause.
    ContainerExited { id: ContainerId, name: ContainerName, code: i32 },
    /// A running container got other bounds.
    ContainerBounded { name: ContainerName, memory: i64, cpu_quota: i64 },
    /// A container was removed.
    ContainerRemoved { id: ContainerId, name: ContainerName },
    /// An image was fetched.
    ImagePulled { image: String },
    /// An image was removed.
    ImageRemoved { image: String },
    /// A pod's cgroup came to be.
    CgroupMade,
    /// A pod's cgroup got other bounds; only those that were written.
    CgroupBounded { memory: Option<i64>, cpu_quota: Option<i64>, cpu_shares: Option<u64> },
    /// A pod's cgroup was removed.
    CgroupRemoved,
    /// A pod's directories came to be.
    DirectoriesMade,
    /// A pod's directories were removed.
    DirectoriesRemoved,
    /// A pod's logs were removed.
    LogsRemoved,
    /// A pod's volumes were set up.
    VolumesReady,
    /// A pod's volumes were taken away.
    VolumesReleased,
}
