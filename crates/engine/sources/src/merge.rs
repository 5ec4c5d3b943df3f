//! Whole sets in, changes out: what each source's latest set means for the pods of this node.
//!
//! Per source the merge remembers the pods it last had. Two pods of one name in one source are a
//! mistake of the source: the one that is already there stays, else the first in the source's
//! order, and the other is reported once, with both origins. A provisional set runs pods but does
//! not make its source ready: nothing is cleaned away because a copy lacks it. A pod that its source
//! has and cannot read stays as it was, and if nothing was ever known of it, the source is not ready
//! either. Matches upstream's `podStorage`. Refuses: deciding what happens to a pod, and merging names across sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ferrolet_ports::{Clock, StaticPodsSink};
use ferrolet_types::{
    Pod, PodChange, PodChanges, PodKey, PodUid, SourceUpdate, SourcedPod, Timestamp, annotated,
    edited_places,
    pod::{MIRROR_ANNOTATION, PodSource, PodView as _, SEEN_ANNOTATION, SOURCE_ANNOTATION},
};
use tokio::sync::mpsc;

use crate::{IgnoredField, Notice, ignored::as_read};

/// Annotations that the agent itself puts on a pod; no difference in them is a change.
const LOCAL_ANNOTATIONS: [&str; 3] = [SOURCE_ANNOTATION, MIRROR_ANNOTATION, SEEN_ANNOTATION];

/// What every source last had.
#[derive(Debug)]
pub struct Merger {
    configured: BTreeSet<PodSource>,
    /// Sources that have told their own set; a stand-in's does not count.
    spoken: BTreeSet<PodSource>,
    /// Those of them that have told all of it: no pod of theirs may run here unknown to us.
    ready: BTreeSet<PodSource>,
    /// Sources whose latest set had pods that could not be read.
    doubtful: BTreeSet<PodSource>,
    held: BTreeMap<PodSource, BTreeMap<PodUid, Held>>,
    /// Each source's whole set as it was told last, in its order.
    told: BTreeMap<PodSource, Vec<SourcedPod>>,
    /// Name clashes that were reported: source, name, losing origin.
    reported: BTreeSet<(PodSource, PodKey, Arc<str>)>,
    /// Fields that are not read.
    ignored: Vec<IgnoredField>,
}

/// A pod that a source has.
#[derive(Debug)]
struct Held {
    /// As the source told it: one told again is known at a glance, however many others changed.
    told: SourcedPod,
    /// As everybody else knows it.
    pod: Pod,
}

/// What came of one update.
#[derive(Debug, PartialEq)]
pub struct Merged {
    /// What changed, removals first.
    pub changes: PodChanges,
    /// True when the source had never told its whole set before.
    pub is_first: bool,
    /// Clashes of names that were not reported yet.
    pub notices: Vec<Notice>,
}

impl Merger {
    /// A merge of these sources, none of which has spoken yet.
    pub fn new(configured: impl IntoIterator<Item = PodSource>) -> Self {
        Self {
            configured: configured.into_iter().collect(),
            spoken: BTreeSet::new(),
            ready: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            held: BTreeMap::new(),
            told: BTreeMap::new(),
            reported: BTreeSet::new(),
            ignored: Vec::new(),
        }
    }

    /// The same merge, which leaves these fields out of every pod.
    pub fn ignoring(self, ignored: Vec<IgnoredField>) -> Self {
        Self { ignored, ..self }
    }

    /// True once every configured source has delivered its first set.
    pub fn sources_ready(&self) -> bool {
        self.configured.iter().all(|source| self.ready.contains(source))
    }

