//! The node's latest events, for whoever looks at its page.
//!
//! Stands before the door that events go through: each is noted here and passed on. Holds a bounded
//! number of them; the same event again counts up instead of pushing others out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use ferrolet_ports::{Clock, Event, Events};
use ferrolet_types::Timestamp;

/// So many are kept.
const KEPT: usize = 200;
/// Longer messages are cut: this is a glance, the event itself is told in full.
const MESSAGE: usize = 1024;

/// Notes events and passes them on.
pub struct RecentEvents {
    kept: Mutex<VecDeque<Noted>>,
    clock: Arc<dyn Clock>,
    next: Arc<dyn Events>,
}

/// An event that happened at least once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) event: Event,
    pub(crate) n_times: u32,
    /// The last time.
    pub(crate) at: Timestamp,
}

impl RecentEvents {
    /// Notes what passes on its way to `next`.
    pub fn new(next: Arc<dyn Events>, clock: Arc<dyn Clock>) -> Self {
        Self { kept: Mutex::default(), clock, next }
    }

    pub(crate) fn newest_first(&self) -> Vec<Noted> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().cloned().collect()
    }
}

impl Events for RecentEvents {
    fn record(&self, event: Event) {
        self.record_annotated(event, BTreeMap::new());
    }

    fn record_annotated(&self, event: Event, annotations: BTreeMap<String, String>) {
        let mut noted = event.clone();
        if noted.message.len() > MESSAGE {
            let end = noted.message.floor_char_boundary(MESSAGE);
            noted.message.truncate(end);
        }
        let at = self.clock.now();
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let before = kept.iter().position(|it| it.event == noted);
            let before = before.and_then(|index| kept.remove(index));
            kept.push_back(Noted {
                n_times: before.map_or(1, |it| it.n_times.saturating_add(1)),
                event: noted,
                at,
            });
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
        self.next.record_annotated(event, annotations);
    }
}

#[cfg(test)]
mod tests {
    use ferrolet_ports::{EventKind, EventObject};
    use ferrolet_testkit::World;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_event_counts_up_and_old_ones_leave() {
        let world = World::new();
        let recent = RecentEvents::new(world.events(), world.clock());
        let say = |message: &str| {
            recent.record(Event {
                object: EventObject::Node,
                kind: EventKind::Normal,
                reason: "Test".to_owned(),
                message: message.to_owned(),
            });
        };
        say("again");
        say("other");
        say("again");
        let seen: Vec<_> =
            recent.newest_first().into_iter().map(|it| (it.event.message, it.n_times)).collect();
        assert_eq!(seen, [("again".to_owned(), 2), ("other".to_owned(), 1)]);
        for n in 0..2 * KEPT {
            say(&n.to_string());
        }
        assert_eq!(recent.newest_first().len(), KEPT);
        say(&"é".repeat(MESSAGE));
        let longest = recent.newest_first().remove(0).event.message;
        assert_eq!(longest.len(), MESSAGE);
    }
}
