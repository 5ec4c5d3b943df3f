//! The numbers that a runtime is asked with, for containers, sandboxes and overhead.
//!
//! In: a pod, one of its containers, [`NodeResources`]. Out: [`LinuxResources`]. Matches upstream's
//! `generateLinuxContainerResources` and `calculateSandboxResources`.
//! Refuses: CPU and NUMA pinning, which later policies lay over the result.

use std::collections::BTreeMap;

use ferrolet_types::{Qos, Quantity, pod::PodView as _};
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{
    Amounts, CgroupPolicy, Overhead, amount,
    amounts::{pod_level, pod_level_limit},
    container_limits, container_requests, has_pod_level_resources, milli_cpu_to_quota,
    milli_cpu_to_shares, oom_score_adj, parse_amounts, pod_limits, pod_qos, pod_requests,
};

/// Bounds in the kernel's units; zero means not set.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LinuxResources {
    /// Length of a CPU period in microseconds.
    pub cpu_period: i64,
    /// CPU time per period in microseconds.
    pub cpu_quota: i64,
    /// CPU weight.
    pub cpu_shares: i64,
    /// Memory limit in bytes.
    pub memory_limit: i64,
    /// Memory plus swap limit in bytes.
    pub memory_swap_limit: i64,
    /// Adjustment of the OOM killer's score.
    pub oom_score_adj: i64,
    /// CPUs the container may use.
    pub cpuset_cpus: String,
    /// Memory nodes the container may use.
    pub cpuset_mems: String,
    /// Limits of huge pages by size (`2MB`).
    pub hugepage_limits: Vec<(String, u64)>,
    /// Further files of the unified hierarchy.
    pub unified: BTreeMap<String, String>,
}

/// Which cgroup hierarchy the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupMode {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// What a node says about resources: its size, its cgroups, its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeResources {
    /// Which hierarchy it has.
    pub cgroup_mode: CgroupMode,
    /// Quotas and bounds of pods.
    pub cgroups: CgroupPolicy,
    /// Bytes of memory the machine has.
    pub memory_capacity: i64,
    /// Swap.
    pub swap: SwapPolicy,
    /// Sizes of huge pages as the kernel's hugetlb controller names them (`2MB`, `1GB`), in the
    /// order it lists them.
    pub huge_page_sizes: Vec<String>,
    /// On v2, an OOM kill takes one process instead of the whole container
    /// (`singleProcessOOMKill`).
    pub single_process_oom_kill: bool,
}

/// What containers may do with the node's swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapPolicy {
    /// The kernel counts swap per cgroup (`memory.memsw.limit_in_bytes` or `memory.swap.max` is
    /// there).
    pub is_controlled: bool,
    /// What the configuration allows.
    pub behavior: SwapBehavior,
    /// Bytes of swap the machine has.
    pub capacity: i64,
}

/// The configured use of swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapBehavior {
    /// None at all.
    NoSwap,
    /// Burstable containers share it in proportion to their requests.
    LimitedSwap,
}

/// Memory protection and throttling on cgroup v2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryQos {
    /// Part of the way from request to limit where throttling begins (`memoryThrottlingFactor`).
    pub throttling_factor: Option<f64>,
    /// Requests are protected from reclaim (`memoryReservationPolicy: TieredReservation`).
    pub is_reserving: bool,
    /// Bytes of memory pods may have, the stand-in for a missing limit.
    pub allocatable: i64,
    /// Bytes of a page.
    pub page_size: i64,
}

/// Whether a CPU limit becomes a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaMode {
    /// It does.
    Enforced,
    /// The container owns its CPUs and is not throttled on them.
    Exclusive,
}