    /// Takes a source's whole set; `now` is when its new pods count as first seen.
    pub fn apply(&mut self, update: SourceUpdate, now: Timestamp) -> Merged {
        let source = update.source;
        if update.is_provisional && self.spoken.contains(&source) {
            // The source was faster than its stand-in.
            return self.nothing(source);
        }
        if !update.is_provisional {
            self.spoken.insert(source);
        }
        let held = self.held.get(&source);
        let is_known = |uid: &PodUid| held.is_some_and(|held| held.contains_key(uid));
        let is_whole = !update.is_provisional && update.unreadable.iter().all(is_known);
        let is_first = is_whole && self.ready.insert(source);
        let before = self.told.insert(source, update.pods.clone());
        let had_doubts = self.doubtful.remove(&source);
        let has_doubts = !update.unreadable.is_empty();
        if has_doubts {
            self.doubtful.insert(source);
        }
        if let Some(before) = before.filter(|_| !(is_first || had_doubts || has_doubts))
            && let Some(changed) = self.edit(source, &before, &update.pods)
        {
            return self.merged(source, in_order(changed), is_first, Vec::new());
        }
        let mut old = self.held.remove(&source).unwrap_or_default();
        let (chosen, notices) = self.choose(source, update.pods, &old);
        let (mut added, mut changed) = (Vec::new(), Vec::new());
        let mut new = BTreeMap::new();
        for (uid, told) in chosen {
            let pod = match old.remove(&uid) {
                None => {
                    let pod =
                        annotated(&as_read(&told.pod, &self.ignored), source, &now.to_string());
                    added.push(PodChange::Added(pod.clone()));
                    pod
                }
                Some(before) if Arc::ptr_eq(&before.told.pod, &told.pod) => before.pod,
                Some(before) => {
                    let (pod, change) =
                        compare(before.pod, &as_read(&told.pod, &self.ignored), source);
                    changed.extend(change);
                    pod
                }
            };
            new.insert(uid, Held { told, pod });
        }
        for uid in &update.unreadable {
            // What is known of it is all there is to go by.
            if let Some((uid, held)) = old.remove_entry(uid) {
                new.insert(uid, held);
            }
        }
        self.held.insert(source, new);
        // What is gone makes room first.
        let mut changes: Vec<PodChange> =
            old.into_values().map(|gone| PodChange::Removed(gone.pod)).collect();
        changes.append(&mut added);
        changes.append(&mut in_order(changed));
        self.merged(source, changes, is_first, notices)
    }

    /// What changed in a set of the same pods, of which some came in another version: names are
    /// whose they were. `None` when the set is another one, and everything has to be looked at.
    fn edit(
        &mut self,
        source: PodSource,
        before: &[SourcedPod],
        after: &[SourcedPod],
    ) -> Option<Vec<PodChange>> {
        let places =
            edited_places(before.iter().map(|it| &it.pod), after.iter().map(|it| &it.pod))?;
        let held = self.held.get_mut(&source)?;
        if before.iter().zip(after).any(|(old, new)| old.origin != new.origin) {
            return None;
        }
        let mut changed = Vec::new();
        for place in places {
            let told = &after[place];
            let Some(held) = held.get_mut(&told.pod.uid()) else {
                // It lost its name to another one, and still does.
                continue;
            };
            if !Arc::ptr_eq(&held.told.pod, &before[place].pod) {
                continue;
            }
            let (pod, change) =
                compare(held.pod.clone(), &as_read(&told.pod, &self.ignored), source);
            *held = Held { told: told.clone(), pod };
            changed.extend(change);
        }
        Some(changed)
    }

    fn nothing(&self, source: PodSource) -> Merged {
        self.merged(source, Vec::new(), false, Vec::new())
    }

    fn merged(
        &self,
        source: PodSource,
        changes: Vec<PodChange>,
        is_first: bool,
        notices: Vec<Notice>,
    ) -> Merged {
        Merged {
            changes: PodChanges { source, changes, all_sources_ready: self.sources_ready() },
            is_first,
            notices,
        }
    }

