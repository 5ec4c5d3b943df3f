//! What a pod was granted, as a value of its own: read from a specification, laid over one,
//! compared with one.
//!
//! A pod's resources exist in three copies: *desired* (the API's specification), *allocated* (what
//! the node granted) and *actuated* (what was last put in force). Each of the last two is a
//! [`PodResources`]. Quantities are compared by amount, so `0.5` is `500m`. Upstream:
//! `pkg/kubelet/allocation`. Refuses: keeping any of them; the dispatcher, the workers and the
//! records on disk do.

use std::collections::BTreeMap;

use ferrolet_types::{Qos, pod::PodView as _};
use k8s_openapi::{
    api::core::v1::{Container, Pod, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::{
    Amounts, NodeResources, Overhead, Rejection, SwapBehavior, amount, container_requests,
    parse_amounts, pod_qos, pod_requests,
};

/// The resources of a pod and of each of its containers, ephemeral ones apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodResources {
    /// By container name, init containers included.
    pub containers: BTreeMap<String, ResourceRequirements>,
    /// The pod's own.
    pub pod: Option<ResourceRequirements>,
    /// Sizes of volumes in memory, by volume. Only a kubelet with gate
    /// `InPlacePodVerticalScalingMemoryBackedVolumes` grants them; they are kept as they were found
    /// and decide nothing.
    pub volume_limits: BTreeMap<String, Option<Quantity>>,
}

impl PodResources {
    /// What a specification says.
    pub fn of(pod: &Pod) -> Self {
        let spec = pod.spec_ref();
        let named = |it: &Container| (it.name.clone(), it.resources.clone().unwrap_or_default());
        let init = spec.init_containers.iter().flatten();
        Self {
            containers: init.chain(&spec.containers).map(named).collect(),
            pod: spec.resources.clone(),
            volume_limits: BTreeMap::new(),
        }
    }

    /// True when both mean the same.
    pub fn is_same(&self, other: &Self) -> bool {
        let nothing = ResourceRequirements::default();
        let of = |pod: &Option<ResourceRequirements>| pod.clone().unwrap_or_default();
        let mut names = self.containers.keys().chain(other.containers.keys());
        is_same(&of(&self.pod), &of(&other.pod))
            && names.all(|name| {
                let of = |list: &Self| list.containers.get(name).unwrap_or(&nothing).clone();
                is_same(&of(self), &of(other))
            })
    }
}

/// What is in force of a container that was just started: what it was granted, and its pod's limits
/// where it has none of its own.
pub fn started_with(pod: &Pod, container: &Container) -> ResourceRequirements {
    let mut resources = container.resources.clone().unwrap_or_default();
    let pods = pod.spec_ref().resources.as_ref();
    let pods = pods.and_then(|it| it.limits.as_ref());
    let own = parse_amounts(resources.limits.as_ref());
    for name in ["cpu", "memory"] {
        let limit = pods.and_then(|limits| limits.get(name));
        let limit = limit.filter(|_| amount(&own, name).is_zero());
        if let Some(limit) = limit {
            let limits = resources.limits.get_or_insert_default();
            limits.insert(name.to_owned(), limit.clone());
        }
    }
    resources
}

/// The pod with these resources in place of its own; `None` when they mean the same. Containers
/// without a record keep theirs.
pub fn with_resources(pod: &Pod, resources: &PodResources) -> Option<Pod> {
    // Nearly always, and asked for every pod whenever one comes: nothing is copied to find that
    // out.
    if is_word_for_word(pod, resources) {
        return None;
    }
    let own = PodResources::of(pod);
    let recorded = PodResources {
        containers: own
            .containers
            .iter()
            .map(|(name, own)| {
                let granted = resources.containers.get(name).unwrap_or(own);
                (name.clone(), granted.clone())
            })
            .collect(),
        pod: resources.pod.clone(),
        volume_limits: BTreeMap::new(),
    };
    if own.is_same(&recorded) {
        return None;
    }
    let mut pod = pod.clone();
    let spec = pod.spec.get_or_insert_default();
    spec.resources = recorded.pod;
    let init = spec.init_containers.iter_mut().flatten();
    for container in init.chain(&mut spec.containers) {
        container.resources = recorded.containers.get(&container.name).cloned();
    }
    Some(pod)
}

/// True when the record repeats the specification.
fn is_word_for_word(pod: &Pod, resources: &PodResources) -> bool {
    let spec = pod.spec_ref();
    let nothing = ResourceRequirements::default();
    let init = spec.init_containers.iter().flatten();
    let mut containers = init.chain(&spec.containers);
    resources.pod == spec.resources
        && containers.all(|container| {
            let recorded = resources.containers.get(&container.name);
            recorded.is_none_or(|it| it == container.resources.as_ref().unwrap_or(&nothing))
        })
}

/// True when a resize asks for more CPU or memory than the pod was granted.
pub fn is_growing(allocated: &Pod, desired: &Pod) -> bool {
    let (old, new) =
        (pod_requests(allocated, Overhead::Excluded), pod_requests(desired, Overhead::Excluded));
    ["cpu", "memory"].iter().any(|name| amount(&new, name) > amount(&old, name))
}

/// What a resize depends on besides the room on the node.
#[derive(Clone, Copy, Debug)]
pub struct ResizeRules<'a> {
    /// The node's swap, most of all.
    pub node: &'a NodeResources,
    /// CPUs are handed out one by one (`cpuManagerPolicy: static`).
    pub has_static_cpus: bool,
    /// Memory is handed out by NUMA node (`memoryManagerPolicy: Static`).
    pub has_static_memory: bool,
}

