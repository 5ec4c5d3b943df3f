//! What is true of the node and may change while the agent runs. Plain data, gathered by whoever
//! can ask.

use std::{net::IpAddr, sync::Arc};

use ferrolet_types::{Amounts, Timestamp};

use crate::{MachineTopology, RuntimeHealth, RuntimeVersion};

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
    pub runtime: RuntimeHealth,
    /// Loops of ours that are not well, as whole sentences: `PLEG is not healthy: …`.
    pub loop_faults: Vec<String>,
    /// Why storage cannot be used yet.
    pub storage_fault: Option<String>,
    /// Why no pod is taken any more: the node shuts down.
    pub shutdown_fault: Option<String>,
    /// Requirements that are not met but can be lived with.
    pub soft_faults: Option<String>,
    /// The images here; `None` while nobody knows, which leaves the list as it is.
    pub images: Option<Arc<[NodeImage]>>,
    /// What is short.
    pub pressure: Pressure,
    /// What device plugins offer.
    pub devices: DeviceResources,
    /// Attachable volumes in use; `None` while nobody knows, which leaves the list as it is.
    pub volumes_in_use: Option<Vec<String>>,
}

impl NodeFacts {
    /// What is known before anybody but the machine was asked.
    pub fn at_start(machine: Machine, addresses: HostAddresses, now: Timestamp) -> Self {
        Self {
            machine: Some(machine),
            addresses,
            runtime_version: None,
            runtime: RuntimeHealth::Never { since: now, error: None },
            loop_faults: Vec::new(),
            storage_fault: None,
            shutdown_fault: None,
            soft_faults: None,
            images: None,
            pressure: Pressure::default(),
            // Nobody knows of a device yet: what another kubelet left in the node's object is not to
            // be believed.
            devices: DeviceResources { is_reset: true, ..DeviceResources::default() },
            volumes_in_use: None,
        }
    }
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
    /// Tasks that the kernel has room for; `None` when it does not say.
    pub max_pids: Option<u64>,
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
    /// The kernel can confine containers with AppArmor.
    pub has_apparmor: bool,
    /// Whether we are root only in a user namespace; `None` when it is not reported.
    pub is_in_user_namespace: Option<bool>,
    /// How its processors and memory hang together.
    pub topology: MachineTopology,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes per page.
    pub page_bytes: u64,
    /// Pages set aside.
    pub n_pages: u64,
}

/// An image that is on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeImage {
    /// The runtime's id.
    pub id: String,
    /// Its names, those with digests first.
    pub names: Vec<String>,
    /// Bytes on disk.
    pub size: u64,
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
    /// Resources of an earlier life of the agent whose plugin has yet to come back: whoever asks for
    /// them waits.
    pub awaited: Vec<String>,
    /// Resources whose plugin went away.
    pub removed: Vec<String>,
    /// True when the record of devices is gone, so that what an existing node claims is not to be
    /// believed.
    pub is_reset: bool,
}
