//! The fake of the port `CsiDrivers`: drivers that remember what is staged and published, and obey
//! the interface's rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use ferrolet_ports::{
    CsiAbilities, CsiAilment, CsiDrivers, CsiError, CsiExpand, CsiFate, CsiHealthAsk, CsiPublish,
    CsiStage, FileRoom, Fut, RecordPlace,
};

use crate::FakeMounts;

/// Drivers in memory.
#[derive(Clone, Default)]
pub struct FakeDrivers {
    state: Arc<Mutex<DriverState>>,
    mounts: FakeMounts,
}

/// What the drivers remember.
#[derive(Clone, Debug, Default)]
pub struct DriverState {
    /// Who is registered, and what each can do.
    pub drivers: BTreeMap<String, CsiAbilities>,
    /// Volumes and where they are staged.
    pub staged: BTreeSet<(String, String)>,
    /// Volumes and where they are published.
    pub published: BTreeSet<(String, String)>,
    /// Every call, in order: method and volume, or the driver where no volume is concerned.
    pub calls: Vec<(String, String)>,
    /// The last request to publish.
    pub last_publish: Option<CsiPublish>,
    /// How full volumes are, by volume and path.
    pub usage: BTreeMap<(String, String), FileRoom>,
    /// What is wrong with volumes, by their names.
    pub ailing: BTreeMap<String, Vec<CsiAilment>>,
    /// What is wrong with all that a driver stores, by driver.
    pub storage_ailing: BTreeMap<String, Vec<CsiAilment>>,
    /// The last volume whose health was asked for.
    pub last_health: Option<CsiHealthAsk>,
    /// Methods that fail, and how.
    pub faults: BTreeMap<String, CsiError>,
}

impl FakeDrivers {
    /// Drivers whose mounts show in that table.
    pub fn on(mounts: FakeMounts) -> Self {
        Self { state: Arc::default(), mounts }
    }

    /// What is true now.
    pub fn look(&self) -> DriverState {
        self.lock().clone()
    }

    /// Changes what is true.
    pub fn change(&self, change: impl FnOnce(&mut DriverState)) {
        change(&mut self.lock());
    }

    /// The methods that were called, in order.
    pub fn methods(&self) -> Vec<String> {
        let state = self.lock();
        state.calls.iter().map(|(method, _)| method.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, DriverState> {
        self.state.lock().expect("no test panics in a change")
    }

    fn call<T: Send + 'static>(
        &self,
        driver: &str,
        (method, volume): (&str, &str),
        work: impl FnOnce(&mut DriverState) -> Result<T, CsiError>,
    ) -> Fut<'static, Result<T, CsiError>> {
        let mut state = self.lock();
        let answer = if !state.drivers.contains_key(driver) {
            Err(CsiError {
                message: format!(
                    "driver name {driver} not found in the list of registered CSI drivers"
                ),
                fate: CsiFate::Open,
            })
        } else {
            if !["abilities", "usage", "health"].contains(&method) {
                state.calls.push((method.to_owned(), volume.to_owned()));
            }
            match state.faults.get(method).cloned() {
                Some(fault) => Err(fault),
                None => work(&mut state),
            }
        };
        Box::pin(std::future::ready(answer))
    }

    fn set_mounted(&self, path: &str, is_mounted: bool) {
        use ferrolet_ports::NodeMounts as _;
        let places: Vec<RecordPlace> = self.mounts.look().records.into_keys().collect();
        let place =
            places.into_iter().find(|place| self.mounts.driver_path(place).to_str() == Some(path));
        if let Some(place) = place {
            self.mounts.change(|table| {
                if is_mounted {
                    table.mounted.insert(place);
                } else {
                    table.mounted.remove(&place);
                }
            });
        }
    }
}

fn refused(message: &str) -> CsiError {
    CsiError { message: message.to_owned(), fate: CsiFate::Final }
}

impl CsiDrivers for FakeDrivers {
    fn abilities<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<CsiAbilities, CsiError>> {
        self.call(driver, ("abilities", ""), |state| Ok(state.drivers[driver]))
    }

    fn stage<'a>(&'a self, driver: &'a str, ask: &'a CsiStage) -> Fut<'a, Result<(), CsiError>> {
        let done = self.call(driver, ("stage", &ask.volume), |state| {
            state.staged.insert((ask.volume.clone(), ask.path.clone()));
            Ok(())
        });
        self.set_mounted(&ask.path, true);
        done
    }

    fn unstage<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
        path: &'a str,
    ) -> Fut<'a, Result<(), CsiError>> {
        self.set_mounted(path, false);
        self.call(driver, ("unstage", volume), |state| {
            if state.published.iter().any(|(it, _)| it == volume) {
                return Err(refused("it is still published"));
            }
            state.staged.remove(&(volume.to_owned(), path.to_owned()));
            Ok(())
        })
    }

    fn publish<'a>(
        &'a self,
        driver: &'a str,
        ask: &'a CsiPublish,
    ) -> Fut<'a, Result<(), CsiError>> {
        self.call(driver, ("publish", &ask.stage.volume), |state| {
            state.last_publish = Some(ask.clone());
            let staged = (ask.stage.volume.clone(), ask.staging_path.clone());
            if !ask.staging_path.is_empty() && !state.staged.contains(&staged) {
                return Err(refused("it is not staged"));
            }
            let place = (ask.stage.volume.clone(), ask.stage.path.clone());
            state.published.insert(place);
            Ok(())
        })
    }

    fn unpublish<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
        path: &'a str,
    ) -> Fut<'a, Result<(), CsiError>> {
        self.call(driver, ("unpublish", volume), |state| {
            state.published.remove(&(volume.to_owned(), path.to_owned()));
            Ok(())
        })
    }

    fn expand<'a>(&'a self, driver: &'a str, ask: &'a CsiExpand) -> Fut<'a, Result<(), CsiError>> {
        self.call(driver, ("expand", &ask.volume), |_| Ok(()))
    }

    fn usage<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
        path: &'a str,
    ) -> Fut<'a, Result<FileRoom, CsiError>> {
        self.call(driver, ("usage", volume), |state| {
            let found = state.usage.get(&(volume.to_owned(), path.to_owned()));
            found.copied().ok_or_else(|| refused("nothing is there"))
        })
    }

    fn volume_health<'a>(
        &'a self,
        driver: &'a str,
        ask: &'a CsiHealthAsk,
    ) -> Fut<'a, Result<Vec<CsiAilment>, CsiError>> {
        self.call(driver, ("health", &ask.volume), |state| {
            state.last_health = Some(ask.clone());
            Ok(state.ailing.get(&ask.volume).cloned().unwrap_or_default())
        })
    }

    fn storage_health<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<Vec<CsiAilment>, CsiError>> {
        self.call(driver, ("health", driver), |state| {
            let ailing = state.storage_ailing.get(driver);
            Ok(ailing.cloned().unwrap_or_default())
        })
    }

    fn look_again<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<(), CsiError>> {
        self.call(driver, ("look again", driver), |_| Ok(()))
    }
}
