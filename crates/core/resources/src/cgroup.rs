//! The cgroup of a pod, and what the classes above it have together.
//!
//! In: a pod and the node's policy. Out: [`PodCgroup`]. Refuses: container cgroups, which are the
//! runtime's.

use std::collections::BTreeMap;

use ferrolet_types::{PodUid, Qos, Quantity, pod::PodView as _, qos_of};
use k8s_openapi::api::core::v1::Pod;

use crate::{
    Amounts, CgroupMode, MIN_SHARES, MemoryQos, Overhead, amount,
    amounts::{container_limits, pod_level_limit, pod_limits, pod_requests},
    container::{huge_page_size_name, throttle_at},
    has_pod_level_resources, milli_cpu_to_quota, milli_cpu_to_shares,
};

/// A pod's cgroup: where it stands and what bounds it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCgroup {
    /// Whose it is.
    pub uid: PodUid,
    /// Decides the parent.
    pub qos: Qos,
    /// Bounds.
    pub limits: CgroupLimits,
    /// Bytes in huge pages, by the kernel's name of their size (`2MB`). A size that is not listed
    /// is not allowed.
    pub huge_pages: BTreeMap<String, u64>,
}

/// Bounds of one cgroup; `None` leaves the kernel's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CgroupLimits {
    /// Weight in v1's scale (2..262144).
    pub cpu_shares: Option<u64>,
    /// Microseconds per period; `None` is unlimited.
    pub cpu_quota: Option<i64>,
    /// Microseconds of a period.
    pub cpu_period: Option<u64>,
    /// Bytes.
    pub memory: Option<i64>,
    /// Processes and threads.
    pub pids: Option<i64>,
    /// Bytes that are never reclaimed. As the two below, this is written on v2 only.
    pub memory_min: Option<i64>,
    /// Bytes that are reclaimed only when nothing else is left.
    pub memory_low: Option<i64>,
    /// Bytes above which the cgroup is slowed down and reclaimed from.
    pub memory_high: Option<i64>,
}

impl CgroupLimits {
    /// Nothing is bounded, nothing is protected.
    pub const NONE: Self = Self {
        cpu_shares: None,
        cpu_quota: None,
        cpu_period: None,
        memory: None,
        pids: None,
        memory_min: None,
        memory_low: None,
        memory_high: None,
    };

    /// What it says about memory beside the limit: the file of v2 and its bytes.
    pub fn protection(&self) -> impl Iterator<Item = (&'static str, i64)> {
        let files = [
            ("memory.min", self.memory_min),
            ("memory.low", self.memory_low),
            ("memory.high", self.memory_high),
        ];
        let files = files.into_iter();
        files.filter_map(|(file, bytes)| Some((file, bytes?)))
    }
}

/// What the pods of the node have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassBounds {
    /// All of them.
    pub all: CgroupLimits,
    /// The burstable ones.
    pub burstable: CgroupLimits,
    /// The best-effort ones; their weight is always the smallest.
    pub best_effort: CgroupLimits,
}

impl ClassBounds {
    /// What stands there before anybody knows which pods there are: on v2, what an agent with
    /// another policy may have left is taken back.
    pub fn at_start(mode: CgroupMode, has_reservations: bool) -> Self {
        if mode == CgroupMode::V1 || has_reservations {
            return Self::default();
        }
        let burstable = CgroupLimits { memory_low: Some(0), ..CgroupLimits::NONE };
        let all = CgroupLimits { memory_min: Some(0), ..burstable };
        Self { all, burstable, ..Self::default() }
    }
}

/// What the node's configuration says about cgroups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CgroupPolicy {
    /// CPU limits are enforced (`cpuCFSQuota`).
    pub cpu_cfs_quota: bool,
    /// Microseconds of a period (`cpuCFSQuotaPeriod`).
    pub cfs_period_micros: u32,
    /// Processes and threads per pod (`podPidsLimit`); `None` when it is not above zero.
    pub pids_limit: Option<i64>,
    /// Memory protection; `None` on v1 and when the feature `MemoryQoS` is off.
    pub memory_qos: Option<MemoryQos>,
    /// Memory kept from lower classes; `None` where nothing is (`qosReserved`).
    pub memory_reserve: Option<MemoryReserve>,
}

/// What of their memory requests is kept for pods of a class by bounding the classes below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReserve {
    /// Of a hundred.
    pub percent: u8,
    /// Bytes that pods may have together.
    pub allocatable: i64,
}

impl Default for CgroupPolicy {
    /// Upstream's defaults on v1: quotas on, 100 ms, no bound on processes.
    fn default() -> Self {
        Self {
            cpu_cfs_quota: true,
            cfs_period_micros: 100_000,
            pids_limit: None,
            memory_qos: None,
            memory_reserve: None,
        }
    }
}

/// The class that the API recorded for a pod, else the computed one; a class never changes during a
/// pod's life.
pub fn pod_qos(pod: &Pod) -> Qos {
    let recorded = pod.status.as_ref().and_then(|s| s.qos_class.as_deref());
    match recorded {
        Some("Guaranteed") => Qos::Guaranteed,
        Some("Burstable") => Qos::Burstable,
        Some("BestEffort") => Qos::BestEffort,
        _ => qos_of(pod.spec_ref()),
    }
}

