//! What pods were given for themselves: devices, processors and memory that nobody else uses
//! meanwhile.
//!
//! Implemented by whoever hands such things out; asked by the service that shows them to programs
//! on the node.

use ferrolet_types::PodUid;

/// Things for one container, or all that could be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Devices of plugins.
    pub devices: Vec<GivenDevices>,
    /// Processors by number.
    pub cpus: Vec<i64>,
    /// Memory of certain NUMA nodes.
    pub memory: Vec<GivenMemory>,
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
    fn given_to(&self, uid: &PodUid, container: &str) -> Given;
}

/// A node that gives nothing to anybody alone: the policies `none`, and no device plugins.
#[derive(Clone, Copy, Debug)]
pub struct NothingGiven;

impl GivenView for NothingGiven {
    fn allocatable(&self) -> Given {
        Given::default()
    }

    fn given_to(&self, _: &PodUid, _: &str) -> Given {
        Given::default()
    }
}
