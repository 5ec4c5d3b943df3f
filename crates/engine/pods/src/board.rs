//! What others may see of the pods: the latest specification and status of each, replaced as a
//! whole.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use ferrolet_ports::{PodsView, Remains, StatusSink, StatusUpdate};
use ferrolet_types::{
    Pod, PodUid,
    pod::{Phase, PodView},
};
use k8s_openapi::api::core::v1::PodStatus;

/// The pods of this node with their status.
#[derive(Default)]
pub struct Board {
    entries: Mutex<BTreeMap<PodUid, Entry>>,
    sinks: Vec<Arc<dyn StatusSink>>,
    /// Every source of pods has spoken.
    is_complete: AtomicBool,
}

#[derive(Clone)]
struct Entry {
    pod: Pod,
    version: u64,
}

impl Board {
    /// A board that also tells `sinks` of every change.
    pub fn with_sinks(sinks: Vec<Arc<dyn StatusSink>>) -> Self {
        Self { sinks, ..Self::default() }
    }

    /// True once every source of pods has spoken, so that nobody takes a missing pod for one that
    /// is not wanted.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    pub(crate) fn complete(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
    }

    /// Publishes a pod with its status.
    pub(crate) fn publish(&self, pod: &Pod, status: &PodStatus, remains: Remains) {
        let mut shown = k8s_openapi::api::core::v1::Pod::clone(pod);
        shown.status = Some(status.clone());
        let shown: Pod = Arc::new(shown);
        let version = {
            let mut entries = self.entries.lock().expect("no panic while the lock is held");
            let version = entries.get(&pod.uid()).map_or(1, |entry| entry.version + 1);
            entries.insert(pod.uid(), Entry { pod: shown.clone(), version });
            version
        };
        for sink in &self.sinks {
            sink.publish(StatusUpdate { pod: shown.clone(), version, remains });
        }
    }

    /// True when a pod has ended for good.
    pub(crate) fn is_terminal(&self, uid: &PodUid) -> bool {
        let entries = self.entries.lock().expect("no panic while the lock is held");
        entries.get(uid).and_then(|entry| entry.pod.api_phase()).is_some_and(Phase::is_terminal)
    }

    /// Forgets a pod.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.entries.lock().expect("no panic while the lock is held").remove(uid);
        for sink in &self.sinks {
            sink.forget(uid);
        }
    }
}

impl PodsView for Board {
    fn pods(&self) -> Vec<Pod> {
        let entries = self.entries.lock().expect("no panic while the lock is held");
        entries.values().map(|entry| entry.pod.clone()).collect()
    }
}
