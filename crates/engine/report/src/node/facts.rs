//! What the node is described from: settings that never change, and facts that do. Plain data, filled in by the wiring.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use ferrolet_ports::{ImageInfo, RuntimeStatus, RuntimeVersion};
use ferrolet_resources::Amounts;
use ferrolet_types::{Quantity, Timestamp};
use k8s_openapi::api::core::v1::Taint;

/// How this node is to present itself.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSettings {
    /// Its name in the API.
    pub name: String,
    /// Its host name, or what was given instead.
    pub hostname: String,
    /// `--node-ip` as given: none, one or two; an unspecified address only chooses the family.
    pub node_ips: Vec<IpAddr>,
    /// True when a cloud controller outside of us completes the node.
    pub has_external_cloud: bool,
    /// The cloud's name for this machine.
    pub provider_id: Option<String>,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// The taints it registers with.
    pub taints: Vec<Taint>,
    /// True when a controller attaches volumes to this node.
    pub has_controller_attach: bool,
    /// True when we create our own node object.
    pub must_register: bool,
    /// How many pods run here at most.
    pub max_pods: u32,
    /// How many pods run per core at most.
    pub pods_per_core: Option<u32>,
    /// How many images the status lists; none means all.
    pub max_images: Option<u32>,
    /// Where our server listens.
    pub kubelet_port: u16,
    /// The version we claim, `v1.37.1`.
    pub kubelet_version: String,
    /// `linux`.
    pub operating_system: String,
    /// `amd64` and its like.
    pub architecture: String,
    /// Features that this node really has, sorted.
    pub declared_features: Vec<String>,
    /// What the system keeps for itself.
    pub system_reserved: Amounts,
    /// What we and the runtime keep for ourselves.
    pub kube_reserved: Amounts,
    /// What eviction keeps free.
    pub hard_eviction: HardEviction,
    /// True when the node accounts for local storage.
    pub has_storage_isolation: bool,
    /// How often the status is computed.
    pub update_frequency: Duration,
    /// How often it is sent although nothing changed.
    pub report_frequency: Duration,
}

/// What eviction keeps free of each resource that pods can ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HardEviction {
    /// `memory.available`.
    pub memory: Option<Threshold>,
    /// `nodefs.available`.
    pub storage: Option<Threshold>,
}

/// A threshold of eviction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// An amount.
    Amount(Quantity),
    /// A share of what there is, 0.1 for ten percent.
    Share(f32),
}

/// Everything that may change while we run.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// The machine; `None` when it would not tell, which keeps the node unready.
    pub machine: Option<Machine>,
    /// The machine's addresses.
    pub addresses: HostAddresses,
    /// Who the runtime is; `None` until it said so.
    pub runtime_version: Option<RuntimeVersion>,
    /// How the runtime feels.
    pub runtime: RuntimeAnswer,
    /// Loops of ours that are not well, as whole sentences: `PLEG is not healthy: …`.
    pub loop_faults: Vec<String>,
    /// Why storage cannot be used yet.
    pub storage_fault: Option<String>,
    /// Why no pod is taken any more: the node shuts down.
    pub shutdown_fault: Option<String>,
    /// Requirements that are not met but can be lived with.
    pub soft_faults: Option<String>,
    /// The images here; `None` while nobody knows, which leaves the list as it is.
    pub images: Option<Arc<[ImageInfo]>>,
    /// What is short.
    pub pressure: Pressure,
    /// What device plugins offer.
    pub devices: DeviceResources,
    /// Attachable volumes in use; `None` while nobody knows, which leaves the list as it is.
    pub volumes_in_use: Option<Vec<String>>,
}

/// Sizes and identities of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Processors.
    pub n_cpus: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Huge pages by size.
    pub huge_pages: Vec<HugePages>,
    /// Bytes of the file system that pods write to; `None` when it is not accounted for.
    pub ephemeral_storage_bytes: Option<u64>,
    /// Bytes of swap; none is not reported.
    pub swap_bytes: u64,
    /// Stays over boots.
    pub machine_id: String,
    /// The firmware's identity.
    pub system_uuid: String,
    /// Differs after each boot.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel_version: String,
    /// The distribution's name for itself.
    pub os_image: String,
    /// Whether we are root only in a user namespace; `None` when it is not reported.
    pub is_in_user_namespace: Option<bool>,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes per page.
    pub page_bytes: u64,
    /// Pages set aside.
    pub n_pages: u64,
}

/// Addresses that the machine has or is known by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    /// Those on its interfaces.
    pub interfaces: Vec<IpAddr>,
    /// Those that the name service has for the node's name, in its order.
    pub by_name: Vec<IpAddr>,
    /// The IPv4 address on the interface of the default route.
    pub default_v4: Option<IpAddr>,
    /// The IPv6 address on the interface of the default route.
    pub default_v6: Option<IpAddr>,
}

/// How the runtime feels, and since when it does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeAnswer {
    /// It has never answered us.
    Never {
        /// When we began to ask. For a while after that a node that was ready stays so: our restart is not its trouble.
        since: Timestamp,
    },
    /// It answered.
    Answered(RuntimeStatus),
    /// It answered before, and not since.
    Silent {
        /// When it answered last.
        since: Timestamp,
        /// What it said then.
        last: RuntimeStatus,
    },
}

impl RuntimeAnswer {
    /// What it said last.
    pub fn last(&self) -> Option<&RuntimeStatus> {
        match self {
            Self::Never { .. } => None,
            Self::Answered(status) | Self::Silent { last: status, .. } => Some(status),
        }
    }
}

/// What is short on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Disk space or inodes.
    pub disk: bool,
    /// Process ids.
    pub pid: bool,
}

/// What device plugins offer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceResources {
    /// All devices.
    pub capacity: Amounts,
    /// Healthy devices.
    pub allocatable: Amounts,
    /// Resources whose plugin went away.
    pub removed: Vec<String>,
    /// True when the record of devices is gone, so that what an existing node claims is not to be believed.
    pub is_reset: bool,
}
