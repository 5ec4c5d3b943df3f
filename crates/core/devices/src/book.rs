//! The book of devices: what plugins offer, and who was given what.
//!
//! A resource is known from the first list of its plugin, or from the checkpoint of an earlier life
//! of the agent, until five minutes after its last plugin went. What pods were given stays until
//! they end, whatever becomes of the plugin.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ferrolet_spec::PluginResources;
use ferrolet_types::{PodUid, Timestamp};

/// How long a resource without a plugin is still counted, with no healthy device.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(300);
/// Where devices stand that are close to no NUMA node.
pub(crate) const NO_NUMA_NODE: i64 = -1;

/// One connection of a plugin: a later registration on the same socket is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginId(pub u64);

/// What a plugin wants to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginOptions {
    /// It is called before each start of a container.
    pub pre_start: bool,
    /// It is asked which devices go well together.
    pub preferred: bool,
}

/// A device, as its plugin lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// It may be given to somebody.
    pub is_healthy: bool,
    /// NUMA nodes it is close to; none where that does not matter.
    pub numa_nodes: Vec<i64>,
}

/// Devices of one resource that one container has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The plugin's names for them, by NUMA node.
    pub ids: BTreeMap<i64, Vec<String>>,
    /// What the container gets with them.
    pub resources: PluginResources,
    /// The plugin's answer as it came, for the checkpoint.
    pub answer: Vec<u8>,
    /// It is from an earlier life of the agent.
    pub is_recalled: bool,
}

impl Allocation {
    /// The devices, wherever they stand.
    pub fn devices(&self) -> BTreeSet<String> {
        self.ids.values().flatten().cloned().collect()
    }
}

/// Plugins of one resource and what they list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resource {
    pub(crate) devices: BTreeMap<String, Device>,
    /// Those that are connected; the last to come is asked.
    plugins: Vec<(PluginId, PluginOptions)>,
    /// When the last of them went.
    stopped_at: Option<Timestamp>,
    /// It is known from an earlier life of the agent, and has not been listed since.
    is_awaited: bool,
}

impl Resource {
    pub(crate) fn healthy(&self) -> BTreeSet<String> {
        let healthy = self.devices.iter().filter(|(_, device)| device.is_healthy);
        healthy.map(|(id, _)| id.clone()).collect()
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.stopped_at.is_some_and(|since| now.since(since) > STOP_GRACE)
    }
}

/// By container, by resource.
pub(crate) type OfPod = BTreeMap<String, BTreeMap<String, Allocation>>;

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct DeviceBook {
    pub(crate) resources: BTreeMap<String, Resource>,
    pub(crate) pods: BTreeMap<PodUid, OfPod>,
    /// Devices that a plugin is just being asked to allocate.
    reserved: BTreeMap<String, BTreeMap<String, usize>>,
    /// Resources that are counted no longer.
    pub(crate) removed: BTreeSet<String>,
}

impl DeviceBook {
    /// A plugin is there; it lists its devices next.
    pub fn connect(&mut self, resource: &str, plugin: PluginId, options: PluginOptions) {
        let known = self.resources.entry(resource.to_owned()).or_default();
        known.plugins.push((plugin, options));
        known.stopped_at = None;
        self.removed.remove(resource);
    }

    /// A plugin lists its devices; answers with pods whose devices feel different now.
    pub fn list(&mut self, resource: &str, devices: BTreeMap<String, Device>) -> BTreeSet<PodUid> {
        let Some(known) = self.resources.get_mut(resource) else {
            return BTreeSet::new();
        };
        let health =
            |of: &BTreeMap<String, Device>, id: &String| of.get(id).map(|it| it.is_healthy);
        let is_news = |id: &&String| health(&known.devices, id) != health(&devices, id);
        let news: BTreeSet<String> = devices.keys().filter(is_news).cloned().collect();
        known.devices = devices;
        known.is_awaited = false;
        self.owners(resource, |id| news.contains(id))
    }

