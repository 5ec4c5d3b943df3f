//! The way of a pod's status from the workers, who compute it, to whoever tells the cluster.

use ferrolet_types::{Pod, PodUid};

/// A status that changed.
#[derive(Clone, Debug)]
pub struct StatusUpdate {
    /// The pod with its new status.
    pub pod: Pod,
    /// Rises with every change of this pod's status.
    pub version: u64,
    /// True when nothing of the pod runs or is mounted any more.
    pub is_settled: bool,
}

/// Takes changed statuses; never blocks.
pub trait StatusSink: Send + Sync {
    /// A pod's status changed.
    fn publish(&self, update: StatusUpdate);
    /// A pod is gone from this node.
    fn forget(&self, uid: &PodUid);
}
