//! Every port of the agent as one value: the world it lives in, real or fake.

use std::{collections::BTreeMap, sync::Arc};

use ferrolet_ports::{
    ClaimDrivers, ClaimObjects, Clock, ClusterApi, ClusterFeeds, ClusterLookups, ClusterObjects,
    CsiDrivers, DevicePlugins, Disks, DriverNews, Events, FlexDrivers, ImagePlace, Images,
    KernelLog, LogReopen, LogStore, MachineHost, ManifestFiles, MemoryAlarm, NodeCgroups, NodeHost,
    NodeMeans, NodeMounts, NodeNames, OfflineStore, Outbound, PacketFilter, Part, PluginNews,
    PodCgroups, PodFiles, Power, RegisteredDriver, Runtime, RuntimeDisk, StateFiles, StatusSink,
    StorageObjects, Usage, VolumeFiles,
};
use tokio::sync::{mpsc, watch};

/// The world.
pub struct Platform {
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Where the node's events go.
    pub events: Arc<dyn Events>,
    /// The container runtime.
    pub runtime: RuntimeDoors,
    /// Cgroups of pods.
    pub cgroups: Arc<dyn PodCgroups>,
    /// Cgroups of the node itself.
    pub node_cgroups: Arc<dyn NodeCgroups>,
    /// Directories and logs of pods.
    pub files: Arc<dyn PodFiles>,
    /// The node's own files of name resolution.
    pub names: Arc<dyn NodeNames>,
    /// How large the machine is.
    pub machine: Arc<dyn MachineHost>,
    /// The node's addresses and what its name means.
    pub network: Arc<dyn NodeHost>,
    /// Checkpoints that survive the agent.
    pub state_files: Arc<dyn StateFiles>,
    /// The operator's manifests.
    pub manifests: Arc<dyn ManifestFiles>,
    /// The memory of pulls and the node's credentials.
    pub pulls: ferrolet_pods::PullDoors,
    /// What pods use.
    pub usage: Arc<dyn Usage>,
    /// What is left on the node.
    pub means: Arc<dyn NodeMeans>,
    /// The kernel's word when memory runs short.
    pub memory_alarm: Arc<dyn MemoryAlarm>,
    /// Logs of containers, and links to them.
    pub logs: Arc<dyn LogStore>,
    /// How full disks are.
    pub disks: Arc<dyn Disks>,
    /// Directories and mounts of volumes.
    pub volume_files: Arc<dyn VolumeFiles>,
    /// Mounts of what others provide.
    pub mounts: Arc<dyn NodeMounts>,
    /// Volume drivers of the old kind.
    pub flex: Arc<dyn FlexDrivers>,
    /// Programs on the node that introduce themselves.
    pub plugins: PluginDoors,
    /// How connections of probes end.
    pub outbound: Arc<dyn Outbound>,
    /// Whoever says that the machine goes down.
    pub power: Arc<dyn Power>,
    /// The packet filter.
    pub packet_filter: Arc<dyn PacketFilter>,
    /// What the kernel says, where it may be read.
    pub kernel_log: Option<Box<dyn KernelLog>>,
    /// The API server; a node on its own has none.
    pub cluster: Option<ClusterDoors>,
    /// Who else hears of every status.
    pub sinks: Vec<Arc<dyn StatusSink>>,
    /// What the world itself keeps running: watches, registrations, the node's place in its
    /// cluster.
    pub parts: Vec<Part>,
}

/// The container runtime, by what is asked of it.
pub struct RuntimeDoors {
    /// Sandboxes and containers.
    pub runtime: Arc<dyn Runtime>,
    /// Images.
    pub images: Arc<dyn Images>,
    /// Where images are kept.
    pub image_place: Arc<dyn ImagePlace>,
    /// Moves the writer of a log on.
    pub reopen: Arc<dyn LogReopen>,
    /// What containers wrote.
    pub disk: Arc<dyn RuntimeDisk>,
}

/// Drivers that introduced themselves.
pub struct PluginDoors {
    /// CSI drivers.
    pub csi: Arc<dyn CsiDrivers>,
    /// Who is registered.
    pub registered: watch::Receiver<BTreeMap<String, RegisteredDriver>>,
    /// Plugins that offer devices.
    pub devices: DeviceDoors,
    /// Drivers of dynamic resources.
    pub claims: ClaimDoors,
}

/// Drivers of dynamic resources.
pub struct ClaimDoors {
    /// The drivers.
    pub drivers: Arc<dyn ClaimDrivers>,
    /// What becomes of them; taken once.
    pub news: Option<mpsc::Receiver<DriverNews>>,
}

/// Plugins that offer devices.
pub struct DeviceDoors {
    /// The plugins.
    pub plugins: Arc<dyn DevicePlugins>,
    /// What becomes of them; taken once.
    pub news: Option<mpsc::Receiver<PluginNews>>,
    /// The directory of the record of who has which device.
    pub files: Arc<dyn StateFiles>,
}

/// The API server, by what is asked of it.
pub struct ClusterDoors {
    /// The node and its pods.
    pub api: Arc<dyn ClusterApi>,
    /// What pods refer to.
    pub objects: Arc<dyn ClusterObjects>,
    /// Services and runtime classes.
    pub lookups: Arc<dyn ClusterLookups>,
    /// Claims, volumes and drivers.
    pub storage: Arc<dyn StorageObjects>,
    /// Claims of dynamic resources, and what drivers offer.
    pub claims: Arc<dyn ClaimObjects>,
    /// What flows from it.
    pub feeds: Arc<dyn ClusterFeeds>,
    /// True once the node may speak in its own name.
    pub joined: watch::Receiver<bool>,
    /// Copies for a start without the server, where they are wanted.
    pub copies: Option<Arc<dyn OfflineStore>>,
}
