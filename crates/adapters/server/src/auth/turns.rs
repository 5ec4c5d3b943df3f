//! Taking turns at asking the API server: so many questions at once, and few of them from one place.
//!
//! Whoever sends a flood of questions (a new token with every request) waits behind themselves: a
//! caller from elsewhere finds a turn free. Refuses: asking anything.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Questions under way at once.
const ALL: usize = 32;
/// Of which so many may be about callers from one place.
const EACH: usize = 4;
/// Places that are remembered before those where nobody asks are forgotten.
const PLACES: usize = 1024;

pub(super) struct Turns {
    all: Arc<Semaphore>,
    each: Mutex<HashMap<Option<IpAddr>, Arc<Semaphore>>>,
}

/// A question may be asked while this is held.
pub(super) struct Turn {
    _each: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(ALL)), each: Mutex::default() }
    }

    /// Waits for a turn, behind those from the same place first.
    pub(super) async fn take(&self, from: Option<IpAddr>) -> Turn {
        let each = self.of(from).acquire_owned().await.expect("never closed");
        let all = Arc::clone(&self.all).acquire_owned().await.expect("never closed");
        Turn { _each: each, _all: all }
    }

    fn of(&self, from: Option<IpAddr>) -> Arc<Semaphore> {
        let mut each = self.each.lock().expect("no panic under this lock");
        if each.len() >= PLACES {
            // Whoever waits or asks holds a reference.
            each.retain(|_, place| Arc::strong_count(place) > 1);
        }
        Arc::clone(each.entry(from).or_insert_with(|| Arc::new(Semaphore::new(EACH))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn from(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    async fn at_once(turns: &Turns, from: Option<IpAddr>) -> Option<Turn> {
        tokio::time::timeout(Duration::from_millis(1), turns.take(from)).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_waits_behind_itself() {
        let turns = Turns::new();
        let mut held = Vec::new();
        for _ in 0..EACH {
            held.push(at_once(&turns, from(1)).await.unwrap());
        }
        assert!(at_once(&turns, from(1)).await.is_none());
        let other = at_once(&turns, from(2)).await;
        assert!(other.is_some());
        held.pop();
        assert!(at_once(&turns, from(1)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_an_end_to_it_and_places_are_forgotten() {
        let turns = Turns::new();
        let mut held = Vec::new();
        for last in 0..u8::try_from(ALL).unwrap() {
            held.push(at_once(&turns, from(last)).await.unwrap());
        }
        assert!(at_once(&turns, from(200)).await.is_none());
        held.clear();
        for n in 0..u32::try_from(3 * PLACES).unwrap() {
            let place = Some(IpAddr::from(n.to_be_bytes()));
            assert!(at_once(&turns, place).await.is_some());
        }
        assert!(turns.each.lock().unwrap().len() <= PLACES);
    }
}
