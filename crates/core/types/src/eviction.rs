//! The order to end a pod for the node's sake: from whoever watches the node's means to the sync
//! loop.

use std::collections::BTreeMap;

use crate::{GracePeriod, PodUid};

/// A pod that has to go. Its status says `Failed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Which.
    pub uid: PodUid,
    /// The word in its status and its event.
    pub reason: EvictionReason,
    /// Why, as users read it.
    pub message: String,
    /// What its event carries besides.
    pub annotations: BTreeMap<String, String>,
    /// The message of its condition `DisruptionTarget`; `None` for a pod that broke a limit of its
    /// own and was not disrupted by anybody.
    pub disruption: Option<String>,
    /// The most that its containers get between signal and kill; `None` for what they were
    /// promised.
    pub grace: Option<GracePeriod>,
}

/// Why a pod has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionReason {
    /// The node runs short of something, or the pod broke a limit.
    Evicted,
    /// The machine goes down.
    Terminated,
    /// A critical pod needs its place.
    Preempting,
}

impl EvictionReason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Evicted => "Evicted",
            Self::Terminated => "Terminated",
            Self::Preempting => "Preempting",
        }
    }
}
