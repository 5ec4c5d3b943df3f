//! The volumes of this node: one row per volume of a pod, and one per volume of the node that pods
//! share. Everything that the engine remembers between calls is here.
//!
//! ```text
//!  pods:  uid ─► plan, next appointment ─► volume's name ─► state (see `state`), certificates
//!  node:  volume ─► whose turn, staged, what the cluster calls it ─► InUse, for the node's status
//! ```
//!
//! A pod that is released is forgotten by taking its one row away. Forgetting all of it costs nothing
//! but a look: the next `ensure` fills it again, and `release` works without it. Changed by `mount`,
//! `release` and `refresh` alone. Refuses: waiting, and knowing how anything is done.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use ferrolet_ports::{NodeVolume, ObjectChange, ObjectKind, VolumeError, VolumeFault, VolumePlace};
use ferrolet_types::{PodUid, Timestamp};
use tokio::sync::watch;

use crate::{
    certificates::Certificate,
    plan::{Desired, PlannedVolume, PodPlan, Source},
    state::{Failure, Progress, Published, VolumeState},
    usage::DriverVolume,
};

/// Whoever holds it is the only one at a pod's volumes, or at a volume of the node.
pub(crate) type Turn = Arc<tokio::sync::Mutex<()>>;

/// The volumes of this node.
#[derive(Default)]
pub(crate) struct VolumeTable {
    rows: Mutex<Rows>,
    in_use: watch::Sender<InUse>,
}

#[derive(Default)]
struct Rows {
    pods: BTreeMap<PodUid, PodRow>,
    node: BTreeMap<NodeVolume, NodeRow>,
}

#[derive(Default)]
struct PodRow {
    turn: Turn,
    plan: Option<Arc<PodPlan>>,
    due: Option<Timestamp>,
    n_failures: u32,
    /// Since when somebody who was told "not ready" tries again by himself.
    awaited_since: Option<Timestamp>,
    volumes: BTreeMap<String, VolumeRow>,
}

/// One volume of a pod.
#[derive(Default)]
pub(crate) struct VolumeRow {
    /// The plugin, in upstream's words.
    pub(crate) plugin: String,
    /// What it was found to be, where it is not the node's own.
    pub(crate) found: Option<FoundVolume>,
    pub(crate) state: VolumeState,
    /// By index of the source.
    certificates: BTreeMap<usize, Certificate>,
}

/// What a volume was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundVolume {
    /// The directory of its plugin; empty for one that stands elsewhere.
    pub(crate) directory: String,
    /// The name of its own directory.
    pub(crate) name: String,
    /// The driver and its words for it.
    pub(crate) driver: Option<DriverVolume>,
}

#[derive(Default)]
struct NodeRow {
    turn: Weak<tokio::sync::Mutex<()>>,
    is_staged: bool,
    /// What the cluster is told to be in use.
    unique_names: BTreeSet<String>,
}

/// Attachable volumes that this node uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// What an earlier life of ours left is among them. Until then nobody may conclude that a
    /// volume is not in use.
    pub is_complete: bool,
    /// Their unique names.
    pub names: BTreeSet<String>,
}

/// How an attempt at a pod's volumes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All are ready; tokens want another look then.
    Ready(Option<Timestamp>),
    /// One is not; another look makes sense then, or only when an object changes.
    NotReady(Option<Timestamp>),
}

/// What became of a volume's ownership before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerBefore {
    /// Nothing that we know of.
    Nobody,
    /// It was given to that group for another pod, which has it still.
    OfAnotherPod(u32),
}

