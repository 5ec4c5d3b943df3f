//! Of which pods something is left on the node, as their statuses tell.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use ferrolet_ports::{Remains, StatusSink, StatusUpdate};
use ferrolet_types::{PodUid, pod::PodView as _};
use tokio::sync::Notify;

/// Hears of every status, and remembers no more than what is left of each pod.
#[derive(Debug, Default)]
pub struct Ended {
    remains: Mutex<BTreeMap<PodUid, Remains>>,
    changed: Notify,
}

impl Ended {
    /// Waits until nothing runs or is mounted of any of these pods.
    pub(crate) async fn all(&self, uids: &[PodUid]) {
        loop {
            // Registered before the look, so that no change falls between the two.
            let changed = self.changed.notified();
            if uids.iter().all(|uid| self.is_gone(uid)) {
                return;
            }
            changed.await;
        }
    }

    fn is_gone(&self, uid: &PodUid) -> bool {
        self.lock().get(uid).is_none_or(|remains| *remains == Remains::Settled)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, Remains>> {
        self.remains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StatusSink for Ended {
    fn publish(&self, update: StatusUpdate) {
        let before = self.lock().insert(update.pod.uid(), update.remains);
        if before != Some(update.remains) {
            self.changed.notify_waiters();
        }
    }

    fn forget(&self, uid: &PodUid) {
        self.lock().remove(uid);
        self.changed.notify_waiters();
    }
}
