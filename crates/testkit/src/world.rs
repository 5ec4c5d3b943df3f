//! The world itself: the lock, the clock, and the one gate every call passes.
//!
//! Nothing runs in the background. Processes end when somebody looks and their time has come, at
//! the exact moment their script names; whoever waits (an event stream, a stop, a test's
//! [`World::until`]) sleeps to the next such moment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrolet_ports::RuntimeErrorKind;
use ferrolet_types::{PodUid, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::faults::Fault;
use crate::state::State;
use crate::{
    Call, FakeCgroups, FakeClock, FakeEvents, FakeFiles, FakeImages, FakeRuntime, FakeStateFiles,
    FakeVolumes,
};

/// Wall time at which every world begins: 2026-01-01T00:00:00Z.
const BEGINNING: i64 = 1_767_225_600;

/// A node without a node: what all fakes share. Cloning gives another handle to the same world.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    origin: Instant,
    state: Mutex<State>,
    changed: Notify,
}

/// Counts a call as under way until it is dropped.
pub(crate) struct InFlight {
    world: World,
    call: Call,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.world.quietly(|state| {
            if let Some((now, _)) = state.in_flight.get_mut(&self.call) {
                *now -= 1;
            }
        });
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// An empty world that begins now. Make it inside the (paused) tokio runtime that the test runs
    /// in.
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                origin: Instant::now(),
                state: Mutex::new(State::default()),
                changed: Notify::new(),
            }),
        }
    }

    /// Wall time.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_second(BEGINNING).after(self.inner.origin.elapsed())
    }

    /// The runtime port.
    pub fn runtime(&self) -> Arc<FakeRuntime> {
        Arc::new(FakeRuntime::new(self.clone()))
    }

    /// The image port.
    pub fn images(&self) -> Arc<FakeImages> {
        Arc::new(FakeImages::new(self.clone()))
    }

    /// The port of pod cgroups.
    pub fn cgroups(&self) -> Arc<FakeCgroups> {
        Arc::new(FakeCgroups::new(self.clone()))
    }

    /// The port of pod directories and logs.
    pub fn files(&self) -> Arc<FakeFiles> {
        Arc::new(FakeFiles::new(self.clone()))
    }

    /// The port of state files.
    pub fn state_files(&self) -> Arc<FakeStateFiles> {
        Arc::new(FakeStateFiles::new(self.clone()))
    }

    /// The port of volumes.
    pub fn volumes(&self) -> Arc<FakeVolumes> {
        Arc::new(FakeVolumes::new(self.clone()))
    }

    /// The port of events for people.
    pub fn events(&self) -> Arc<FakeEvents> {
        Arc::new(FakeEvents::new(self.clone()))
    }

    /// The port of wall time.
    pub fn clock(&self) -> Arc<FakeClock> {
        Arc::new(FakeClock::new(self.clone()))
    }

    /// Waits until `is_true` holds of the world; panics, naming `what`, when it does not within
    /// `patience`.
    pub async fn until(
        &self,
        what: &str,
        patience: Duration,
        mut is_true: impl FnMut(&Self) -> bool,
    ) {
        let deadline = Instant::now() + patience;
        loop {
            let changed = self.inner.changed.notified();
            if is_true(self) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "waited {patience:?} in vain for: {what}; the journal: {:#?}",
                self.journal()
            );
            self.pause(changed, deadline).await;
        }
    }

    /// Sleeps until the world changes, a process ends, or `deadline` comes.
    async fn pause(&self, changed: impl Future<Output = ()>, deadline: Instant) {
        let now = self.now();
        let next_end = self.look(|state| state.next_end());
        let next_end = next_end.map(|at| Instant::now() + at.since(now));
        let wake_at = next_end.map_or(deadline, |at| at.min(deadline));
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(wake_at) => {}
        }
    }

    /// Like [`Self::until`] for the fakes: true when the condition came to hold before the
    /// deadline.
    pub(crate) async fn wait(
        &self,
        deadline: Instant,
        mut is_true: impl FnMut(&State) -> bool,
    ) -> bool {
        loop {
            let changed = self.inner.changed.notified();
            if self.look(&mut is_true) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            self.pause(changed, deadline).await;
        }
    }

    /// Looks at the world as it is now.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        self.quietly(|state| look(state))
    }

    /// Changes the world and tells whoever waits for a change.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let answer = self.quietly(change);
        self.inner.changed.notify_waiters();
        answer
    }

    /// Access that wakes nobody, unless a process turns out to have ended.
    pub(crate) fn quietly<T>(&self, access: impl FnOnce(&mut State) -> T) -> T {
        let now = self.now();
        let locked = self.inner.state.lock();
        let mut state = locked.unwrap_or_else(PoisonError::into_inner);
        state.now = Some(now);
        let has_settled = state.settle();
        let answer = access(&mut state);
        drop(state);
        if has_settled {
            self.inner.changed.notify_waiters();
        }
        answer
    }

    /// The gate of every call: hangs, latency, planned failures. The guard counts the call as under
    /// way.
    pub(crate) async fn enter(&self, call: Call, uid: Option<PodUid>) -> Result<InFlight, Fault> {
        let uid = uid.as_ref();
        let (latency, limit) = self.quietly(|state| {
            let (now, peak) = state.in_flight.entry(call).or_default();
            *now += 1;
            *peak = (*now).max(*peak);
            state.n_calls += 1;
            (state.faults.latency_of(call), state.faults.deadline)
        });
        let guard = InFlight { world: self.clone(), call };
        let deadline = Instant::now() + limit;
        // A call that hangs learns at once when the other side goes away.
        let goes_on = |state: &State| {
            let is_cut_off = state.faults.is_down && call.is_runtime();
            is_cut_off || !state.faults.is_hung(call, uid)
        };
        if !self.wait(deadline, goes_on).await {
            return Err(Fault::new(
                RuntimeErrorKind::DeadlineExceeded,
                "context deadline exceeded",
            ));
        }
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        match self.quietly(|state| state.faults.take(call, uid)) {
            Some(fault) => Err(fault),
            None => Ok(guard),
        }
    }

    /// The way of the answer back: whoever is dropped here did the deed without learning of it.
    pub(crate) async fn leave(&self, guard: InFlight) {
        let latency = self.look(|state| state.faults.answer_latency);
        if guard.call.is_change() && !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
    }
}