/// Pods and their appointments.
impl VolumeTable {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        // Values are replaced whole, so a panic elsewhere cannot have left half of one.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pod_turn(&self, uid: &PodUid) -> Turn {
        self.rows().pods.entry(uid.clone()).or_default().turn.clone()
    }

    pub(crate) fn plan(&self, uid: &PodUid) -> Option<Arc<PodPlan>> {
        self.rows().pods.get(uid)?.plan.clone()
    }

    /// A pod should have these volumes.
    pub(crate) fn want(&self, plan: Arc<PodPlan>) {
        let mut rows = self.rows();
        let pod = rows.pods.entry(plan.uid.clone()).or_default();
        for volume in &plan.volumes {
            let row = pod.volumes.entry(volume.name.clone()).or_default();
            row.state = std::mem::take(&mut row.state).wanted();
        }
        pod.plan = Some(plan);
    }

    /// A pod should have none any more.
    pub(crate) fn begin_release(&self, uid: &PodUid) {
        if let Some(pod) = self.rows().pods.get_mut(uid) {
            for row in pod.volumes.values_mut() {
                row.state = std::mem::take(&mut row.state).releasing();
            }
        }
    }

    /// Forgets all of a pod.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.rows().pods.remove(uid);
    }

    /// Failures in a row, this one included.
    pub(crate) fn count_failure(&self, uid: &PodUid) -> u32 {
        self.rows().pods.get_mut(uid).map_or(1, |pod| {
            pod.n_failures = pod.n_failures.saturating_add(1);
            pod.n_failures
        })
    }

    /// Notes how an attempt ended; `true` when somebody was told "not ready" before and should hear
    /// that it is now.
    pub(crate) fn note_ending(&self, uid: &PodUid, ending: Ending) -> bool {
        let mut rows = self.rows();
        let Some(pod) = rows.pods.get_mut(uid) else {
            return false;
        };
        match ending {
            Ending::Ready(due) => {
                pod.due = due;
                pod.n_failures = 0;
                pod.awaited_since.take().is_some()
            }
            Ending::NotReady(due) => {
                pod.due = due;
                false
            }
        }
    }

    /// Somebody is told that the pod's volumes are not ready; answers since when that has been so.
    pub(crate) fn await_ready(&self, uid: &PodUid, now: Timestamp) -> Timestamp {
        let mut rows = self.rows();
        let pod = rows.pods.get_mut(uid);
        pod.map_or(now, |pod| *pod.awaited_since.get_or_insert(now))
    }

    /// True while somebody who was told so tries again by himself.
    pub(crate) fn is_awaited(&self, uid: &PodUid) -> bool {
        self.rows().pods.get(uid).is_some_and(|pod| pod.awaited_since.is_some())
    }

    /// The pod's next appointment.
    pub(crate) fn due(&self, uid: &PodUid) -> Option<Timestamp> {
        self.rows().pods.get(uid)?.due
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.rows().pods.values().filter_map(|pod| pod.due).min()
    }

    /// Pods that are due; asking takes the appointment away.
    pub(crate) fn take_due(&self, now: Timestamp) -> Vec<PodUid> {
        let mut rows = self.rows();
        let due = rows.pods.iter_mut().filter(|(_, pod)| pod.due.is_some_and(|due| due <= now));
        due.map(|(uid, pod)| {
            pod.due = None;
            uid.clone()
        })
        .collect()
    }

    /// Every pod with volumes.
    pub(crate) fn all_pods(&self) -> Vec<PodUid> {
        self.rows().pods.keys().cloned().collect()
    }

    /// Pods that refer to one of the objects.
    pub(crate) fn affected(&self, changes: &BTreeSet<ObjectChange>) -> Vec<PodUid> {
        let rows = self.rows();
        let affected = rows.pods.iter().filter(|(_, pod)| {
            pod.plan.as_ref().is_some_and(|plan| {
                let mut volumes = plan.volumes.iter();
                volumes.any(|volume| refers_to(plan, volume, changes))
            })
        });
        affected.map(|(uid, _)| uid.clone()).collect()
    }

    /// True when some volume of the pod has to be looked at from time to time.
    pub(crate) fn is_looked_after(&self, uid: &PodUid) -> bool {
        let rows = self.rows();
        let mut volumes = rows.pods.get(uid).into_iter().flat_map(|pod| pod.volumes.values());
        volumes.any(|row| row.state.progress().published().is_some_and(|it| it.is_looked_after))
    }
}

/// Volumes of pods.
impl VolumeTable {
    /// Reads or changes a volume's row; nothing where the pod has been forgotten.
    fn with<T>(
        &self,
        uid: &PodUid,
        volume: &str,
        work: impl FnOnce(&mut VolumeRow) -> T,
    ) -> Option<T> {
        self.rows().pods.get_mut(uid)?.volumes.get_mut(volume).map(work)
    }

    /// The refusal of a volume that nobody is to try again yet.
    pub(crate) fn refusal(&self, uid: &PodUid, volume: &str, now: Timestamp) -> Option<Failure> {
        self.with(uid, volume, |row| row.state.refusal(now).cloned())?
    }

    /// Notes by which plugin a volume is made.
    pub(crate) fn note_plugin(&self, uid: &PodUid, volume: &str, plugin: String) {
        self.with(uid, volume, |row| row.plugin = plugin);
    }

    /// Notes what a volume was found to be.
    pub(crate) fn note_found(&self, uid: &PodUid, volume: &str, found: FoundVolume) {
        self.with(uid, volume, |row| row.found = Some(found));
    }

