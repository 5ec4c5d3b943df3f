//! The brief map of what the runtime runs, and the differences between two looks at it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_ports::{ListedState, RuntimeEvent, RuntimeEventKind, RuntimeListing};
use ferrolet_types::{
    PodUid,
    hint::{Hint, News, Seen},
};

/// What each container and sandbox did when it was last heard of.
#[derive(Debug, Default)]
pub(crate) struct Known {
    entries: BTreeMap<String, (PodUid, Seen)>,
}

impl Known {
    /// Takes a complete listing and answers with everything that differs, and with the census.
    pub(crate) fn take_listing(&mut self, listing: &RuntimeListing) -> Vec<Hint> {
        let mut now: BTreeMap<String, (PodUid, Seen)> = BTreeMap::new();
        for sandbox in &listing.sandboxes {
            let seen = if sandbox.is_ready { Seen::Running } else { Seen::Ended };
            now.insert(sandbox.id.as_str().to_owned(), (sandbox.uid.clone(), seen));
        }
        for container in &listing.containers {
            let seen = match container.state {
                ListedState::Created => Seen::Created,
                ListedState::Running => Seen::Running,
                ListedState::Exited => Seen::Ended,
                ListedState::Unknown => Seen::Unknown,
            };
            now.insert(container.id.as_str().to_owned(), (container.uid.clone(), seen));
        }
        let gone = self.entries.iter().filter(|(id, _)| !now.contains_key(*id));
        let gone = gone.map(|(id, (uid, _))| (id, uid, Seen::Removed));
        let changed = now
            .iter()
            .filter(|(id, (_, seen))| self.entries.get(*id).is_none_or(|(_, was)| was != seen));
        let changed = changed.map(|(id, (uid, seen))| (id, uid, *seen));
        let mut hints: Vec<Hint> = gone
            .chain(changed)
            .map(|(id, uid, seen)| Hint::Changed {
                uid: uid.clone(),
                news: News { id: id.clone(), now: seen },
            })
            .collect();
        let census: BTreeSet<&PodUid> = now.values().map(|(uid, _)| uid).collect();
        hints.push(Hint::Census(census.into_iter().cloned().collect()));
        self.entries = now;
        hints
    }

    /// Takes one event; `None` when it tells nothing new.
    pub(crate) fn take_event(&mut self, event: RuntimeEvent) -> Option<Hint> {
        let seen = match event.kind {
            RuntimeEventKind::Created => Seen::Created,
            RuntimeEventKind::Started => Seen::Running,
            RuntimeEventKind::Stopped => Seen::Ended,
            RuntimeEventKind::Deleted => Seen::Removed,
        };
        let was = self.entries.get(&event.id).map(|(_, was)| *was);
        // Events of one container may overtake one another; what ended does not start again.
        let is_stale = matches!(
            (was, seen),
            (Some(Seen::Ended), Seen::Created | Seen::Running)
                | (Some(Seen::Running), Seen::Created)
        );
        if was == Some(seen) || is_stale {
            return None;
        }
        if seen == Seen::Removed {
            self.entries.remove(&event.id);
        } else {
            self.entries.insert(event.id.clone(), (event.uid.clone(), seen));
        }
        Some(Hint::Changed { uid: event.uid, news: News { id: event.id, now: seen } })
    }
}
