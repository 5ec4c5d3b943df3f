//! What the parts are told, a slice for each.

use crate::NodeSlice;

/// Everything that can be set, by part.
pub struct Settings {
    /// How the node presents itself.
    pub node: NodeSlice,
    /// Where pods come from.
    pub sources: ferrolet_sources::Settings,
    /// What pods are made by.
    pub pods: ferrolet_pods::Settings,
    /// What is told of devices.
    pub devices: ferrolet_devices_engine::Settings,
    /// What is told of claims of dynamic resources, and who may use them.
    pub claims: ferrolet_claims_engine::Settings,
    /// Where containers run.
    pub placement: ferrolet_placement_engine::Settings,
    /// How volumes are kept.
    pub volumes: ferrolet_volumes::Settings,
    /// How kinds of volumes are kept that few have.
    pub rare_volumes: ferrolet_rare_volumes::Settings,
    /// What is taken back, and when.
    pub reclaim: ferrolet_reclaim::Settings,
    /// How pods end when the machine goes down.
    pub shutdown: ferrolet_shutdown::Settings,
    /// When pods are put out because the node runs short.
    pub eviction: ferrolet_eviction_engine::Settings,
    /// The kubelet's chains are kept in the packet filter.
    pub keeps_chains: bool,
}
