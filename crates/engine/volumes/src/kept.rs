//! What the engine remembers between calls: whose volumes to look at when an object changes or a token is due.
//!
//! Forgetting all of it costs nothing but a look: the next `ensure` fills it again, and `release` does not need it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ferrolet_ports::{ObjectChange, ObjectKind};
use ferrolet_types::{PodUid, Timestamp};

use crate::plan::{Desired, PlannedVolume, PodPlan, Source};

/// One pod's turn: whoever holds it is the only one at that pod's volumes.
pub(crate) type Turn = Arc<tokio::sync::Mutex<()>>;

/// What is remembered of all pods.
#[derive(Default)]
pub(crate) struct Memory {
    pods: Mutex<BTreeMap<PodUid, Kept>>,
}

#[derive(Default)]
struct Kept {
    turn: Turn,
    plan: Option<Arc<PodPlan>>,
    due: Option<Timestamp>,
    n_failures: u32,
    /// Since when somebody who was told "not ready" tries again by himself.
    awaited_since: Option<Timestamp>,
}

/// How an attempt at a pod's volumes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All are ready; tokens want another look then.
    Ready(Option<Timestamp>),
    /// One is not; another look makes sense then, or only when an object changes.
    NotReady(Option<Timestamp>),
}

impl Memory {
    fn pods(&self) -> MutexGuard<'_, BTreeMap<PodUid, Kept>> {
        // Values are replaced whole, so a panic elsewhere cannot have left half of one.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn turn(&self, uid: &PodUid) -> Turn {
        self.pods().entry(uid.clone()).or_default().turn.clone()
    }

    pub(crate) fn plan(&self, uid: &PodUid) -> Option<Arc<PodPlan>> {
        self.pods().get(uid)?.plan.clone()
    }

    pub(crate) fn keep(&self, plan: Arc<PodPlan>) {
        let uid = plan.uid.clone();
        self.pods().entry(uid).or_default().plan = Some(plan);
    }

    pub(crate) fn forget(&self, uid: &PodUid) {
        self.pods().remove(uid);
    }

    /// Failures in a row, this one included.
    pub(crate) fn count_failure(&self, uid: &PodUid) -> u32 {
        self.pods().get_mut(uid).map_or(1, |kept| {
            kept.n_failures = kept.n_failures.saturating_add(1);
            kept.n_failures
        })
    }

    /// Notes how an attempt ended; `true` when somebody was told "not ready" before and should hear that it is now.
    pub(crate) fn note(&self, uid: &PodUid, ending: Ending) -> bool {
        let mut pods = self.pods();
        let Some(kept) = pods.get_mut(uid) else {
            return false;
        };
        match ending {
            Ending::Ready(due) => {
                kept.due = due;
                kept.n_failures = 0;
                kept.awaited_since.take().is_some()
            }
            Ending::NotReady(due) => {
                kept.due = due;
                false
            }
        }
    }

    /// Somebody is told that the pod's volumes are not ready; answers since when that has been so.
    pub(crate) fn await_ready(&self, uid: &PodUid, now: Timestamp) -> Timestamp {
        let mut pods = self.pods();
        let kept = pods.get_mut(uid);
        kept.map_or(now, |kept| *kept.awaited_since.get_or_insert(now))
    }

    /// True while somebody who was told so tries again by himself.
    pub(crate) fn is_awaited(&self, uid: &PodUid) -> bool {
        self.pods().get(uid).is_some_and(|kept| kept.awaited_since.is_some())
    }

    /// The pod's next appointment.
    pub(crate) fn due(&self, uid: &PodUid) -> Option<Timestamp> {
        self.pods().get(uid)?.due
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.pods().values().filter_map(|kept| kept.due).min()
    }

    /// Pods that are due; asking takes the appointment away.
    pub(crate) fn take_due(&self, now: Timestamp) -> Vec<PodUid> {
        let mut pods = self.pods();
        let due = pods.iter_mut().filter(|(_, kept)| kept.due.is_some_and(|due| due <= now));
        due.map(|(uid, kept)| {
            kept.due = None;
            uid.clone()
        })
        .collect()
    }

    /// Every pod with volumes.
    pub(crate) fn all(&self) -> Vec<PodUid> {
        self.pods().keys().cloned().collect()
    }

    /// Pods that refer to one of the objects.
    pub(crate) fn affected(&self, changes: &BTreeSet<ObjectChange>) -> Vec<PodUid> {
        let pods = self.pods();
        let affected = pods.iter().filter(|(_, kept)| {
            kept.plan.as_ref().is_some_and(|plan| {
                let mut volumes = plan.volumes.iter();
                volumes.any(|volume| refers_to(plan, volume, changes))
            })
        });
        affected.map(|(uid, _)| uid.clone()).collect()
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
        Source::Known(_) | Source::Token { .. } | Source::Certificate { .. } => false,
    })
}