/// Where a pod's cgroup stands and what bounds it gets.
///
/// A burstable pod is bounded in a resource only when every container, or the pod itself, declares
/// a limit for it: otherwise the sum of some limits would bound the containers that have none.
pub fn pod_cgroup(pod: &Pod, policy: &CgroupPolicy) -> PodCgroup {
    let qos = pod_qos(pod);
    let requests = pod_requests(pod, Overhead::Included);
    let limits = pod_limits(pod, Overhead::Included);
    let (is_cpu_bounded, is_memory_bounded) = match qos {
        Qos::Guaranteed => (true, true),
        Qos::Burstable => (is_bounded(pod, "cpu"), is_bounded(pod, "memory")),
        Qos::BestEffort => (false, false),
    };
    let shares = match qos {
        Qos::BestEffort => MIN_SHARES,
        Qos::Guaranteed | Qos::Burstable => milli_cpu_to_shares(amount(&requests, "cpu").milli()),
    };
    let protection =
        policy.memory_qos.as_ref().map(|memory| protection(pod, qos, memory)).unwrap_or_default();
    let period = policy.cfs_period_micros;
    let quota = milli_cpu_to_quota(amount(&limits, "cpu").milli(), i64::from(period));
    let limits = CgroupLimits {
        cpu_shares: Some(shares),
        cpu_quota: (is_cpu_bounded && policy.cpu_cfs_quota).then_some(quota),
        cpu_period: is_cpu_bounded.then_some(u64::from(period)),
        memory: is_memory_bounded.then(|| amount(&limits, "memory").value()),
        pids: policy.pids_limit,
        ..protection
    };
    PodCgroup { uid: pod.uid(), qos, limits, huge_pages: huge_page_limits(pod) }
}

/// What the classes get for these pods: the weight of the burstable ones is what they ask for
/// together, and where memory is reserved, each pod's protection holds only as far as that of the
/// cgroups above it.
pub fn class_bounds<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    policy: &CgroupPolicy,
) -> ClassBounds {
    let (mut cpu, mut sure, mut burstable) = (0_i64, 0_i64, 0_i64);
    for pod in pods {
        let requests = pod_requests(pod, Overhead::Included);
        let memory = amount(&requests, "memory").value();
        match pod_qos(pod) {
            Qos::Guaranteed => sure = sure.saturating_add(memory),
            Qos::Burstable => {
                cpu = cpu.saturating_add(amount(&requests, "cpu").milli());
                burstable = burstable.saturating_add(memory);
            }
            Qos::BestEffort => {}
        }
    }
    let mut bounds = ClassBounds::default();
    bounds.burstable.cpu_shares = Some(milli_cpu_to_shares(cpu));
    if policy.memory_qos.is_some_and(|memory| memory.is_reserving) {
        bounds.all.memory_min = Some(sure.saturating_add(burstable));
        bounds.all.memory_low = Some(burstable);
        bounds.burstable.memory_low = Some(burstable);
    }
    // Nothing to share out means that nobody knows what there is.
    if let Some(reserve) = policy.memory_reserve.filter(|it| it.allocatable > 0) {
        let kept = |bytes: i64| bytes.saturating_mul(i64::from(reserve.percent)) / 100;
        let below_sure = reserve.allocatable.saturating_sub(kept(sure));
        bounds.burstable.memory = Some(below_sure);
        bounds.best_effort.memory = Some(below_sure.saturating_sub(kept(burstable)));
    }
    bounds
}

/// What a pod has of memory protection. Its containers are throttled one by one; only one that has
/// resources of its own is throttled as a whole.
fn protection(pod: &Pod, qos: Qos, policy: &MemoryQos) -> CgroupLimits {
    let mut result = CgroupLimits::NONE;
    let request = amount(&pod_requests(pod, Overhead::Included), "memory").value();
    if policy.is_reserving && request > 0 {
        match qos {
            Qos::Guaranteed => result.memory_min = Some(request),
            Qos::Burstable | Qos::BestEffort => result.memory_low = Some(request),
        }
    }
    if let Some(factor) = policy.throttling_factor
        && has_pod_level_resources(pod)
        && is_bounded(pod, "memory")
    {
        let limit = amount(&pod_limits(pod, Overhead::Included), "memory").value();
        let high = throttle_at(request, limit, factor, policy.page_size.max(1));
        if limit != 0 && limit != request && high > request {
            result.memory_high = Some(high);
        }
    }
    result
}

fn huge_page_limits(pod: &Pod) -> BTreeMap<String, u64> {
    huge_page_bounds(&pod_requests(pod, Overhead::Included))
}

/// The huge pages among some amounts, by the kernel's name of their size.
pub(crate) fn huge_page_bounds(amounts: &Amounts) -> BTreeMap<String, u64> {
    let mut limits = BTreeMap::new();
    for (name, quantity) in amounts {
        let size = name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok());
        if let Some(size) = size.and_then(|size| huge_page_size_name(size.value())) {
            *limits.entry(size).or_default() += u64::try_from(quantity.value()).unwrap_or(0);
        }
    }
    limits
}

fn is_bounded(pod: &Pod, name: &str) -> bool {
    let spec = pod.spec_ref();
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    !pod_level_limit(pod, name).is_zero()
        || containers.all(|container| !amount(&container_limits(container), name).is_zero())
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
