//! The fake of the port `FlexDrivers`: drivers that remember what they were told. Their mounts show
//! in the fake mount table.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

use ferrolet_ports::{
    FlexAbilities, FlexAnswer, FlexCall, FlexCommand, FlexDrivers, FlexError, FlexPlace, FlexStand,
    Fut, HostError,
};
use ferrolet_types::PodUid;

use crate::{FakeMounts, files::pod_directory};

/// Drivers in memory.
#[derive(Clone, Default)]
pub struct FakeFlex {
    state: Arc<Mutex<FlexState>>,
    mounts: FakeMounts,
}

/// What the drivers remember.
#[derive(Clone, Debug, Default)]
pub struct FlexState {
    /// Who is installed, and what each can do.
    pub drivers: BTreeMap<String, FlexAbilities>,
    /// Drivers that are there and do not introduce themselves, and why.
    pub broken: BTreeMap<String, String>,
    /// Commands that no driver supports.
    pub unsupported: BTreeSet<FlexCommand>,
    /// Commands that fail, and how.
    pub faults: BTreeMap<FlexCommand, String>,
    /// The device that waiting for one ends with.
    pub device: String,
    /// Every call that was supported, in order.
    pub calls: Vec<FlexCall>,
}

impl FakeFlex {
    /// Drivers whose mounts show in that table.
    pub fn on(mounts: FakeMounts) -> Self {
        Self { state: Arc::default(), mounts }
    }

    /// What is true now.
    pub fn look(&self) -> FlexState {
        self.lock().clone()
    }

    /// Changes what is true.
    pub fn change(&self, change: impl FnOnce(&mut FlexState)) {
        change(&mut self.lock());
    }

    /// The commands that were carried out, in order; asking forgets them.
    pub fn take_commands(&self) -> Vec<&'static str> {
        let calls = std::mem::take(&mut self.lock().calls);
        calls.iter().map(|it| it.command.word()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, FlexState> {
        self.state.lock().expect("no test panics in a change")
    }

    fn answer(&self, driver: &str, call: &FlexCall) -> Result<FlexAnswer, FlexError> {
        let mut state = self.lock();
        if !state.drivers.contains_key(driver) {
            return Err(FlexError::Missing);
        }
        if state.unsupported.contains(&call.command) {
            return Err(FlexError::NotSupported);
        }
        state.calls.push(call.clone());
        if let Some(why) = state.faults.get(&call.command) {
            return Err(FlexError::Failed(why.clone()));
        }
        let first = call.words.first().cloned().unwrap_or_default();
        match call.command {
            FlexCommand::Mount | FlexCommand::MountDevice => self.set_mounted(&first, true),
            FlexCommand::Unmount | FlexCommand::UnmountDevice => self.set_mounted(&first, false),
            FlexCommand::Init
            | FlexCommand::GetVolumeName
            | FlexCommand::Attach
            | FlexCommand::WaitForAttach
            | FlexCommand::Detach
            | FlexCommand::ExpandFs => {}
        }
        Ok(FlexAnswer { device: state.device.clone() })
    }

    fn set_mounted(&self, path: &str, is_mounted: bool) {
        self.mounts.change(|table| {
            for (place, mounted) in &mut table.flex {
                if path_of(place).to_str() == Some(path) {
                    *mounted = is_mounted;
                }
            }
        });
    }

    /// What stands at a place.
    fn stand(&self, place: &FlexPlace) -> Option<FlexStand> {
        let table = self.mounts.look();
        let is_covered = match place {
            FlexPlace::Pod(place) => table.bound.contains_key(place),
            FlexPlace::Node { volume, .. } => table.devices.contains_key(volume),
        };
        let is_mounted = *table.flex.get(place)? || is_covered;
        Some(FlexStand { path: path_of(place), is_mounted })
    }
}

fn path_of(place: &FlexPlace) -> PathBuf {
    PathBuf::from(match place {
        FlexPlace::Pod(place) => {
            let pod = pod_directory(&place.uid);
            format!("{pod}/volumes/{}/{}", place.plugin, place.name)
        }
        FlexPlace::Node { driver, volume } => format!("/flex/{driver}/mounts/{volume}"),
    })
}

fn ready<T: Send + 'static, E: Send + 'static>(answer: Result<T, E>) -> Fut<'static, Result<T, E>> {
    Box::pin(std::future::ready(answer))
}

impl FlexDrivers for FakeFlex {
    fn abilities<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<FlexAbilities, FlexError>> {
        let state = self.lock();
        ready(match state.broken.get(driver) {
            Some(why) => Err(FlexError::Broken(why.clone())),
            None => state.drivers.get(driver).copied().ok_or(FlexError::Missing),
        })
    }

    fn call<'a>(
        &'a self,
        driver: &'a str,
        call: &'a FlexCall,
    ) -> Fut<'a, Result<FlexAnswer, FlexError>> {
        ready(self.answer(driver, call))
    }

    fn make_place<'a>(&'a self, place: &'a FlexPlace) -> Fut<'a, Result<FlexStand, HostError>> {
        self.mounts.change(|table| {
            table.flex.entry(place.clone()).or_insert(false);
        });
        ready(Ok(self.stand(place).expect("it was made")))
    }

    fn look_at<'a>(
        &'a self,
        place: &'a FlexPlace,
    ) -> Fut<'a, Result<Option<FlexStand>, HostError>> {
        ready(Ok(self.stand(place)))
    }

    fn clear_place<'a>(&'a self, place: &'a FlexPlace) -> Fut<'a, Result<(), HostError>> {
        self.mounts.change(|table| {
            table.flex.remove(place);
            match place {
                FlexPlace::Pod(place) => drop(table.bound.remove(place)),
                FlexPlace::Node { volume, .. } => drop(table.devices.remove(volume)),
            }
        });
        ready(Ok(()))
    }

    fn users<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
    ) -> Fut<'a, Result<Vec<PodUid>, HostError>> {
        let plugin = driver.replace('/', "~");
        let table = self.mounts.look();
        let users = table.flex.keys().filter_map(|place| match place {
            FlexPlace::Pod(it) if it.plugin == plugin && it.name == volume => Some(it.uid.clone()),
            _ => None,
        });
        ready(Ok(users.collect()))
    }

    fn stored(&self) -> Fut<'_, Result<Vec<(String, String)>, HostError>> {
        let table = self.mounts.look();
        let stored = table.flex.into_keys().filter_map(|place| match place {
            FlexPlace::Node { driver, volume } => Some((driver, volume)),
            FlexPlace::Pod(_) => None,
        });
        ready(Ok(stored.collect()))
    }
}
