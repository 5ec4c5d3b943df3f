//! The cgroup of a pod, and the weights of the classes above it.
//!
//! In: a pod and the node's policy. Out: [`PodCgroup`]. Refuses: container cgroups, which are the runtime's.

use std::collections::BTreeMap;

use ferrolet_types::{PodUid, Qos, Quantity, pod::PodView as _, qos_of};
use k8s_openapi::api::core::v1::Pod;

use crate::{
    Amounts, MIN_SHARES, Overhead, amount,
    amounts::{container_limits, pod_level_limit, pod_limits, pod_requests},
    container::huge_page_size_name,
    milli_cpu_to_quota, milli_cpu_to_shares,
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
    /// Bytes in huge pages, by the kernel's name of their size (`2MB`). A size that is not listed is not allowed.
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
}

/// What the node's configuration says about cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupPolicy {
    /// CPU limits are enforced (`cpuCFSQuota`).
    pub cpu_cfs_quota: bool,
    /// Microseconds of a period (`cpuCFSQuotaPeriod`).
    pub cfs_period_micros: u32,
    /// Processes and threads per pod (`podPidsLimit`); `None` when it is not above zero.
    pub pids_limit: Option<i64>,
}

impl Default for CgroupPolicy {
    /// Upstream's defaults: quotas on, 100 ms, no bound on processes.
    fn default() -> Self {
        Self {
            cpu_cfs_quota: true,
            cfs_period_micros: 100_000,
            pids_limit: None,
        }
    }
}

/// The class that the API recorded for a pod, else the computed one; a class never changes during a pod's life.
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
/// A burstable pod is bounded in a resource only when every container, or the pod itself, declares a limit for it:
/// otherwise the sum of some limits would bound the containers that have none.
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
    let period = policy.cfs_period_micros;
    let quota = milli_cpu_to_quota(amount(&limits, "cpu").milli(), i64::from(period));
    let limits = CgroupLimits {
        cpu_shares: Some(shares),
        cpu_quota: (is_cpu_bounded && policy.cpu_cfs_quota).then_some(quota),
        cpu_period: is_cpu_bounded.then_some(u64::from(period)),
        memory: is_memory_bounded.then(|| amount(&limits, "memory").value()),
        pids: policy.pids_limit,
    };
    PodCgroup {
        uid: pod.uid(),
        qos,
        limits,
        huge_pages: huge_page_limits(pod),
    }
}

/// The weight of the burstable class: what its pods ask for together.
pub fn burstable_shares<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> u64 {
    let milli = pods
        .into_iter()
        .filter(|pod| pod_qos(pod) == Qos::Burstable)
        .map(|pod| amount(&pod_requests(pod, Overhead::Included), "cpu").milli())
        .fold(0_i64, i64::saturating_add);
    milli_cpu_to_shares(milli)
}

fn huge_page_limits(pod: &Pod) -> BTreeMap<String, u64> {
    let requests: Amounts = pod_requests(pod, Overhead::Included);
    let mut limits = BTreeMap::new();
    for (name, quantity) in &requests {
        let size = name
            .strip_prefix("hugepages-")
            .and_then(|size| Quantity::parse(size).ok());
        if let Some(size) = size.and_then(|size| huge_page_size_name(size.value())) {
            *limits.entry(size).or_default() += u64::try_from(quantity.value()).unwrap_or(0);
        }
    }
    limits
}

fn is_bounded(pod: &Pod, name: &str) -> bool {
    let spec = pod.spec_ref();
    let mut containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    !pod_level_limit(pod, name).is_zero()
        || containers.all(|container| !amount(&container_limits(container), name).is_zero())
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
