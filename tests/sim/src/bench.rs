//! What is there whether an agent lives or not: the node, the cluster, the operator's manifests.
//! Each life of an agent gets a new [`Platform`] of doors to the same fakes.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use ferrolet_agent::{ClaimDoors, ClusterDoors, DeviceDoors, Platform, PluginDoors, RuntimeDoors};
use ferrolet_node::NodeFacts;
use ferrolet_pods::PullDoors;
use ferrolet_ports::{MeansReading, MemoryMeans, RegisteredDriver, StatusSink};
use ferrolet_sources::{Origin, read};
use ferrolet_testkit::{
    FakeAlarm, FakeClaimDrivers, FakeClaimObjects, FakeClusterApi, FakeDisk, FakeDrivers,
    FakeFeeds, FakeFlex, FakeLogStore, FakeLogins, FakeManifests, FakeMeans, FakeMounts, FakeNames,
    FakeNodeCgroups, FakeNodeHost, FakeObjects, FakeOutbound, FakePacketFilter, FakePlugins,
    FakePullFiles, FakeRuntimeDisk, FakeStorage, FakeUsage, FakeVolumeFiles, NoServices, StaysUp,
    World,
};
use ferrolet_types::{
    Pod,
    pod::{PodView as _, SOURCE_ANNOTATION},
};
use tokio::sync::{mpsc, watch};

/// The name of the node.
pub(crate) const NODE: &str = "node";
/// Where manifests are.
pub(crate) const MANIFESTS: &str = "/manifests";
/// Bytes of the node's disk and memory: enough for everything.
const PLENTY: u64 = 1 << 40;

/// The node, its cluster and its operator.
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) api: FakeClusterApi,
    pub(crate) manifests: FakeManifests,
    pub(crate) volume_files: FakeVolumeFiles,
    host: FakeNodeHost,
    mounts: FakeMounts,
    drivers: FakeDrivers,
    flex: FakeFlex,
    storage: FakeStorage,
    objects: FakeObjects,
    pull_files: FakePullFiles,
    logs: FakeLogStore,
    means: FakeMeans,
    registered: watch::Sender<BTreeMap<String, RegisteredDriver>>,
    joined: watch::Sender<bool>,
}