    /// The volume has come so far. What a pod has, it keeps.
    pub(crate) fn advance(&self, uid: &PodUid, volume: &str, to: Progress) {
        self.with(uid, volume, |row| {
            let progress = row.state.progress_mut();
            let is_step_back = progress.published().is_some() && to.published().is_none();
            if !is_step_back {
                *progress = to;
            }
        });
    }

    /// Changes what is known of a volume that the pod has.
    pub(crate) fn amend(&self, uid: &PodUid, volume: &str, change: impl FnOnce(&mut Published)) {
        self.with(uid, volume, |row| {
            if let Progress::Published(published) = row.state.progress_mut() {
                change(published);
            }
        });
    }

    /// An attempt at a volume came to its end.
    pub(crate) fn succeeded(&self, uid: &PodUid, volume: &str) {
        self.with(uid, volume, |row| {
            let progress = row.state.progress_mut();
            if progress.published().is_none() {
                *progress = Progress::Published(Published::default());
            }
            row.state = std::mem::take(&mut row.state).succeeded();
        });
    }

    /// An attempt at a volume failed.
    pub(crate) fn failed(
        &self,
        uid: &PodUid,
        volume: &str,
        fault: &VolumeFault,
        error: &VolumeError,
        now: Timestamp,
    ) {
        self.with(uid, volume, |row| {
            let state = std::mem::take(&mut row.state);
            row.state = state.failed(fault.step, error.clone(), fault.wants_pause, now);
        });
    }

    /// What a pod has at a place. Two volumes of a pod may be one and the same.
    pub(crate) fn published(&self, place: &VolumePlace) -> Option<Published> {
        let rows = self.rows();
        let pod = rows.pods.get(&place.uid)?;
        let mut here = pod.volumes.values().filter(|row| row.is_at(place));
        here.find_map(|row| row.state.progress().published().cloned())
    }

    /// What of the node stands at a pod's place, as far as is known.
    pub(crate) fn node_volume(&self, place: &VolumePlace) -> Option<NodeVolume> {
        let rows = self.rows();
        let pod = rows.pods.get(&place.uid)?;
        let mut here = pod.volumes.values().filter(|row| row.is_at(place));
        here.find_map(|row| row.state.progress().node_volume().cloned())
    }

    /// To whom a volume was given that other pods have, too.
    pub(crate) fn owner_before(&self, place: &VolumePlace) -> OwnerBefore {
        let rows = self.rows();
        let others = rows.pods.iter().filter(|(uid, _)| **uid != place.uid);
        let mut rows = others.flat_map(|(_, pod)| pod.volumes.values());
        let group = rows.find_map(|row| {
            let published = row.state.progress().published().filter(|_| row.is_at(place))?;
            published.fs_group
        });
        group.map_or(OwnerBefore::Nobody, OwnerBefore::OfAnotherPod)
    }

    /// A volume was taken away from its pod.
    pub(crate) fn unpublished(&self, place: &VolumePlace) {
        let mut rows = self.rows();
        let pod = rows.pods.get_mut(&place.uid);
        let volumes = pod.into_iter().flat_map(|pod| pod.volumes.values_mut());
        volumes.filter(|row| row.is_at(place)).for_each(|row| row.state.unpublished());
    }

    /// Shows every row.
    pub(crate) fn for_each(&self, mut show: impl FnMut(&PodUid, &str, &VolumeRow)) {
        for (uid, pod) in &self.rows().pods {
            for (name, row) in &pod.volumes {
                show(uid, name, row);
            }
        }
    }
}

impl VolumeRow {
    fn is_at(&self, place: &VolumePlace) -> bool {
        let found = self.found.as_ref();
        found.is_some_and(|it| it.directory == place.plugin && it.name == place.name)
    }
}

/// Certificates of pods.
impl VolumeTable {
    pub(crate) fn certificate(&self, uid: &PodUid, volume: &str, index: usize) -> Certificate {
        let known = self.with(uid, volume, |row| row.certificates.get(&index).cloned());
        known.flatten().unwrap_or_default()
    }

    pub(crate) fn keep_certificate(
        &self,
        uid: &PodUid,
        volume: &str,
        index: usize,
        certificate: Certificate,
    ) {
        self.with(uid, volume, |row| row.certificates.insert(index, certificate));
    }

    /// When some certificate of the pod has to be looked at.
    pub(crate) fn certificates_due(&self, uid: &PodUid, now: Timestamp) -> Option<Timestamp> {
        let rows = self.rows();
        let volumes = rows.pods.get(uid)?.volumes.values();
        volumes.flat_map(|row| row.certificates.values()).filter_map(|it| it.due(now)).min()
    }
}

