//! Policies that assign CPUs, memory and NUMA nodes to containers.

use std::{collections::BTreeMap, time::Duration};

use super::{
    reader::{Reader, words},
    syntax::parse_percent,
};

words! {
    /// Whether containers get CPUs of their own.
    CpuManagerPolicy {
        /// They share.
        None = "none",
        /// Guaranteed containers with whole CPUs own them.
        Static = "static",
    }
}

words! {
    /// Whether containers get memory of certain NUMA nodes.
    MemoryManagerPolicy {
        /// They take what comes.
        None = "None",
        /// Guaranteed pods get it from the fewest nodes.
        Static = "Static",
    }
}

words! {
    /// What happens when CPUs, memory and devices do not lie together.
    TopologyPolicy {
        /// Nobody looks.
        None = "none",
        /// They lie together if possible.
        BestEffort = "best-effort",
        /// The pod is refused.
        Restricted = "restricted",
        /// The pod is refused unless one node holds everything.
        SingleNumaNode = "single-numa-node",
    }
}

words! {
    /// What has to lie together.
    TopologyScope {
        /// Each container's share.
        Container = "container",
        /// The whole pod's.
        Pod = "pod",
    }
}

words! {
    /// How requested memory is protected from reclaim.
    MemoryReservationPolicy {
        /// It is not.
        None = "None",
        /// By tiers of quality of service.
        TieredReservation = "TieredReservation",
    }
}

/// Everything about assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct Resources {
    /// Whether containers own CPUs.
    pub cpu_policy: CpuManagerPolicy,
    /// Fine tuning of that.
    pub cpu_policy_options: BTreeMap<String, String>,
    /// How often assignments are enforced again.
    pub cpu_reconcile_period: Duration,
    /// Whether memory is tied to NUMA nodes.
    pub memory_policy: MemoryManagerPolicy,
    /// What happens when things lie apart.
    pub topology_policy: TopologyPolicy,
    /// What has to lie together.
    pub topology_scope: TopologyScope,
    /// Fine tuning of that.
    pub topology_policy_options: BTreeMap<String, String>,
    /// Percent of requested memory kept from lower classes.
    pub qos_reserved_memory: Option<u8>,
    /// Where between request and limit memory throttling begins.
    pub memory_throttling_factor: Option<f64>,
    /// How requested memory is protected.
    pub memory_reservation: MemoryReservationPolicy,
}

/// The default of older releases, which is tolerated in files although the gate is off.
const FORMER_THROTTLING_FACTOR: f64 = 0.9;

pub(super) fn read(r: &Reader<'_>) -> Resources {
    let memory_reservation = r.word("memoryReservationPolicy");
    if memory_reservation == MemoryReservationPolicy::TieredReservation {
        r.needs_gate("memoryReservationPolicy", "MemoryQoS");
    }
    Resources {
        cpu_policy: r.word("cpuManagerPolicy"),
        cpu_policy_options: r.text_map("cpuManagerPolicyOptions"),
        cpu_reconcile_period: r.duration("cpuManagerReconcilePeriod"),
        memory_policy: r.word("memoryManagerPolicy"),
        topology_policy: r.word("topologyManagerPolicy"),
        topology_scope: r.word("topologyManagerScope"),
        topology_policy_options: r.text_map("topologyManagerPolicyOptions"),
        qos_reserved_memory: read_qos_reserved(r),
        memory_throttling_factor: read_throttling_factor(r),
        memory_reservation,
    }
}

fn read_qos_reserved(r: &Reader<'_>) -> Option<u8> {
    let mut memory = None;
    for (resource, value) in r.text_map("qosReserved") {
        let path = format!("qosReserved.{resource}");
        if resource != "memory" {
            r.fault(&path, &value, "only memory can be reserved");
            continue;
        }
        memory = parse_percent(&value)
            .filter(|percent| percent.fract() == 0.0)
            .and_then(|_| value.strip_suffix('%')?.parse().ok())
            .filter(|percent: &u8| *percent <= 100);
        if memory.is_none() {
            r.fault(&path, &value, "must be a percentage from 0% to 100%");
        }
    }
    memory
}

fn read_throttling_factor(r: &Reader<'_>) -> Option<f64> {
    let path = "memoryThrottlingFactor";
    let factor = r.get(path)?.as_f64()?;
    if !r.gates.enabled("MemoryQoS") && (factor - FORMER_THROTTLING_FACTOR).abs() > f64::EPSILON {
        r.needs_gate(path, "MemoryQoS");
    }
    if factor <= 0.0 || factor > 1.0 {
        r.refuse(path, "must be more than 0 and at most 1");
    }
    Some(factor)
}
