//! Volumes put together: the engine, and the loops that keep it and the cluster current.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_ports::{
    Clock, ClusterApi, ClusterObjects, CsiDrivers, Events, NodeMounts, ObjectChange, Part,
    RegisteredDriver, StorageObjects, Usage, VolumeFiles, VolumePlugin, once_open,
};
use ferrolet_resources::Amounts;
use ferrolet_types::{PodUid, VolumeHealthReport};
use tokio::sync::{broadcast, mpsc, watch};

use crate::{
    Doors, HealthDoors, LimitDoors, NamedUsage, NodeDoors, SelinuxNode, VolumeEngine, VolumeStats,
    follow_health, follow_limits, publish_drivers,
};

/// News of volumes on their way to the sync loop.
const NEWS: usize = 50;

/// How volumes are kept on this node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node's name in the API.
    pub node_name: String,
    /// What the node has for pods.
    pub allocatable: Amounts,
    /// File systems that can are to keep account of volumes' sizes.
    pub meters_volumes: bool,
    /// Which of the cluster's newer objects volumes may hold.
    pub projections: crate::ProjectionGates,
    /// What SELinux calls things here.
    pub selinux: Option<SelinuxNode>,
    /// How often objects are looked at when their changes are not announced.
    pub look_again: Option<Duration>,
    /// Whether the usage of volumes is part of what the node tells.
    pub shown: VolumeStats,
    /// How often drivers are asked for the health of volumes; `None` for never.
    pub health_period: Option<Duration>,
}

/// What volumes are made with.
pub struct VolumeDoors {
    /// Directories and mounts.
    pub files: Arc<dyn VolumeFiles>,
    /// Mounts of volumes that the node does not make itself.
    pub mounts: Arc<dyn NodeMounts>,
    /// Kinds of volumes that others serve.
    pub plugins: Vec<Arc<dyn VolumePlugin>>,
    /// Drivers that introduced themselves.
    pub drivers: Arc<dyn CsiDrivers>,
    /// Who they are.
    pub registered: watch::Receiver<BTreeMap<String, RegisteredDriver>>,
    /// What pods use, but for the names of volumes.
    pub usage: Arc<dyn Usage>,
    /// The cluster's part; a node on its own has none.
    pub cluster: Option<ClusterDoors>,
    /// What the node says.
    pub events: Arc<dyn Events>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// What volumes need of the cluster.
pub struct ClusterDoors {
    /// The node's own objects.
    pub api: Arc<dyn ClusterApi>,
    /// Objects and tokens.
    pub objects: Arc<dyn ClusterObjects>,
    /// Claims and what they are bound to.
    pub storage: Arc<dyn StorageObjects>,
    /// News of objects.
    pub changes: broadcast::Receiver<ObjectChange>,
    /// How often the cluster wants each driver asked.
    pub periods: watch::Receiver<BTreeMap<String, Duration>>,
    /// True once the node may speak in its own name.
    pub joined: watch::Receiver<bool>,
}

/// What others need of the volumes.
pub struct Volumes {
    /// The engine.
    pub engine: Arc<VolumeEngine>,
    /// What pods use, with the names of volumes.
    pub usage: Arc<dyn Usage>,
    /// Pods whose volumes became ready.
    pub ready: mpsc::Receiver<PodUid>,
    /// What drivers say of volumes.
    pub health: mpsc::Receiver<VolumeHealthReport>,
    /// True once the cluster has this node's object about drivers.
    pub csi_node: watch::Receiver<bool>,
}

/// Puts the engine and its loops together.
pub fn build(settings: Settings, doors: VolumeDoors) -> (Volumes, Part) {
    let (ready_sender, ready) = mpsc::channel(NEWS);
    let (health_sender, health) = mpsc::channel(NEWS);
    let (published, csi_node) = watch::channel(false);
    let engine = Arc::new(VolumeEngine::new(Doors {
        files: doors.files,
        mounts: doors.mounts,
        plugins: doors.plugins,
        objects: doors.cluster.as_ref().map(|it| it.objects.clone()),
        storage: doors.cluster.as_ref().map(|it| it.storage.clone()),
        drivers: doors.drivers.clone(),
        node_name: settings.node_name,
        clock: doors.clock,
        events: doors.events,
        allocatable: settings.allocatable,
        meters_volumes: settings.meters_volumes,
        projections: settings.projections,
        selinux: settings.selinux,
        look_again: settings.look_again,
        became_ready: Some(ready_sender),
    }));
    let mut part = Part::new("volumes").with_metrics(engine.clone());
    if let Some(cluster) = doors.cluster {
        let registered = doors.registered;
        part.add_loop(engine.clone().refresh(cluster.changes));
        part.add_loop(engine.clone().follow_drivers(registered.clone()));
        if let Some(period) = settings.health_period {
            part.add_loop(follow_health(HealthDoors {
                engine: engine.clone(),
                registered: registered.clone(),
                period,
                told: health_sender,
            }));
        }
        let limits = LimitDoors {
            drivers: doors.drivers,
            registered: registered.clone(),
            periods: cluster.periods,
        };
        part.add_loop(once_open(cluster.joined.clone(), follow_limits(limits)));
        let (api, storage) = (cluster.api, cluster.storage);
        let node = NodeDoors { api, storage, drivers: registered, published };
        part.add_loop(once_open(cluster.joined, publish_drivers(node)));
    }
    let usage = Arc::new(NamedUsage::new(doors.usage, engine.clone(), settings.shown));
    (Volumes { engine, usage, ready, health, csi_node }, part)
}