/// Why a resize cannot happen on this node, however long one waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infeasible {
    /// Its share of swap would change.
    Swap,
    /// A volume in memory would change its size.
    MemoryVolume,
    /// Its processors are its own.
    StaticCpus,
    /// Its memory is its own.
    StaticMemory,
}

impl Infeasible {
    /// What the pod's condition says.
    pub fn message(self) -> &'static str {
        match self {
            Self::Swap => "In-place resize of containers with swap is not supported.",
            Self::MemoryVolume => "Memory-backed emptyDir volume resize is disabled",
            Self::StaticCpus => {
                "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\""
            }
            Self::StaticMemory => {
                "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\""
            }
        }
    }

    /// The word it is counted by.
    pub fn detail(self) -> &'static str {
        match self {
            Self::Swap => "swap_limitation",
            Self::MemoryVolume => "memory_volume_resize_gate_off",
            Self::StaticCpus => "guaranteed_pod_cpu_manager_static_policy",
            Self::StaticMemory => "guaranteed_pod_memory_manager_static_policy",
        }
    }
}

impl From<Infeasible> for Rejection {
    fn from(why: Infeasible) -> Self {
        Self { reason: Self::INFEASIBLE.to_owned(), message: why.message().to_owned() }
    }
}

impl Rejection {
    /// The reason of a resize that cannot happen on this node, however long one waits.
    pub const INFEASIBLE: &'static str = "Infeasible";
}

/// Whether this node can resize the pod at all, however much room there is.
pub fn check_resize(
    desired: &Pod,
    allocated: &Pod,
    rules: &ResizeRules<'_>,
) -> Result<(), Infeasible> {
    if swaps_differently(desired, allocated, rules.node) {
        return Err(Infeasible::Swap);
    }
    if is_memory_volume_resized(desired, allocated) {
        return Err(Infeasible::MemoryVolume);
    }
    if pod_qos(desired) == Qos::Guaranteed {
        if rules.has_static_cpus && has_other_requests(desired, allocated, "cpu") {
            return Err(Infeasible::StaticCpus);
        }
        if rules.has_static_memory && has_other_requests(desired, allocated, "memory") {
            return Err(Infeasible::StaticMemory);
        }
    }
    Ok(())
}

/// Pairs of containers of both copies by name.
fn pairs<'a>(
    desired: &'a Pod,
    allocated: &'a Pod,
) -> impl Iterator<Item = (&'a Container, &'a Container)> {
    let all = |pod: &'a Pod| {
        let spec = pod.spec_ref();
        spec.init_containers.iter().flatten().chain(&spec.containers)
    };
    all(desired).filter_map(move |it| {
        let other = all(allocated).find(|other| other.name == it.name)?;
        Some((it, other))
    })
}

/// The share of swap follows from the memory request, and the kernel does not let it change under
/// way.
fn swaps_differently(desired: &Pod, allocated: &Pod, node: &NodeResources) -> bool {
    if !node.swap.is_controlled || node.swap.behavior == SwapBehavior::NoSwap {
        return false;
    }
    let may_swap = |pod: &Pod, container: &Container| {
        let requests = container_requests(container);
        let limits = crate::container_limits(container);
        pod_qos(pod) == Qos::Burstable
            && !pod.is_critical()
            && amount(&requests, "memory") != amount(&limits, "memory")
    };
    pairs(desired, allocated).any(|(new, old)| {
        let is_changed = request(new, "memory") != request(old, "memory");
        let restarts = old.resize_policy.iter().flatten().any(|policy| {
            policy.resource_name == "memory" && policy.restart_policy == "RestartContainer"
        });
        is_changed && !restarts && (may_swap(desired, new) || may_swap(allocated, old))
    })
}

fn is_memory_volume_resized(desired: &Pod, allocated: &Pod) -> bool {
    let limits = |pod: &Pod| -> BTreeMap<String, Option<ferrolet_types::Quantity>> {
        let volumes = pod.spec_ref().volumes.iter().flatten();
        volumes
            .filter_map(|volume| {
                let dir = volume.empty_dir.as_ref()?;
                let is_memory = dir.medium.as_deref() == Some("Memory");
                let limit = dir.size_limit.as_ref().filter(|_| is_memory)?;
                Some((volume.name.clone(), ferrolet_types::Quantity::parse(&limit.0).ok()))
            })
            .collect()
    };
    limits(desired) != limits(allocated)
}

fn has_other_requests(desired: &Pod, allocated: &Pod, name: &str) -> bool {
    pairs(desired, allocated).any(|(new, old)| request(new, name) != request(old, name))
}

fn request(container: &Container, name: &str) -> ferrolet_types::Quantity {
    let resources = container.resources.as_ref();
    amount(&parse_amounts(resources.and_then(|it| it.requests.as_ref())), name)
}

/// The same amounts, however they are written.
pub(crate) fn is_same(one: &ResourceRequirements, other: &ResourceRequirements) -> bool {
    let amounts = |it: &ResourceRequirements| -> (Amounts, Amounts) {
        (parse_amounts(it.requests.as_ref()), parse_amounts(it.limits.as_ref()))
    };
    amounts(one) == amounts(other)
}

#[cfg(test)]
#[path = "allocation_tests.rs"]
mod tests;
