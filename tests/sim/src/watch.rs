//! Watches every status that is published: versions rise, ends are final.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use ferrolet_ports::{StatusSink, StatusUpdate};
use ferrolet_testkit::{FakeClusterApi, World};
use ferrolet_types::{Pod, PodUid, Timestamp, pod::PodView as _};
use k8s_openapi::api::core::v1::PodStatus;

/// The reader of all statuses, across all lives of the agent.
pub(crate) struct StatusWatch {
    world: World,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    versions: BTreeMap<PodUid, u64>,
    phases: BTreeMap<PodUid, String>,
    /// What the API server would have, across all lives of the agent.
    statuses: BTreeMap<PodUid, PodStatus>,
    ended: BTreeMap<PodUid, Timestamp>,
    forgotten: BTreeMap<PodUid, Timestamp>,
    faults: Vec<String>,
}

impl StatusWatch {
    pub(crate) fn new(world: World) -> Self {
        Self { world, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no panic while the lock is held")
    }

    /// Another life of the agent begins: it counts anew, what it was told to forget it may have
    /// forgotten, and of a pod nobody tells it more than the API server has: of a static one
    /// nothing, of others the phase that was reported.
    pub(crate) fn agent_died(&self, wanted: &BTreeMap<PodUid, Pod>, api: &FakeClusterApi) {
        let mut seen = self.seen();
        seen.versions.clear();
        let reported = |uid: &PodUid| {
            let asked = wanted.get(uid).filter(|pod| !pod.is_static())?;
            let stored = api.pod(&asked.key()).filter(|it| it.uid() == *uid)?;
            stored.status.as_ref()?.phase.clone()
        };
        let phases = std::mem::take(&mut seen.phases);
        seen.phases =
            phases.into_keys().filter_map(|uid| reported(&uid).map(|it| (uid, it))).collect();
        let ended = std::mem::take(&mut seen.ended);
        let is_over = |uid: &PodUid| match wanted.get(uid) {
            Some(pod) if pod.is_static() => true,
            Some(_) => seen.phases.get(uid).is_some_and(|it| is_terminal(it)),
            None => false,
        };
        seen.ended = ended.into_iter().filter(|(uid, _)| is_over(uid)).collect();
    }

    /// What the API server has of a pod.
    pub(crate) fn status(&self, uid: &PodUid) -> Option<PodStatus> {
        self.seen().statuses.get(uid).cloned()
    }

    pub(crate) fn phase(&self, uid: &PodUid) -> Option<String> {
        self.seen().phases.get(uid).cloned()
    }

    /// Pods that were shown as ended, and when first.
    pub(crate) fn ended(&self) -> BTreeMap<PodUid, Timestamp> {
        self.seen().ended.clone()
    }

    /// When pods were forgotten last.
    pub(crate) fn forgotten(&self) -> BTreeMap<PodUid, Timestamp> {
        self.seen().forgotten.clone()
    }

    pub(crate) fn known(&self) -> Vec<PodUid> {
        self.seen().versions.keys().cloned().collect()
    }

    /// Notes a fault that was found elsewhere.
    pub(crate) fn blame(&self, what: String) {
        self.seen().faults.push(what);
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.seen().faults.first().cloned()
    }
}

fn is_terminal(phase: &str) -> bool {
    phase == "Succeeded" || phase == "Failed"
}

impl StatusSink for StatusWatch {
    fn publish(&self, update: StatusUpdate) {
        let (uid, now) = (update.pod.uid(), self.world.now());
        let status = update.pod.status.clone().unwrap_or_default();
        let phase = status.phase.clone().unwrap_or_default();
        let mut seen = self.seen();
        seen.statuses.insert(uid.clone(), status);
        let version = seen.versions.insert(uid.clone(), update.version);
        if version.is_some_and(|before| before >= update.version) {
            let fault = format!("the status of {uid} goes from {version:?} to {}", update.version);
            seen.faults.push(fault);
        }
        let before = seen.phases.insert(uid.clone(), phase.clone());
        if let Some(before) = before.filter(|before| is_terminal(before) && *before != phase) {
            let fault = format!("{uid} was {before} and is {phase} now");
            seen.faults.push(fault);
        }
        if is_terminal(&phase) {
            seen.ended.entry(uid).or_insert(now);
        }
    }

    fn forget(&self, uid: &PodUid) {
        let now = self.world.now();
        let mut seen = self.seen();
        seen.forgotten.insert(uid.clone(), now);
        seen.versions.remove(uid);
        seen.phases.remove(uid);
        seen.statuses.remove(uid);
        seen.ended.remove(uid);
    }
}
