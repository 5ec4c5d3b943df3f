//! What the sources say about pods, and what became of it: the two messages between `sources` and `pods`.
//!
//! A source always sends its whole set ([`SourceUpdate`]); the merge turns sets into [`PodChanges`]. Plain data, no policy.

use std::sync::Arc;

use crate::{Pod, pod::PodSource};

/// Everything that one source has, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceUpdate {
    /// Who says so.
    pub source: PodSource,
    /// Its whole set, in the source's own order.
    pub pods: Vec<SourcedPod>,
    /// True for a stand-in while the source itself has never spoken: an earlier life's copy of its set.
    pub is_provisional: bool,
}

/// A pod and where exactly it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcedPod {
    /// The file or URL it was read from; the source's name for pods of the API.
    pub origin: Arc<str>,
    /// The pod itself, with its identity.
    pub pod: Pod,
}

/// What one update of one source changed.
#[derive(Clone, Debug, PartialEq)]
pub struct PodChanges {
    /// Whose update it was.
    pub source: PodSource,
    /// The changes, removals first.
    pub changes: Vec<PodChange>,
    /// True once every configured source has spoken; until then an unknown pod may yet turn up and nothing is cleaned away.
    pub all_sources_ready: bool,
}

/// One pod that came, changed or went.
#[derive(Clone, Debug, PartialEq)]
pub enum PodChange {
    /// It was not there before.
    Added(Pod),
    /// Its specification, labels or annotations changed.
    Updated(Pod),
    /// Its deletion was asked for: it has a deletion timestamp now.
    Deleting(Pod),
    /// Its source no longer has it; this is how it was last.
    Removed(Pod),
    /// Only the API's idea of its status changed.
    Reconcile(Pod),
}

impl PodChange {
    /// The pod in question.
    pub fn pod(&self) -> &Pod {
        match self {
            Self::Added(pod)
            | Self::Updated(pod)
            | Self::Deleting(pod)
            | Self::Removed(pod)
            | Self::Reconcile(pod) => pod,
        }
    }
}
