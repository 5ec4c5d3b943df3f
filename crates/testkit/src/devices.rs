//! Device plugins and devices of pods, without gRPC and without a book.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use ferrolet_devices::{PluginId, PreferredAsk};
use ferrolet_ports::{DeviceAnswer, DeviceError, DevicePlugins, Fut, PluginCallError, PodDevices};
use ferrolet_spec::PluginResources;
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use k8s_openapi::api::core::v1::ResourceStatus;
use tokio::sync::Notify;

/// Plugins that give what they are asked for: each device becomes a variable of its name. An answer
/// on disk is the names of the devices.
#[derive(Debug, Default)]
pub struct FakePlugins {
    state: Mutex<PluginState>,
    /// Allocations wait for it while they are held up.
    freed: Notify,
}

#[derive(Debug, Default)]
struct PluginState {
    allocated: Vec<BTreeSet<String>>,
    started: Vec<BTreeSet<String>>,
    preferred: BTreeSet<String>,
    fault: Option<String>,
    is_held_up: bool,
}

impl FakePlugins {
    /// What was allocated, call by call.
    pub fn allocated(&self) -> Vec<BTreeSet<String>> {
        self.state.lock().expect("no panic while the lock is held").allocated.clone()
    }

    /// What containers were about to start with, call by call.
    pub fn started(&self) -> Vec<BTreeSet<String>> {
        self.state.lock().expect("no panic while the lock is held").started.clone()
    }

    /// From now on these are preferred.
    pub fn prefer(&self, ids: &[&str]) {
        self.state.lock().expect("no panic while the lock is held").preferred =
            ids.iter().map(|it| (*it).to_owned()).collect();
    }

    /// From now on every call fails with these words; `None` for none.
    pub fn fail(&self, fault: Option<&str>) {
        self.state.lock().expect("no panic while the lock is held").fault =
            fault.map(str::to_owned);
    }

    /// From now on allocations take for ever, until they are let go.
    pub fn hold_up(&self, is_held_up: bool) {
        self.state.lock().expect("no panic while the lock is held").is_held_up = is_held_up;
        self.freed.notify_waiters();
    }

    fn check(&self) -> Result<(), PluginCallError> {
        let state = self.state.lock().expect("no panic while the lock is held");
        state.fault.clone().map_or(Ok(()), |fault| Err(PluginCallError(fault)))
    }
}

fn given(ids: &BTreeSet<String>) -> PluginResources {
    PluginResources {
        env: ids.iter().map(|id| (id.clone(), "given".to_owned())).collect(),
        ..PluginResources::default()
    }
}

impl DevicePlugins for FakePlugins {
    fn preferred<'a>(
        &'a self,
        _: PluginId,
        _: &'a PreferredAsk,
    ) -> Fut<'a, Result<BTreeSet<String>, PluginCallError>> {
        Box::pin(async {
            self.check()?;
            Ok(self.state.lock().expect("no panic while the lock is held").preferred.clone())
        })
    }

    fn allocate<'a>(
        &'a self,
        _: PluginId,
        ids: &'a BTreeSet<String>,
    ) -> Fut<'a, Result<DeviceAnswer, PluginCallError>> {
        Box::pin(async move {
            self.check()?;
            while self.state.lock().expect("no panic while the lock is held").is_held_up {
                self.freed.notified().await;
            }
            self.state.lock().expect("no panic while the lock is held").allocated.push(ids.clone());
            let names: Vec<&str> = ids.iter().map(String::as_str).collect();
            Ok(DeviceAnswer { resources: given(ids), bytes: names.join(" ").into_bytes() })
        })
    }

    fn pre_start<'a>(
        &'a self,
        _: PluginId,
        ids: &'a BTreeSet<String>,
    ) -> Fut<'a, Result<(), PluginCallError>> {
        Box::pin(async move {
            self.check()?;
            self.state.lock().expect("no panic while the lock is held").started.push(ids.clone());
            Ok(())
        })
    }

    fn read_answer(&self, bytes: &[u8]) -> Result<PluginResources, PluginCallError> {
        let text = std::str::from_utf8(bytes).map_err(|it| PluginCallError(it.to_string()))?;
        Ok(given(&text.split_whitespace().map(str::to_owned).collect()))
    }
}

/// Devices of pods as somebody else keeps them.
#[derive(Debug, Default)]
pub struct FakeDevices {
    state: Mutex<DeviceState>,
}

#[derive(Debug, Default)]
struct DeviceState {
    fault: Option<DeviceError>,
    wait: Option<String>,
    given: PluginResources,
    health: BTreeMap<String, Vec<ResourceStatus>>,
    owners: BTreeSet<PodUid>,
}

impl FakeDevices {
    /// From now on pods are refused, or have to wait; `None` gives them what they ask for.
    pub fn refuse(&self, fault: Option<DeviceError>) {
        self.state.lock().expect("no panic while the lock is held").fault = fault;
    }

    /// From now on containers have to wait; `None` lets them start.
    pub fn hold_back(&self, why: Option<&str>) {
        self.state.lock().expect("no panic while the lock is held").wait = why.map(str::to_owned);
    }

    /// What containers are given.
    pub fn give(&self, resources: PluginResources) {
        self.state.lock().expect("no panic while the lock is held").given = resources;
    }

    /// How the devices of a container feel.
    pub fn feel(&self, container: &str, health: Vec<ResourceStatus>) {
        self.state
            .lock()
            .expect("no panic while the lock is held")
            .health
            .insert(container.to_owned(), health);
    }

    /// Pods that have devices.
    pub fn owners(&self) -> BTreeSet<PodUid> {
        self.state.lock().expect("no panic while the lock is held").owners.clone()
    }
}

impl PodDevices for FakeDevices {
    fn allocate<'a>(
        &'a self,
        pod: &'a Pod,
        _: &'a BTreeSet<String>,
    ) -> Fut<'a, Result<(), DeviceError>> {
        Box::pin(async move {
            let mut state = self.state.lock().expect("no panic while the lock is held");
            if let Some(fault) = &state.fault {
                return Err(fault.clone());
            }
            state.owners.insert(pod.uid());
            Ok(())
        })
    }

    fn for_container<'a>(
        &'a self,
        uid: &'a PodUid,
        _: &'a str,
    ) -> Fut<'a, Result<PluginResources, String>> {
        Box::pin(async move {
            let state = self.state.lock().expect("no panic while the lock is held");
            match &state.wait {
                Some(why) => Err(why.clone()),
                None if state.owners.contains(uid) => Ok(state.given.clone()),
                None => Ok(PluginResources::default()),
            }
        })
    }

    fn release(&self, uid: &PodUid) {
        self.state.lock().expect("no panic while the lock is held").owners.remove(uid);
    }

    fn retain(&self, is_known: &dyn Fn(&PodUid) -> bool) {
        self.state.lock().expect("no panic while the lock is held").owners.retain(is_known);
    }

    fn health(&self, _: &PodUid, container: &str) -> Vec<ResourceStatus> {
        self.state
            .lock()
            .expect("no panic while the lock is held")
            .health
            .get(container)
            .cloned()
            .unwrap_or_default()
    }
}
