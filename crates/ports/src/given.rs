//! What pods were given for themselves: devices, processors and memory that nobody else uses
//! meanwhile.
//!
//! Implemented by whoever hands such things out; asked by the service that shows them to programs
//! on the node.

use ferrolet_types::Pod;
use k8s_openapi::api::core::v1::Container;

/// Things for one container, or all that could be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Devices of plugins.
    pub devices: Vec<GivenDevices>,
    /// Processors by number.
    pub cpus: Vec<i64>,
    /// Memory of certain NUMA nodes.
    pub memory: Vec<GivenMemory>,
    /// Claims of dynamic resources.
    pub claims: Vec<GivenClaim>,
}

impl Given {
    /// Both together.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.devices.extend(other.devices);
        self.cpus.extend(other.cpus);
        self.memory.extend(other.memory);
        self.claims.extend(other.claims);
        self
    }
}

/// Devices of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenDevices {
    /// `vendor.example/device`.
    pub resource: String,
    /// The plugin's names for them.
    pub ids: Vec<String>,
    /// NUMA nodes they are close to.
    pub numa_nodes: Vec<i64>,
}

/// What drivers prepared for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenClaim {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its devices.
    pub devices: Vec<GivenClaimDevice>,
}

/// A device of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenClaimDevice {
    /// Whose it is.
    pub driver: String,
    /// The pool that it is of.
    pub pool: String,
    /// Its name there.
    pub device: String,
    /// Which share of it.
    pub share_id: Option<String>,
    /// What the runtime was told.
    pub cdi_ids: Vec<String>,
}

/// A block of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenMemory {
    /// `memory` or `hugepages-…`.
    pub kind: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// NUMA nodes it is taken from.
    pub numa_nodes: Vec<i64>,
}

/// Knows what was given to whom.
pub trait GivenView: Send + Sync {
    /// All that may be given to pods.
    fn allocatable(&self) -> Given;
    /// What a container has.
    fn given_to(&self, pod: &Pod, container: &Container) -> Given;
}

/// Several who give, as one.
impl GivenView for Vec<std::sync::Arc<dyn GivenView>> {
    fn allocatable(&self) -> Given {
        self.iter().map(|it| it.allocatable()).fold(Given::default(), Given::and)
    }

    fn given_to(&self, pod: &Pod, container: &Container) -> Given {
        self.iter().map(|it| it.given_to(pod, container)).fold(Given::default(), Given::and)
    }
}
