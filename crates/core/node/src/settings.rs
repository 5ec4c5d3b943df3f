//! How the node was told to present itself. Fixed while the agent runs.

use std::{collections::BTreeMap, net::IpAddr};

use ferrolet_types::{Amounts, Quantity};
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
    /// Pods may say what all of their containers have together (gate `PodLevelResources`).
    pub has_pod_level_resources: bool,
    /// Tolerations may compare numbers (gate `TaintTolerationComparisonOperators`).
    pub compares_tolerations: bool,
    /// Sysctls that pods may set although they are not known to be safe; may end in `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// What the system keeps for itself.
    pub system_reserved: Amounts,
    /// What we and the runtime keep for ourselves.
    pub kube_reserved: Amounts,
    /// What eviction keeps free.
    pub hard_eviction: HardEviction,
    /// True when the node accounts for local storage.
    pub has_storage_isolation: bool,
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
