//! The small ports: the runtime's event stream, events for people, and wall time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ferrolet_ports::{Clock, Event, Events, Fut, RuntimeError, RuntimeEvent, RuntimeEvents};
use ferrolet_types::Timestamp;
use tokio::time::Instant;

use crate::World;
use crate::state::{State, Stream};

/// An open stream of the fake runtime. Events wait in the world until they are taken, so `next` can
/// be dropped at any time.
pub struct FakeEventStream {
    world: World,
    id: u64,
}

impl FakeEventStream {
    pub(crate) fn open(world: World, state: &mut State) -> Self {
        let id = state.next_id();
        state.streams.push(Stream { id, queue: VecDeque::new(), end: None });
        Self { world, id }
    }

    /// What is there now: an event, the end, or nothing yet.
    fn take(&self) -> Option<Option<Result<RuntimeEvent, RuntimeError>>> {
        self.world.quietly(|state| {
            let stream = state.streams.iter_mut().find(|it| it.id == self.id)?;
            if let Some(event) = stream.queue.pop_front() {
                return Some(Some(Ok(event)));
            }
            // The error is told once; after it there is only the end.
            let error = stream.end.as_mut()?.take();
            Some(error.map(Err))
        })
    }
}

impl RuntimeEvents for FakeEventStream {
    fn next(&mut self) -> Fut<'_, Option<Result<RuntimeEvent, RuntimeError>>> {
        Box::pin(async move {
            loop {
                if let Some(answer) = self.take() {
                    return answer;
                }
                // Far away rather than never: a stream may be silent for days of paused time.
                let deadline = Instant::now() + Duration::from_secs(365 * 24 * 3600);
                let has_news = |state: &State| {
                    let stream = state.streams.iter().find(|it| it.id == self.id);
                    stream.is_none_or(|it| !it.queue.is_empty() || it.end.is_some())
                };
                self.world.wait(deadline, has_news).await;
            }
        })
    }
}

impl Drop for FakeEventStream {
    fn drop(&mut self) {
        self.world.change(|state| state.streams.retain(|it| it.id != self.id));
    }
}

/// Events for people, kept in the world: see [`World::recorded_events`].
pub struct FakeEvents {
    world: World,
}

impl FakeEvents {
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }
}

impl Events for FakeEvents {
    fn record(&self, event: Event) {
        self.record_annotated(event, BTreeMap::new());
    }

    fn record_annotated(&self, event: Event, annotations: BTreeMap<String, String>) {
        self.world.change(|state| {
            let now = state.now();
            state.annotations.push((event.reason.clone(), annotations));
            state.events.push((now, event));
        });
    }
}

/// Wall time that moves with tokio's clock.
pub struct FakeClock {
    world: World,
}

impl FakeClock {
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        self.world.now()
    }
}
