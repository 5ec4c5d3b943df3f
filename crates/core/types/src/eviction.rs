//! The order to end a pod for the node's sake: from whoever watches the node's means to the sync
//! loop.

use crate::{GracePeriod, PodUid};

/// A pod that has to go. Its status says `Failed`, reason `Evicted`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Which.
    pub uid: PodUid,
    /// Why, as users read it.
    pub message: String,
    /// The most that its containers get between signal and kill.
    pub grace: GracePeriod,
}
