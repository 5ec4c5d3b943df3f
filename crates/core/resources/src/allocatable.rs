//! What the node's own cgroups are bounded to: all pods together, and what is kept for the system
//! and for Kubernetes' daemons.
//!
//! In: what is enforced, what is reserved, what the machine has. Out: [`NodeCgroup`]s, which
//! `engine/node` has written again and again. Thresholds of eviction do not count here: pods are
//! evicted before the kernel's bound is reached. Refuses: naming a cgroup's directory, making one
//! that somebody else should have made.

use std::collections::BTreeMap;

use ferrolet_node::{DeviceResources, Machine, NodeSettings, capacity};
use ferrolet_types::{Amounts, Quantity};

use crate::{CgroupLimits, amount, cgroup::huge_page_bounds, milli_cpu_to_shares};

const PIDS: &str = "pid";

/// Which bounds are enforced (`enforceNodeAllocatable`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatablePolicy {
    /// All pods together get what is not reserved; else they get what the machine has.
    pub bounds_pods: bool,
    /// The system's daemons are bounded to `systemReserved`.
    pub system: Option<ReservedCgroup>,
    /// Kubernetes' daemons are bounded to `kubeReserved`.
    pub kube: Option<ReservedCgroup>,
    /// What daemons reserve of memory is never reclaimed from them: v2 with the feature `MemoryQoS`.
    pub protects_memory: bool,
}

/// A cgroup of daemons, made by the node's operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedCgroup {
    /// `systemReservedCgroup` or `kubeReservedCgroup`.
    pub name: String,
    /// What of the reservation bounds it.
    pub scope: ReservedScope,
}

/// How much of a reservation is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedScope {
    /// Everything.
    All,
    /// What a process can be short of without dying: CPU.
    Compressible,
}

/// A cgroup of the node, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCgroup {
    /// Which.
    pub place: NodeCgroupPlace,
    /// Its bounds.
    pub limits: CgroupLimits,
    /// Bytes in huge pages by the kernel's name of their size; a size that is not listed is not
    /// allowed. `None` leaves them alone.
    pub huge_pages: Option<BTreeMap<String, u64>>,
}

/// Which cgroup of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCgroupPlace {
    /// The one that all pods are in.
    Pods,
    /// The system's daemons.
    System(ReservedCgroup),
    /// Kubernetes' daemons.
    Kube(ReservedCgroup),
}

impl NodeCgroupPlace {
    /// The cgroup that somebody else made; `None` for ours.
    pub fn reserved(&self) -> Option<&ReservedCgroup> {
        match self {
            Self::Pods => None,
            Self::System(cgroup) | Self::Kube(cgroup) => Some(cgroup),
        }
    }
}

/// The node's cgroups with the bounds that they should have.
pub fn node_cgroups(
    policy: &AllocatablePolicy,
    settings: &NodeSettings,
    machine: &Machine,
) -> Vec<NodeCgroup> {
    let (system, kube) = (&settings.system_reserved, &settings.kube_reserved);
    let mut pods = capacity(settings, Some(machine), &DeviceResources::default(), &Amounts::new());
    if let Some(n_pids) = machine.max_pids {
        let n_pids = i64::try_from(n_pids).unwrap_or(i64::MAX);
        pods.insert(PIDS.to_owned(), Quantity::from_value(n_pids));
    }
    if policy.bounds_pods {
        for (name, amount_left) in &mut pods {
            let left = amount_left.minus(amount(system, name)).minus(amount(kube, name));
            *amount_left = left.max(Quantity::ZERO);
        }
    }
    let mut cgroups = vec![bounded(NodeCgroupPlace::Pods, &pods, ReservedScope::All)];
    let reserved = [
        (policy.system.clone().map(NodeCgroupPlace::System), system),
        (policy.kube.clone().map(NodeCgroupPlace::Kube), kube),
    ];
    for (place, amounts) in reserved {
        let Some((place, scope)) = place.and_then(|it| {
            let scope = it.reserved()?.scope;
            Some((it, scope))
        }) else {
            continue;
        };
        let mut cgroup = bounded(place, amounts, scope);
        if policy.protects_memory {
            cgroup.limits.memory_min = cgroup.limits.memory;
        }
        cgroups.push(cgroup);
    }
    cgroups
}

fn bounded(place: NodeCgroupPlace, amounts: &Amounts, scope: ReservedScope) -> NodeCgroup {
    let shares = amounts.get("cpu").map(|cpu| milli_cpu_to_shares(cpu.milli()));
    let mut limits = CgroupLimits { cpu_shares: shares, ..CgroupLimits::NONE };
    let mut huge_pages = None;
    match scope {
        ReservedScope::Compressible => {}
        ReservedScope::All => {
            limits.memory = amounts.get("memory").map(|memory| memory.value());
            limits.pids = amounts.get(PIDS).map(|pids| pids.value());
            huge_pages = Some(huge_page_bounds(amounts));
        }
    }
    NodeCgroup { place, limits, huge_pages }
}

#[cfg(test)]
#[path = "allocatable_tests.rs"]
mod tests;
