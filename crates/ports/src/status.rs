//! The way of a pod's status from the workers, who compute it, to whoever tells the cluster.

use ferrolet_types::{Pod, PodUid, SourceUpdate, pod::PodSource};

/// How much of a pod is left on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Something runs, or may yet be started.
    Active,
    /// Nothing runs and nothing will; volumes and cgroup are on their way out.
    Stopped,
    /// Nothing runs or is mounted any more.
    Settled,
}

/// A status that changed.
#[derive(Clone, Debug)]
pub struct StatusUpdate {
    /// The pod with its new status.
    pub pod: Pod,
    /// Rises with every change of this pod's status.
    pub version: u64,
    /// What is left of it.
    pub remains: Remains,
}

/// Hears which static pods there are, before anybody acts on it; never blocks.
pub trait StaticPodsSink: Send + Sync {
    /// Which sources of static pods there are; until all of them have spoken, the set is not
    /// complete.
    fn configure(&self, sources: &[PodSource]);
    /// A source's whole set.
    fn note(&self, update: &SourceUpdate);
}

/// Takes changed statuses; never blocks.
pub trait StatusSink: Send + Sync {
    /// A pod's status changed.
    fn publish(&self, update: StatusUpdate);
    /// A pod is gone from this node.
    fn forget(&self, uid: &PodUid);
}

/// Statuses on their way to the cluster.
pub trait StatusBacklog: Send + Sync {
    /// How many pods have one that the cluster does not know yet.
    fn n_pending(&self) -> usize;
}
