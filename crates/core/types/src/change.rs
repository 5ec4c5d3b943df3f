//! What the sources say about pods, and what became of it: the two messages between `sources` and
//! `pods`.
//!
//! A source always sends its whole set ([`SourceUpdate`]); the merge turns sets into
//! [`PodChanges`]. Plain data, no policy.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Pod, PodUid,
    pod::{PodSource, SEEN_ANNOTATION, SOURCE_ANNOTATION},
};

/// Everything that one source has, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceUpdate {
    /// Who says so.
    pub source: PodSource,
    /// Its whole set, in the source's own order.
    pub pods: Vec<SourcedPod>,
    /// Pods that it has, too, and that nobody could ever read. Nothing is known of them, least of
    /// all that they should not run.
    pub unreadable: BTreeSet<PodUid>,
    /// True for a stand-in while the source itself has never spoken: an earlier life's copy of its
    /// set.
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

/// The places at which two sets of a source differ, when they hold the same pods in the same order,
/// some of them perhaps in another version; `None` when a pod came or went.
///
/// A set comes with every change of one of its pods. This tells which one without a look into the
/// others.
pub fn edited_places<'a>(
    before: impl ExactSizeIterator<Item = &'a Pod>,
    after: impl ExactSizeIterator<Item = &'a Pod>,
) -> Option<Vec<usize>> {
    if before.len() != after.len() {
        return None;
    }
    let mut places = Vec::new();
    for (place, (old, new)) in before.zip(after).enumerate() {
        if Arc::ptr_eq(old, new) {
            continue;
        }
        let (old, new) = (&old.metadata, &new.metadata);
        if (&old.uid, &old.namespace, &old.name) != (&new.uid, &new.namespace, &new.name) {
            return None;
        }
        places.push(place);
    }
    Some(places)
}

/// What one update of one source changed.
#[derive(Clone, Debug, PartialEq)]
pub struct PodChanges {
    /// Whose update it was.
    pub source: PodSource,
    /// The changes, removals first.
    pub changes: Vec<PodChange>,
    /// True once every configured source has spoken; until then an unknown pod may yet turn up and
    /// nothing is cleaned away.
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

/// The pod with a note of where it came from and when that was first seen.
pub fn annotated(pod: &Pod, source: PodSource, seen: &str) -> Pod {
    let mut pod = (**pod).clone();
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(SOURCE_ANNOTATION.to_owned(), source.as_str().to_owned());
    annotations.insert(SEEN_ANNOTATION.to_owned(), seen.to_owned());
    Arc::new(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, name: &str) -> Pod {
        let mut pod = k8s_openapi::api::core::v1::Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.name = Some(name.to_owned());
        Arc::new(pod)
    }

    #[test]
    fn a_set_of_the_same_pods_differs_in_places() {
        let (a, b, c) = (pod("1", "a"), pod("2", "b"), pod("3", "c"));
        let other_b = pod("2", "b");
        let before = [a.clone(), b.clone()];
        for (after, expected) in [
            (vec![a.clone(), b.clone()], Some(vec![])),
            (vec![a.clone(), other_b.clone()], Some(vec![1])),
            (vec![a.clone()], None),
            (vec![a.clone(), b.clone(), c.clone()], None),
            (vec![a.clone(), c], None),
            (vec![b, a.clone()], None),
            (vec![a.clone(), pod("9", "b")], None),
            (vec![a, pod("2", "other")], None),
        ] {
            assert_eq!(edited_places(before.iter(), after.iter()), expected, "{after:?}");
        }
    }
}
