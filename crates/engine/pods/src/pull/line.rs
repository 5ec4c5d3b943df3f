//! The line that pulls stand in: [`Turns`] decides, this wakes. Dropping a place or a turn gives it
//! back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::oneshot;

use super::turns::{PullLimits, Ticket, Turns};

/// The line. Clones are handles to the same one.
#[derive(Clone)]
pub(super) struct Line {
    state: Arc<Mutex<State>>,
}

struct State {
    turns: Turns,
    bells: BTreeMap<Ticket, oneshot::Sender<Turn>>,
}

/// A place in the line.
pub(super) struct Place {
    line: Line,
    registry: String,
    ticket: Ticket,
    bell: oneshot::Receiver<Turn>,
}

/// The right to pull, until it is dropped.
pub(super) struct Turn {
    line: Line,
    registry: String,
}

impl Line {
    pub(super) fn new(limits: PullLimits) -> Self {
        let state = State { turns: Turns::new(limits), bells: BTreeMap::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Stands in line for a registry.
    pub(super) fn join(&self, registry: &str) -> Place {
        let (sender, bell) = oneshot::channel();
        let ticket = {
            let mut state = self.lock();
            let ticket = state.turns.join(registry);
            state.bells.insert(ticket, sender);
            ticket
        };
        self.ring();
        Place { line: self.clone(), registry: registry.to_owned(), ticket, bell }
    }

    /// Wakes whoever has a turn now. A turn that nobody takes any more comes back by itself.
    fn ring(&self) {
        let mut given = Vec::new();
        {
            let mut state = self.lock();
            while let Some((registry, ticket)) = state.turns.next() {
                let bell = state.bells.remove(&ticket);
                let turn = Turn { line: self.clone(), registry };
                given.push((bell, turn));
            }
        }
        for (bell, turn) in given {
            if let Some(bell) = bell {
                drop(bell.send(turn));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the lock is held")
    }
}

impl Place {
    /// Waits for the turn. Cancel-safe: the place is kept.
    pub(super) async fn turn(&mut self) -> Turn {
        (&mut self.bell).await.expect("a bell rings before it is dropped, once")
    }

    /// How many pulls come before this one.
    pub(super) fn ahead(&self) -> usize {
        self.line.lock().turns.ahead_of(self.ticket)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        if state.bells.remove(&self.ticket).is_some() {
            state.turns.leave(&self.registry, self.ticket);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.line.lock().turns.finish(&self.registry);
        self.line.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn a_place_or_turn_that_is_dropped_goes_to_the_next() {
        let line = Line::new(PullLimits::SERIAL);
        let (mut first, second, mut third) = (line.join("a"), line.join("a"), line.join("b"));
        let turn = first.turn().await;
        assert!(third.turn().now_or_never().is_none());
        assert_eq!(third.ahead(), 2);
        drop(second);
        // Given, but never taken.
        let mut fourth = line.join("c");
        drop(turn);
        drop(third);
        assert!(fourth.turn().now_or_never().is_some());
        assert!(line.lock().bells.is_empty());
    }
}
