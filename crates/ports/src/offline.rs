//! Copies of pods on disk, from which they start while the API server is away.
//!
//! Owned by the adapter `host`. Contents are bytes here: what they mean is the engine's. They hold
//! secrets, so whoever implements this keeps them from everybody but root. Refuses: judging
//! contents.

use ferrolet_types::PodUid;

use crate::{Fut, HostError};

/// One copy for each pod, by its uid.
pub trait OfflineStore: Send + Sync {
    /// Every copy there is; one that cannot be read is there with the reason.
    fn read_all(&self) -> Fut<'_, Result<Vec<StoredCopy>, HostError>>;
    /// Replaces a pod's copy in one step; it is on disk when this returns.
    fn write<'a>(&'a self, uid: &'a PodUid, content: &'a [u8]) -> Fut<'a, Result<(), HostError>>;
    /// Removes a pod's copy. Absent is success.
    fn remove<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<(), HostError>>;
}

/// One pod's copy.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredCopy {
    /// Whose it is.
    pub uid: PodUid,
    /// What it holds.
    pub content: Result<Vec<u8>, HostError>,
}

impl std::fmt::Debug for StoredCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredCopy").field("uid", &self.uid).finish_non_exhaustive()
    }
}
