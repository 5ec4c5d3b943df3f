//! ResourceSlices of drivers that nobody can reach: the scheduler must not place pods by what they
//! offer. At the start that is true of every driver.
//!
//! ```text
//!  driver ─ Unusable ─► due in 30 s ─ removed ─► forgotten
//!     ▲                   │    └ refused ─► due in 1 s, 2 s, … 5 min
//!     └───── Usable ──────┘
//! ```

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use ferrolet_ports::ClaimObjects;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// A driver that is restarted is back before this, and what it offers had better stay. Upstream's
/// time.
const PATIENCE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// When a driver's slices go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wipe {
    due: Instant,
    /// How long to wait when it does not work.
    pause: Duration,
}

/// Whose slices go; `None` stands for all drivers.
#[derive(Debug, Default)]
pub(crate) struct Wipes(BTreeMap<Option<String>, Wipe>);

impl Wipes {
    fn all_at(now: Instant) -> Self {
        Self(BTreeMap::from([(None, Wipe { due: now, pause: FIRST_PAUSE })]))
    }

    fn usable(&mut self, driver: &str) {
        self.0.remove(&Some(driver.to_owned()));
    }

    fn unusable(&mut self, driver: &str, now: Instant) {
        let wipe = Wipe { due: now + PATIENCE, pause: FIRST_PAUSE };
        // One that comes and goes does not put it off.
        self.0.entry(Some(driver.to_owned())).or_insert(wipe);
    }

    /// Whose turn it is, and when it came.
    fn next(&self) -> Option<(Option<String>, Instant)> {
        let next = self.0.iter().min_by_key(|(_, wipe)| wipe.due)?;
        Some((next.0.clone(), next.1.due))
    }

    /// It is done; a driver that came back meanwhile and went again has its turn again.
    fn done(&mut self, whose: &Option<String>, due: Instant) {
        if self.0.get(whose).is_some_and(|wipe| wipe.due == due) {
            self.0.remove(whose);
        }
    }

    fn failed(&mut self, whose: &Option<String>, due: Instant, now: Instant) {
        if let Some(wipe) = self.0.get_mut(whose).filter(|wipe| wipe.due == due) {
            wipe.due = now + wipe.pause;
            wipe.pause = (wipe.pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// What is to be wiped, and the loop that is told of it.
#[derive(Debug, Default)]
pub(crate) struct Wiping {
    wipes: Mutex<Wipes>,
    changed: Notify,
}

impl Wiping {
    /// Nobody can reach the driver any more.
    pub(crate) fn unusable(&self, driver: &str) {
        self.edit(|wipes| wipes.unusable(driver, Instant::now()));
        self.changed.notify_one();
    }

    /// The driver can be reached.
    pub(crate) fn usable(&self, driver: &str) {
        self.edit(|wipes| wipes.usable(driver));
    }

    fn edit<T>(&self, edit: impl FnOnce(&mut Wipes) -> T) -> T {
        edit(&mut self.wipes.lock().expect("no panic while the lock is held"))
    }

    /// Wipes for ever, first of all what every driver offers.
    pub(crate) async fn run(&self, objects: &dyn ClaimObjects) {
        let at_start = Wipes::all_at(Instant::now());
        self.edit(|wipes| wipes.0.extend(at_start.0));
        loop {
            let next = self.edit(|wipes| wipes.next());
            let Some((whose, due)) = next else {
                self.changed.notified().await;
                continue;
            };
            if due > Instant::now() {
                tokio::select! {
                    // A word that came before is remembered; a timer loses nothing.
                    () = self.changed.notified() => {}
                    () = sleep_until(due) => {}
                }
                continue;
            }
            match objects.wipe_slices(whose.as_deref()).await {
                Ok(()) => {
                    tracing::info!(
                        driver = whose.as_deref(),
                        "What drivers offered that are not there is removed"
                    );
                    self.edit(|wipes| wipes.done(&whose, due));
                }
                Err(error) => {
                    tracing::debug!(driver = whose.as_deref(), %error, "What drivers offered that are not there is not removed yet");
                    self.edit(|wipes| wipes.failed(&whose, due, Instant::now()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn slices_of_a_driver_go_when_it_stays_away() {
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let (all, x) = (None, Some("x".to_owned()));
        let mut wipes = Wipes::all_at(start);
        wipes.unusable("x", start);
        assert_eq!(wipes.next(), Some((all.clone(), start)));
        wipes.failed(&all, start, start);
        assert_eq!(wipes.next(), Some((all.clone(), after(1))));
        wipes.failed(&all, after(1), after(1));
        assert_eq!(wipes.next(), Some((all.clone(), after(3))));
        wipes.done(&all, after(3));
        assert_eq!(wipes.next(), Some((x.clone(), after(30))));
        wipes.unusable("x", after(20));
        assert_eq!(wipes.next(), Some((x.clone(), after(30))));
        wipes.usable("x");
        assert_eq!(wipes.next(), None);
        // It went again while its slices were being removed.
        wipes.unusable("x", after(40));
        wipes.done(&x, after(30));
        assert_eq!(wipes.next(), Some((x.clone(), after(70))));
        let mut due = after(70);
        for _ in 0..20 {
            wipes.failed(&x, due, due);
            let next = wipes.next().unwrap().1;
            assert!(next - due <= LONGEST_PAUSE);
            due = next;
        }
    }
}