    /// A plugin is gone; answers with pods that have devices of its resource, when it was the last.
    pub fn disconnect(
        &mut self,
        resource: &str,
        plugin: PluginId,
        now: Timestamp,
    ) -> BTreeSet<PodUid> {
        let Some(known) = self.resources.get_mut(resource) else {
            return BTreeSet::new();
        };
        let before = known.plugins.len();
        known.plugins.retain(|(id, _)| *id != plugin);
        if known.plugins.len() == before || !known.plugins.is_empty() {
            return BTreeSet::new();
        }
        known.stopped_at = Some(now);
        known.devices.values_mut().for_each(|it| it.is_healthy = false);
        self.owners(resource, |_| true)
    }

    /// Stops counting resources whose plugin stayed away; true when there were any.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let over = self.resources.iter().filter(|(_, it)| it.is_over(now));
        let over: Vec<String> = over.map(|(name, _)| name.clone()).collect();
        for name in &over {
            self.resources.remove(name);
        }
        let is_changed = !over.is_empty();
        self.removed.extend(over);
        is_changed
    }

    /// When the next resource stops being counted, unless its plugin comes back.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let stopped = self.resources.values().filter_map(|it| it.stopped_at);
        // A moment later than the grace: exactly at its end it is not over yet.
        stopped.min().map(|since| since.after(STOP_GRACE + Duration::from_millis(1)))
    }

    /// The plugin to ask about a resource.
    pub fn plugin_of(&self, resource: &str) -> Option<(PluginId, PluginOptions)> {
        self.resources.get(resource)?.plugins.last().copied()
    }

    /// True for resources that a plugin offers, or offered when somebody got devices of it.
    pub fn is_device_resource(&self, resource: &str) -> bool {
        let is_given = |pod: &OfPod| pod.values().any(|it| it.contains_key(resource));
        self.resources.contains_key(resource) || self.pods.values().any(is_given)
    }

    /// True while a plugin of an earlier life of the agent has yet to come back.
    pub fn is_awaited(&self, resource: &str) -> bool {
        self.resources.get(resource).is_some_and(|it| it.is_awaited)
    }

    /// What a container has of a resource.
    pub fn allocation(&self, uid: &PodUid, container: &str, resource: &str) -> Option<&Allocation> {
        self.pods.get(uid)?.get(container)?.get(resource)
    }

    /// Everything that a container has, by resource.
    pub fn allocations(
        &self,
        uid: &PodUid,
        container: &str,
    ) -> Option<&BTreeMap<String, Allocation>> {
        self.pods.get(uid)?.get(container)
    }

    /// Pods that have devices.
    pub fn owners_of_any(&self) -> impl Iterator<Item = &PodUid> {
        self.pods.keys()
    }

    /// Takes devices out of what is free while a plugin is asked for them; false when somebody else
    /// was faster. Those of `own` are the pod's already.
    pub fn reserve(
        &mut self,
        resource: &str,
        ids: &BTreeSet<String>,
        own: &BTreeSet<String>,
    ) -> bool {
        let in_use = self.in_use(resource);
        if ids.iter().any(|id| in_use.contains(id) && !own.contains(id)) {
            return false;
        }
        let reserved = self.reserved.entry(resource.to_owned()).or_default();
        for id in ids {
            *reserved.entry(id.clone()).or_default() += 1;
        }
        true
    }

    /// Puts reserved devices back; those that were allocated meanwhile stay with their owner.
    pub fn unreserve(&mut self, resource: &str, ids: &BTreeSet<String>) {
        let Some(reserved) = self.reserved.get_mut(resource) else { return };
        for id in ids {
            if let Some(n) = reserved.get_mut(id) {
                *n -= 1;
                if *n == 0 {
                    reserved.remove(id);
                }
            }
        }
        if reserved.is_empty() {
            self.reserved.remove(resource);
        }
    }

    /// Notes what a plugin allocated.
    pub fn allocate(
        &mut self,
        (uid, container, resource): (&PodUid, &str, &str),
        ids: &BTreeSet<String>,
        resources: PluginResources,
        answer: Vec<u8>,
    ) {
        let mut by_node: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        let known = self.resources.get(resource);
        for id in ids {
            let nodes = known.and_then(|it| it.devices.get(id)).map(|it| it.numa_nodes.as_slice());
            match nodes.filter(|nodes| !nodes.is_empty()) {
                None => by_node.entry(NO_NUMA_NODE).or_default().push(id.clone()),
                Some(nodes) => {
                    for node in nodes {
                        by_node.entry(*node).or_default().push(id.clone());
                    }
                }
            }
        }
        let allocation = Allocation { ids: by_node, resources, answer, is_recalled: false };
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.entry(container.to_owned()).or_default().insert(resource.to_owned(), allocation);
    }

    /// Takes back what a pod was given; true when that was anything.
    pub fn release(&mut self, uid: &PodUid) -> bool {
        self.pods.remove(uid).is_some()
    }

    /// Takes back what pods were given that are not among those; true when that was anything.
    pub fn retain(&mut self, is_known: impl Fn(&PodUid) -> bool) -> bool {
        let before = self.pods.len();
        self.pods.retain(|uid, _| is_known(uid));
        before != self.pods.len()
    }

    /// Healthy devices with their NUMA nodes, by resource: what may be given.
    pub fn allocatable(&self) -> BTreeMap<&str, BTreeMap<&str, &[i64]>> {
        fn healthy(resource: &Resource) -> BTreeMap<&str, &[i64]> {
            let healthy = resource.devices.iter().filter(|(_, it)| it.is_healthy);
            healthy.map(|(id, it)| (id.as_str(), it.numa_nodes.as_slice())).collect()
        }
        self.resources.iter().map(|(name, it)| (name.as_str(), healthy(it))).collect()
    }

    /// How devices that a container has feel, as its plugin says: by resource, by device.
    pub fn health(&self, uid: &PodUid, container: &str) -> BTreeMap<&str, BTreeMap<String, bool>> {
        let Some(given) = self.allocations(uid, container) else {
            return BTreeMap::new();
        };
        let feels = |resource: &String, id: &String| {
            let known = self.resources.get(resource);
            // Nobody says otherwise.
            known.and_then(|it| it.devices.get(id)).is_none_or(|it| it.is_healthy)
        };
        let of = |resource: &String, allocation: &Allocation| {
            let devices = allocation.devices().into_iter();
            let devices = devices.map(|id| {
                let is_well = feels(resource, &id);
                (id, is_well)
            });
            devices.collect::<BTreeMap<String, bool>>()
        };
        given.iter().map(|(resource, it)| (resource.as_str(), of(resource, it))).collect()
    }

    /// Devices that somebody has, or is about to get.
    pub(crate) fn in_use(&self, resource: &str) -> BTreeSet<String> {
        let given = self.pods.values().flat_map(BTreeMap::values);
        let given =
            given.filter_map(|it| it.get(resource)).flat_map(|it| it.ids.values().flatten());
        let reserved = self.reserved.get(resource).into_iter().flat_map(BTreeMap::keys);
        given.chain(reserved).cloned().collect()
    }

    /// Notes a resource of an earlier life, whose plugin has yet to come back.
    pub(crate) fn recall(&mut self, resource: &str, now: Timestamp) {
        let known = self.resources.entry(resource.to_owned()).or_default();
        known.stopped_at = Some(now);
        known.is_awaited = true;
    }

    fn owners(&self, resource: &str, is_meant: impl Fn(&String) -> bool) -> BTreeSet<PodUid> {
        let has_any = |pod: &OfPod| {
            let given = pod.values().filter_map(|it| it.get(resource));
            given.flat_map(|it| it.ids.values().flatten()).any(&is_meant)
        };
        let pods = self.pods.iter().filter(|(_, pod)| has_any(pod));
        pods.map(|(uid, _)| uid.clone()).collect()
    }
}