/// What to ask for a container.
pub fn container_resources(
    pod: &Pod,
    container: &Container,
    node: &NodeResources,
    quota: QuotaMode,
) -> LinuxResources {
    let limits = container_limits(container);
    let requests = container_requests(container);
    let cpu_limit = limit_or_pods(pod, &limits, "cpu");
    let memory_limit = limit_or_pods(pod, &limits, "memory");
    let cpu_request = requests.get("cpu").copied().unwrap_or(cpu_limit);
    let mut result = bounds(cpu_request, cpu_limit, memory_limit, node, quota);
    result.oom_score_adj = oom_score_adj(pod, container, node.memory_capacity);
    result.hugepage_limits = hugepage_limits(pod, &limits, &node.huge_page_sizes);
    limit_swap(&mut result, pod, &requests, &limits, node);
    if node.cgroup_mode == CgroupMode::V2 {
        let files = protection(pod, &requests, &limits, node.cgroups.memory_qos.as_ref());
        result.unified.extend(files);
    }
    result
}

/// What to tell a runtime about a sandbox: the sum of its containers, without overhead.
pub fn sandbox_resources(pod: &Pod, node: &NodeResources, quota: QuotaMode) -> LinuxResources {
    let requests = pod_requests(pod, Overhead::Excluded);
    let limits = pod_limits(pod, Overhead::Excluded);
    let cpu_limit = amount(&limits, "cpu");
    let cpu_request = requests.get("cpu").copied().unwrap_or(cpu_limit);
    bounds(cpu_request, cpu_limit, amount(&limits, "memory"), node, quota)
}

/// What to tell a runtime about a pod's overhead, which is request and limit at once; all zero
/// without one.
pub fn overhead_resources(pod: &Pod, node: &NodeResources) -> LinuxResources {
    let Some(overhead) = &pod.spec_ref().overhead else {
        return LinuxResources::default();
    };
    let overhead = parse_amounts(Some(overhead));
    let (cpu, memory) = (amount(&overhead, "cpu"), amount(&overhead, "memory"));
    bounds(cpu, cpu, memory, node, QuotaMode::Enforced)
}

/// The kernel's name of a huge page size in bytes: `2MB`, `1GB`. `None` when no unit fits.
pub fn huge_page_size_name(bytes: i64) -> Option<String> {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let (mut size, mut unit) = (bytes, 0);
    while size != 0 && size % 1024 == 0 && unit < UNITS.len() - 1 {
        size /= 1024;
        unit += 1;
    }
    let is_exact = size <= 1024 || unit == UNITS.len() - 1;
    is_exact.then(|| format!("{size}{}", UNITS[unit]))
}