/// A life's own ends of what it is told by; the agent lives no longer than them.
pub(crate) struct Lifeline {
    _device_news: mpsc::Sender<ferrolet_ports::PluginNews>,
    _claim_news: mpsc::Sender<ferrolet_ports::DriverNews>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let world = World::new();
        let (mounts, volume_files) = (FakeMounts::default(), FakeVolumeFiles::on(&world));
        volume_files.beside(&mounts);
        let host = FakeNodeHost::default();
        host.set_addresses(NodeFacts::example().addresses);
        let means = FakeMeans::new(world.clock());
        let memory = MemoryMeans { capacity: PLENTY, working_set: 0, usage: 0 };
        means.set(Some(MeansReading {
            at: world.now(),
            memory: Some(memory),
            pods_memory: Some(memory),
            pods_usage: Some(0),
            node_fs: None,
            image_fs: None,
            container_fs: None,
            processes: None,
        }));
        Self {
            api: FakeClusterApi::new(NODE),
            manifests: FakeManifests::default(),
            drivers: FakeDrivers::on(mounts.clone()),
            flex: FakeFlex::on(mounts.clone()),
            storage: FakeStorage::default(),
            objects: FakeObjects::new(world.clock()),
            pull_files: FakePullFiles::default(),
            logs: FakeLogStore::default(),
            registered: watch::channel(BTreeMap::new()).0,
            joined: watch::channel(true).0,
            means,
            host,
            mounts,
            volume_files,
            world,
        }
    }

    /// A pod as its source has it from now on.
    pub(crate) fn put(&self, slot: u64, pod: &Pod) {
        if pod.is_static() {
            self.manifests.put(&file_of(slot), manifest_of(pod));
        } else {
            self.api.put_pod(pod);
        }
    }

    /// Its source has it no longer.
    pub(crate) fn take_away(&self, slot: u64, pod: &Pod) {
        if pod.is_static() {
            self.manifests.remove(&file_of(slot));
        } else {
            self.api.remove_pod(&pod.key());
        }
    }

    /// True while the API server has this very pod.
    pub(crate) fn has_in_api(&self, pod: &Pod) -> bool {
        self.api.pod(&pod.key()).is_some_and(|it| it.uid() == pod.uid())
    }

    /// Doors to everything, for one life of an agent.
    pub(crate) fn platform(&self, sink: Arc<dyn StatusSink>) -> (Platform, Lifeline) {
        let world = &self.world;
        let disk = Arc::new(FakeDisk::new(world.clone(), PLENTY));
        let (device_news, news) = mpsc::channel(8);
        let (claim_news, driver_news) = mpsc::channel(8);
        let platform = Platform {
            clock: world.clock(),
            events: world.events(),
            runtime: RuntimeDoors {
                runtime: world.runtime(),
                images: world.images(),
                image_place: disk.clone(),
                reopen: Arc::new(self.logs.clone()),
                disk: Arc::new(FakeRuntimeDisk::default()),
            },
            cgroups: world.cgroups(),
            node_cgroups: Arc::new(FakeNodeCgroups::default()),
            files: world.files(),
            names: Arc::new(FakeNames::default()),
            machine: Arc::new(self.host.clone()),
            network: Arc::new(self.host.clone()),
            state_files: world.state_files(),
            manifests: Arc::new(self.manifests.clone()),
            pulls: PullDoors {
                files: Arc::new(self.pull_files.clone()),
                logins: Arc::new(FakeLogins::default()),
            },
            usage: Arc::new(FakeUsage::default()),
            means: Arc::new(self.means.clone()),
            memory_alarm: Arc::new(FakeAlarm::default()),
            logs: Arc::new(self.logs.clone()),
            disks: disk,
            volume_files: Arc::new(self.volume_files.clone()),
            mounts: Arc::new(self.mounts.clone()),
            flex: Arc::new(self.flex.clone()),
            plugins: PluginDoors {
                csi: Arc::new(self.drivers.clone()),
                registered: self.registered.subscribe(),
                devices: DeviceDoors {
                    plugins: Arc::new(FakePlugins::default()),
                    news: Some(news),
                    files: world.state_files(),
                },
                claims: ClaimDoors {
                    drivers: Arc::new(FakeClaimDrivers::default()),
                    news: Some(driver_news),
                },
            },
            outbound: Arc::new(FakeOutbound::default()),
            power: Arc::new(StaysUp),
            packet_filter: Arc::new(FakePacketFilter::new()),
            kernel_log: None,
            cluster: Some(self.cluster()),
            sinks: vec![sink],
            parts: Vec::new(),
        };
        (platform, Lifeline { _device_news: device_news, _claim_news: claim_news })
    }

    fn cluster(&self) -> ClusterDoors {
        ClusterDoors {
            api: Arc::new(self.api.clone()),
            objects: Arc::new(self.objects.clone()),
            lookups: Arc::new(NoServices),
            storage: Arc::new(self.storage.clone()),
            claims: Arc::new(FakeClaimObjects::default()),
            feeds: Arc::new(FakeFeeds::new(&self.api, &self.objects)),
            joined: self.joined.subscribe(),
            copies: None,
        }
    }
}

/// The static pod that the agent makes of this one's manifest.
pub(crate) fn as_read(slot: u64, pod: &Pod) -> Pod {
    let path = Path::new(MANIFESTS).join(file_of(slot));
    let origin = Origin::File(path.to_str().expect("plain text"));
    let reading = read(&manifest_of(pod), origin, NODE).expect("a manifest without faults");
    let mut pod = (*reading.pods.first().expect("one pod").pod).clone();
    // The merge says where it came from.
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(SOURCE_ANNOTATION.to_owned(), "file".to_owned());
    pod.into()
}

fn file_of(slot: u64) -> String {
    format!("pod{slot}.json")
}

/// The manifest of a static pod: what its author wrote, with an identity of its own.
fn manifest_of(pod: &Pod) -> Vec<u8> {
    let mut pod = (**pod).clone();
    pod.status = None;
    pod.metadata.annotations = None;
    if let Some(name) = &mut pod.metadata.name
        && let Some(bare) = name.strip_suffix("-node")
    {
        *name = bare.to_owned();
    }
    let spec = pod.spec.get_or_insert_default();
    (spec.node_name, spec.tolerations) = (None, None);
    serde_json::to_vec(&pod).expect("a pod is JSON")
}
