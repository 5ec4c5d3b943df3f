//! The one owner of who has what: a lock around a pure value, held for a decision and never across
//! an await.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

use ferrolet_placement::{Placement, PodAsk};
use ferrolet_ports::{Fut, PlacedContainer, Placing};
use ferrolet_resources::Rejection;
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::metrics;

/// Who has what, and who was told.
pub struct Desk {
    state: Mutex<State>,
    /// Something may be worth writing.
    pub(crate) changed: Notify,
    /// The newest version that was written, or that could not be.
    pub(crate) written: watch::Sender<u64>,
    /// Containers with processors of their own are not throttled on them.
    has_free_quota: bool,
}

pub(crate) struct State {
    pub(crate) placement: Placement,
    /// Counts what may have changed.
    pub(crate) version: u64,
    /// The processors that each container was last told.
    pub(crate) told: BTreeMap<(PodUid, String), String>,
    /// Pods that were admitted and have not been seen on the board yet.
    fresh: BTreeSet<PodUid>,
    /// Every source has spoken.
    pub(crate) is_everybody_known: bool,
}

impl Desk {
    pub(crate) fn new(placement: Placement, has_free_quota: bool) -> Self {
        let state = State {
            placement,
            version: 1,
            told: BTreeMap::new(),
            fresh: BTreeSet::new(),
            is_everybody_known: false,
        };
        let changed = Notify::new();
        // The files are written at start too, as upstream does.
        changed.notify_one();
        let written = watch::Sender::new(0);
        Self { state: Mutex::new(state), changed, written, has_free_quota }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the lock is held")
    }

    /// True when processors are given one by one.
    pub(crate) fn has_static_cpus(&self) -> bool {
        self.lock().placement.cpus.is_some()
    }

    /// Takes back what pods had that are over, as the board shows them, and answers with those that
    /// live. A pod that was admitted a moment ago is not on the board yet.
    pub(crate) fn sweep(&self, shown: &[Pod], is_over: impl Fn(&Pod) -> bool) -> Vec<Pod> {
        let mut state = self.lock();
        for pod in shown {
            state.fresh.remove(&pod.uid());
        }
        let living: Vec<Pod> = shown.iter().filter(|pod| !is_over(pod)).cloned().collect();
        if state.is_everybody_known {
            let mut uids: BTreeSet<PodUid> = living.iter().map(|pod| pod.uid()).collect();
            uids.extend(state.fresh.iter().cloned());
            state.retain(&uids);
            self.note(&mut state);
        }
        living
    }

    fn note(&self, state: &mut State) {
        state.version += 1;
        self.changed.notify_one();
    }
}

impl State {
    fn retain(&mut self, living: &BTreeSet<PodUid>) {
        self.placement.retain(|uid, _| living.contains(uid));
        self.told.retain(|(uid, _), _| living.contains(uid));
    }

    fn give(&mut self, pod: &Pod) -> Result<(), ferrolet_placement::Refusal> {
        let began = Instant::now();
        let given = self.placement.admit(&PodAsk::of(pod));
        metrics::admitted(began.elapsed());
        given
    }
}

impl Placing for Desk {
    fn admit(&self, pod: &Pod, living: Option<&[Pod]>) -> Result<(), Rejection> {
        let mut state = self.lock();
        let uid = pod.uid();
        if let Some(living) = living {
            let mut uids: BTreeSet<PodUid> = living.iter().map(|pod| pod.uid()).collect();
            uids.insert(uid.clone());
            state.retain(&uids);
            state.fresh.retain(|fresh| uids.contains(fresh));
        }
        state.fresh.insert(uid.clone());
        let given = state.give(pod);
        if given.is_err() {
            // The refused one does not live: what it got before the refusal is free.
            state.placement.retain(|other, _| *other != uid);
            state.fresh.remove(&uid);
        }
        self.note(&mut state);
        given.map_err(|refusal| refusal.rejection())
    }

    fn meet(&self, pod: &Pod) {
        let mut state = self.lock();
        state.fresh.insert(pod.uid());
        if let Err(refusal) = state.give(pod) {
            tracing::error!(
                pod = %pod.key(),
                pod_uid = %pod.uid(),
                reason = refusal.reason(),
                message = %refusal,
                "Pod that runs already cannot have what it asks for and shares what is left"
            );
        }
        self.note(&mut state);
    }

    fn all_known(&self) {
        self.lock().is_everybody_known = true;
    }

    fn place<'a>(&'a self, pod: &'a Pod, container: &'a str) -> Fut<'a, PlacedContainer> {
        let (placed, version) = {
            let mut state = self.lock();
            let uid = pod.uid();
            if state.placement.memory.is_some() {
                state.placement.starts(&PodAsk::of(pod), container);
                self.note(&mut state);
            }
            let place = state.placement.place(&uid, container);
            let placed = PlacedContainer {
                cpus: place.cpus.to_string(),
                mems: place.nodes.iter().map(|it| it.to_string()).collect::<Vec<_>>().join(","),
                is_unthrottled: place.has_own_cpus && self.has_free_quota,
            };
            state.told.insert((uid, container.to_owned()), placed.cpus.clone());
            (placed, state.version)
        };
        Box::pin(async move {
            // A container never runs on processors that the next life would give to somebody else.
            let mut written = self.written.subscribe();
            let is_written = written.wait_for(|written| *written >= version).await.is_ok();
            debug_assert!(is_written, "the sender is ours");
            placed
        })
    }

    fn is_unthrottled(&self, uid: &PodUid) -> bool {
        self.has_free_quota && self.lock().placement.has_own_cpus(uid)
    }
}
