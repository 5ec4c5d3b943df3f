//! Hints from the runtime: something may have changed. Observations, not hints, are the truth.

use crate::PodUid;

/// Something may have changed about what runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// One container or sandbox of a pod changed.
    Changed {
        /// Whose it is.
        uid: PodUid,
        /// What happened, to be compared with what is known already.
        news: News,
    },
    /// Every pod the runtime knows, after a complete listing: who is missing here has no
    /// containers.
    Census(Vec<PodUid>),
}

/// What happened to a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The container's or sandbox's id.
    pub id: String,
    /// What it does now.
    pub now: Seen,
}

/// What a container or sandbox does now, in brief.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is there, and was not started.
    Created,
    /// It runs, or a sandbox is ready.
    Running,
    /// It ended, or a sandbox is not ready.
    Ended,
    /// It is not there any more.
    Removed,
    /// The runtime does not know.
    Unknown,
}