/// Volumes of the node.
impl VolumeTable {
    /// The turn at one volume of the node: whoever holds it is the only one.
    pub(crate) fn turn(&self, volume: &NodeVolume) -> Turn {
        let mut rows = self.rows();
        rows.node.retain(|_, row| {
            row.is_staged || !row.unique_names.is_empty() || row.turn.strong_count() > 0
        });
        let row = rows.node.entry(volume.clone()).or_default();
        if let Some(turn) = row.turn.upgrade() {
            return turn;
        }
        let turn = Arc::default();
        row.turn = Arc::downgrade(&turn);
        turn
    }

    pub(crate) fn is_staged(&self, volume: &NodeVolume) -> bool {
        self.rows().node.get(volume).is_some_and(|row| row.is_staged)
    }

    pub(crate) fn note_staged(&self, volume: &NodeVolume) {
        self.rows().node.entry(volume.clone()).or_default().is_staged = true;
    }

    /// A volume is gone from the node: the cluster may have it back, and nothing is left of it that
    /// the pod, if it was one's, has to give back.
    pub(crate) fn left_node(&self, volume: &NodeVolume, pod: Option<&PodUid>) {
        let mut rows = self.rows();
        if let Some(row) = rows.node.get_mut(volume) {
            row.is_staged = false;
            row.unique_names.clear();
        }
        self.tell_use(&rows);
        let pod = pod.and_then(|uid| rows.pods.get_mut(uid));
        for row in pod.into_iter().flat_map(|pod| pod.volumes.values_mut()) {
            if row.state.progress().node_volume() == Some(volume) {
                *row.state.progress_mut() = Progress::Wanted;
            }
        }
    }

    /// True when a pod, other than the one that is named, has the volume or wants it.
    pub(crate) fn is_wanted(&self, volume: &NodeVolume, beside: Option<&PodUid>) -> bool {
        let rows = self.rows();
        let others = rows.pods.iter().filter(|(uid, _)| Some(*uid) != beside);
        let mut rows = others.flat_map(|(_, pod)| pod.volumes.values());
        rows.any(|row| row.state.progress().node_volume() == Some(volume))
    }

    /// Volumes of the node that the pod has or wanted.
    pub(crate) fn node_volumes_of(&self, uid: &PodUid) -> BTreeSet<NodeVolume> {
        let rows = self.rows();
        let volumes = rows.pods.get(uid).into_iter().flat_map(|pod| pod.volumes.values());
        volumes.filter_map(|row| row.state.progress().node_volume().cloned()).collect()
    }

    /// Attachable volumes that this node uses, and every change of them.
    pub(crate) fn in_use(&self) -> watch::Receiver<InUse> {
        self.in_use.subscribe()
    }

    /// The node uses a volume that the cluster calls so.
    pub(crate) fn note_use(&self, volume: &NodeVolume, names: impl IntoIterator<Item = String>) {
        let mut rows = self.rows();
        rows.node.entry(volume.clone()).or_default().unique_names.extend(names);
        self.tell_use(&rows);
    }

    /// What an earlier life of ours left is known from here on.
    pub(crate) fn complete_use(&self) {
        self.in_use.send_if_modified(|used| !std::mem::replace(&mut used.is_complete, true));
    }

    fn tell_use(&self, rows: &Rows) {
        let names = rows.node.values().flat_map(|row| row.unique_names.iter().cloned());
        let names: BTreeSet<String> = names.collect();
        self.in_use.send_if_modified(|used| {
            let is_new = used.names != names;
            used.names = names;
            is_new
        });
    }
}

/// True when the volume is made from one of the objects.
pub(crate) fn refers_to(
    plan: &PodPlan,
    volume: &PlannedVolume,
    changes: &BTreeSet<ObjectChange>,
) -> bool {
    let Desired::Files { sources, .. } = &volume.desired else {
        return false;
    };
    sources.iter().any(|source| match source {
        Source::Object { kind, name, .. } => changes.contains(&ObjectChange {
            kind: *kind,
            namespace: plan.key.namespace.to_string(),
            name: name.clone(),
        }),
        // Which of a signer's bundles are wanted is for the server to say, so any of them may be.
        Source::Trust { .. } => changes.iter().any(|it| it.kind == ObjectKind::TrustBundle),
        Source::OfPod(_) | Source::Token { .. } | Source::Certificate { .. } => false,
    })
}
