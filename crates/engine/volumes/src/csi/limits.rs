//! How many of its volumes a driver lets this node have, asked again as often as the driver's
//! object says.
//!
//! The number may change while the driver runs: a slot of the machine is taken by something else.
//! In: who is registered, and the periods of the cluster's `CSIDriver` objects. Out: calls; what a
//! driver answers goes the way of its registration. A driver without a period is never asked, and
//! then nothing here wakes up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::{CsiDrivers, RegisteredDriver};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// What asking again needs.
pub struct LimitDoors {
    /// The drivers.
    pub drivers: Arc<dyn CsiDrivers>,
    /// Who is registered.
    pub registered: watch::Receiver<BTreeMap<String, RegisteredDriver>>,
    /// How often the cluster wants each driver asked.
    pub periods: watch::Receiver<BTreeMap<String, Duration>>,
}

/// When each driver is asked next.
#[derive(Debug, Default, PartialEq, Eq)]
struct Appointments(BTreeMap<String, (Duration, Instant)>);

impl Appointments {
    /// Keeps those whose period is the same, and begins others anew.
    fn follow<'a>(
        &mut self,
        registered: impl Iterator<Item = &'a String>,
        periods: &BTreeMap<String, Duration>,
        now: Instant,
    ) {
        let mut before = std::mem::take(&mut self.0);
        for name in registered {
            let Some(period) = periods.get(name) else {
                continue;
            };
            let kept = before.remove(name).filter(|(old, _)| old == period);
            let next = kept.unwrap_or((*period, now + *period));
            self.0.insert(name.clone(), next);
        }
    }

    fn next(&self) -> Option<Instant> {
        self.0.values().map(|(_, due)| *due).min()
    }

    /// Those who are due; each is due again a period later.
    fn take_due(&mut self, now: Instant) -> BTreeSet<String> {
        let mut due = BTreeSet::new();
        for (name, (period, at)) in &mut self.0 {
            if *at <= now {
                *at = now + *period;
                due.insert(name.clone());
            }
        }
        due
    }
}

/// Asks until nobody registers any more.
pub async fn follow_limits(doors: LimitDoors) {
    let LimitDoors { drivers, mut registered, mut periods } = doors;
    let mut appointments = Appointments::default();
    let mut asked: JoinSet<()> = JoinSet::new();
    loop {
        let names: BTreeSet<String> = registered.borrow_and_update().keys().cloned().collect();
        let wanted = periods.borrow_and_update().clone();
        appointments.follow(names.iter(), &wanted, Instant::now());
        let next = appointments.next();
        tokio::select! {
            // Cancel-safe: the latest set is read again at the top.
            changed = registered.changed() => if changed.is_err() { return },
            // Cancel-safe likewise. Periods that nobody writes any more stay as they are.
            Ok(()) = periods.changed() => {}
            // Cancel-safe: appointments stay until they are taken below.
            () = until(next) => {
                for name in appointments.take_due(Instant::now()) {
                    // On its own: one that hangs keeps nobody else waiting.
                    asked.spawn(ask(Arc::clone(&drivers), name));
                }
            }
            // Cancel-safe: a finished task stays in the set until it is taken.
            Some(ended) = asked.join_next() => {
                if let Err(panic) = ended {
                    tracing::error!(%panic, "Asking a driver for its limit broke off");
                }
            }
        }
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next).await,
        None => std::future::pending().await,
    }
}

async fn ask(drivers: Arc<dyn CsiDrivers>, name: String) {
    if let Err(error) = drivers.look_again(&name).await {
        tracing::warn!(driver = name, %error, "Driver does not say how many volumes this node takes");
    }
}

#[cfg(test)]
mod tests {
    use ferrolet_ports::CsiAbilities;
    use ferrolet_testkit::{FakeDrivers, FakeMounts};

    use super::*;

    fn driver() -> RegisteredDriver {
        RegisteredDriver { node_id: "n".to_owned(), max_volumes: 1, topology: BTreeMap::new() }
    }

    fn periods(seconds: &[(&str, u64)]) -> BTreeMap<String, Duration> {
        let seconds = seconds.iter();
        seconds.map(|(name, it)| ((*name).to_owned(), Duration::from_secs(*it))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn drivers_are_asked_again_as_often_as_their_objects_say() {
        let drivers = FakeDrivers::on(FakeMounts::default());
        drivers.change(|state| {
            for name in ["often", "seldom", "never"] {
                let abilities = CsiAbilities::default();
                state.drivers.insert(name.to_owned(), abilities);
            }
        });
        let all = ["often", "seldom", "never"].map(|name| (name.to_owned(), driver()));
        let (registered, seen) = watch::channel(BTreeMap::from(all));
        let (said, heard) = watch::channel(periods(&[("often", 10), ("seldom", 60)]));
        let loop_ended = tokio::spawn(follow_limits(LimitDoors {
            drivers: Arc::new(drivers.clone()),
            registered: seen,
            periods: heard,
        }));
        let asked = || -> Vec<String> {
            let calls = drivers.look().calls.into_iter();
            calls.map(|(_, driver)| driver).collect()
        };
        tokio::time::sleep(Duration::from_secs(65)).await;
        let count = |name: &str| asked().iter().filter(|it| *it == name).count();
        assert_eq!((count("often"), count("seldom"), count("never")), (6, 1, 0), "{:?}", asked());
        // Nobody wants to know any more, and the one that goes is not asked.
        said.send_replace(periods(&[("seldom", 60)]));
        registered.send_modify(|all| drop(all.remove("often")));
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert_eq!((count("often"), count("seldom")), (6, 1));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(count("seldom"), 2);
        drop(registered);
        loop_ended.await.unwrap();
    }
}