fn bounds(
    cpu_request: Quantity,
    cpu_limit: Quantity,
    memory_limit: Quantity,
    node: &NodeResources,
    quota: QuotaMode,
) -> LinuxResources {
    let shares = milli_cpu_to_shares(cpu_request.milli());
    let mut result = LinuxResources {
        cpu_shares: i64::try_from(shares).unwrap_or(i64::MAX),
        memory_limit: memory_limit.value(),
        ..LinuxResources::default()
    };
    if node.cgroups.cpu_cfs_quota {
        let period = i64::from(node.cgroups.cfs_period_micros);
        result.cpu_period = period;
        result.cpu_quota = match quota {
            QuotaMode::Enforced => milli_cpu_to_quota(cpu_limit.milli(), period),
            QuotaMode::Exclusive => -1,
        };
    }
    if node.cgroup_mode == CgroupMode::V2 && !node.single_process_oom_kill {
        result.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    result
}

fn limit_or_pods(pod: &Pod, limits: &Amounts, name: &str) -> Quantity {
    let own = amount(limits, name);
    if own.is_zero() && has_pod_level_resources(pod) {
        return pod_level_limit(pod, name);
    }
    own
}

/// Every size of the node is listed, so that what is not asked for is forbidden.
fn hugepage_limits(pod: &Pod, own: &Amounts, sizes: &[String]) -> Vec<(String, u64)> {
    let pods = pod_level(pod).and_then(|r| r.limits.as_ref());
    let mut wanted = named_page_limits(&parse_amounts(pods));
    wanted.extend(named_page_limits(own));
    let limit = |size: &String| wanted.get(size).copied().unwrap_or(0);
    sizes.iter().map(|size| (size.clone(), limit(size))).collect()
}

fn named_page_limits(limits: &Amounts) -> BTreeMap<String, u64> {
    let named = |(name, quantity): (&String, &Quantity)| {
        let size = Quantity::parse(name.strip_prefix("hugepages-")?).ok()?;
        let bytes = u64::try_from(quantity.value()).unwrap_or(0);
        Some((huge_page_size_name(size.value())?, bytes))
    };
    limits.iter().filter_map(named).collect()
}

fn limit_swap(
    result: &mut LinuxResources,
    pod: &Pod,
    requests: &Amounts,
    limits: &Amounts,
    node: &NodeResources,
) {
    if !node.swap.is_controlled {
        return;
    }
    match node.cgroup_mode {
        // Memory and swap share one bound there; a container without a memory limit has none.
        CgroupMode::V1 => result.memory_swap_limit = result.memory_limit,
        CgroupMode::V2 => {
            let bytes = swap_share(pod, requests, limits, node);
            result.unified.insert("memory.swap.max".to_owned(), bytes.to_string());
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "upstream computes this share in floating point; exact bytes do not matter"
)]
fn swap_share(pod: &Pod, requests: &Amounts, limits: &Amounts, node: &NodeResources) -> i64 {
    let (request, limit) = (amount(requests, "memory"), amount(limits, "memory"));
    let may_swap = node.swap.behavior == SwapBehavior::LimitedSwap
        && !pod.is_critical()
        && pod_qos(pod) == Qos::Burstable
        && request != limit;
    if !may_swap || node.memory_capacity <= 0 || request.value() > node.memory_capacity {
        return 0;
    }
    let part = request.value() as f64 / node.memory_capacity as f64;
    (part * node.swap.capacity as f64) as i64
}

/// The files of memory protection. Zeros and `max` are written too, so that a resize clears what an
/// earlier policy left.
fn protection(
    pod: &Pod,
    requests: &Amounts,
    limits: &Amounts,
    qos: Option<&MemoryQos>,
) -> Vec<(String, String)> {
    let file = |name: &str, value: i64| (name.to_owned(), value.to_string());
    let Some(qos) = qos else {
        return vec![("memory.high".to_owned(), "max".to_owned())];
    };
    let request = amount(requests, "memory").value();
    let limit = amount(limits, "memory").value();
    let mut files = match (qos.is_reserving && request != 0, pod_qos(pod)) {
        (true, Qos::Guaranteed) => vec![file("memory.min", request)],
        (true, Qos::Burstable | Qos::BestEffort) => vec![file("memory.low", request)],
        (false, _) => vec![file("memory.min", 0), file("memory.low", 0)],
    };
    // The pod's own memory.high throttles a container that is bounded only through its pod.
    let is_pods_business = limit == 0 && !pod_level_limit(pod, "memory").is_zero();
    let is_fixed = request == limit && request != 0;
    if let (Some(factor), false, false) = (qos.throttling_factor, is_pods_business, is_fixed) {
        let ceiling = if limit == 0 { qos.allocatable } else { limit };
        let high = throttle_at(request, ceiling, factor, qos.page_size.max(1));
        if ceiling > 0 && high > request {
            files.push(file("memory.high", high));
        }
    }
    files
}

/// Where throttling begins: so far on the way from request to limit, in whole pages.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the factor is a fraction and the result is rounded to pages"
)]
pub(crate) fn throttle_at(request: i64, ceiling: i64, factor: f64, page: i64) -> i64 {
    let (request, ceiling) = (request as f64, ceiling as f64);
    let bytes = (request + (ceiling - request) * factor).floor();
    (bytes / page as f64) as i64 * page
}

#[cfg(test)]
#[path = "container_tests.rs"]
mod tests;