    /// One pod per name and per identity, in the source's order.
    fn choose(
        &mut self,
        source: PodSource,
        pods: Vec<SourcedPod>,
        old: &BTreeMap<PodUid, Held>,
    ) -> (Vec<(PodUid, SourcedPod)>, Vec<Notice>) {
        let holders: BTreeMap<PodKey, (&PodUid, &Arc<str>)> =
            old.iter().map(|(uid, held)| (held.pod.key(), (uid, &held.told.origin))).collect();
        // Names and identities are made once: a set comes with every change of any of its pods.
        let names: Vec<(PodKey, PodUid)> =
            pods.iter().map(|it| (it.pod.key(), it.pod.uid())).collect();
        let mut winners: BTreeMap<&PodKey, (usize, usize)> = BTreeMap::new();
        for (index, (candidate, (key, uid))) in pods.iter().zip(&names).enumerate() {
            // Whoever holds a name keeps it: by identity, or by origin when its manifest was
            // edited.
            let rank = match holders.get(key) {
                Some((holder, _)) if *holder == uid => 0,
                Some((_, origin)) if **origin == candidate.origin => 1,
                _ => 2,
            };
            let best = winners.entry(key).or_insert((rank, index));
            *best = (*best).min((rank, index));
        }
        let mut notices = Vec::new();
        let mut clashes = BTreeSet::new();
        let mut chosen: Vec<(PodUid, SourcedPod)> = Vec::new();
        let mut taken: BTreeMap<&PodUid, &SourcedPod> = BTreeMap::new();
        for (index, (candidate, (key, uid))) in pods.iter().zip(&names).enumerate() {
            let winner = winners.get(key).map_or(index, |(_, winner)| *winner);
            let (winner, what) = match taken.get(uid) {
                _ if winner != index => (&pods[winner], "name"),
                Some(other) => (*other, "uid"),
                None => {
                    taken.insert(uid, candidate);
                    chosen.push((uid.clone(), candidate.clone()));
                    continue;
                }
            };
            let clash = (source, key.clone(), candidate.origin.clone());
            if !self.reported.contains(&clash) {
                let message = format!(
                    "pod {key} is ignored: {} has a pod of the same {what} already",
                    winner.origin
                );
                notices.push(Notice::new(source, candidate.origin.clone(), message));
            }
            clashes.insert(clash);
        }
        // A clash that is over may be reported again when it comes back.
        self.reported.retain(|clash| clash.0 != source);
        self.reported.extend(clashes);
        (chosen, notices)
    }
}

/// Merges updates until the sources or the reader of the changes are gone.
pub async fn run(
    mut merger: Merger,
    mut updates: mpsc::Receiver<SourceUpdate>,
    changes: mpsc::Sender<PodChanges>,
    static_pods: Option<Arc<dyn StaticPodsSink>>,
    clock: Arc<dyn Clock>,
) {
    while let Some(update) = updates.recv().await {
        if let Some(sink) = static_pods.as_ref().filter(|_| update.source != PodSource::Api) {
            sink.note(&update);
        }
        let merged = merger.apply(update, clock.now());
        merged.notices.iter().for_each(Notice::log);
        // A first set is passed on even when it is empty: it may be what everybody waits for.
        let is_news = merged.is_first || !merged.changes.changes.is_empty();
        if is_news && changes.send(merged.changes).await.is_err() {
            return;
        }
    }
}

/// Upstream's order: status-only changes can wait.
fn in_order(mut changed: Vec<PodChange>) -> Vec<PodChange> {
    changed.sort_by_key(|change| match change {
        PodChange::Updated(_) => 0,
        PodChange::Deleting(_) => 1,
        PodChange::Added(_) | PodChange::Removed(_) | PodChange::Reconcile(_) => 2,
    });
    changed
}

/// The pod to hold on to, and how it differs from the one before.
fn compare(before: Pod, after: &Pod, source: PodSource) -> (Pod, Option<PodChange>) {
    if !differ(&before, after) {
        if before.status == after.status {
            return (before, None);
        }
        let mut pod = (*before).clone();
        pod.status.clone_from(&after.status);
        let pod = Arc::new(pod);
        return (pod.clone(), Some(PodChange::Reconcile(pod)));
    }
    let seen = before.annotation(SEEN_ANNOTATION).unwrap_or_default();
    let pod = annotated(after, source, seen);
    let change = if pod.metadata.deletion_timestamp.is_some() {
        PodChange::Deleting(pod.clone())
    } else {
        PodChange::Updated(pod.clone())
    };
    (pod, Some(change))
}

fn differ(before: &Pod, after: &Pod) -> bool {
    let annotations = |pod: &Pod| -> BTreeMap<String, String> {
        let all = pod.metadata.annotations.clone().unwrap_or_default();
        let is_foreign = |key: &String| !LOCAL_ANNOTATIONS.contains(&key.as_str());
        all.into_iter().filter(|(key, _)| is_foreign(key)).collect()
    };
    let (old, new) = (&before.metadata, &after.metadata);
    before.spec != after.spec
        || old.labels != new.labels
        || old.deletion_timestamp != new.deletion_timestamp
        || old.deletion_grace_period_seconds != new.deletion_grace_period_seconds
        || annotations(before) != annotations(after)
}

#[cfg(test)]
mod tests;
