use serde_json::json;

use super::*;
use crate::tests_pods::{container, pod, pod_json};

const GIB: i64 = 1 << 30;

fn node() -> NodeResources {
    NodeResources {
        cgroup_mode: CgroupMode::V1,
        cgroups: CgroupPolicy {
            memory_qos: Some(MemoryQos {
                throttling_factor: None,
                is_reserving: false,
                allocatable: 7 * GIB,
                page_size: 4096,
            }),
            ..CgroupPolicy::default()
        },
        memory_capacity: 8 * GIB,
        swap: SwapPolicy { is_controlled: true, behavior: SwapBehavior::NoSwap, capacity: 0 },
        huge_page_sizes: vec!["2MB".to_owned(), "1GB".to_owned()],
        single_process_oom_kill: false,
    }
}

fn node_v2() -> NodeResources {
    NodeResources { cgroup_mode: CgroupMode::V2, ..node() }
}

fn of(pod: &Pod, node: &NodeResources) -> LinuxResources {
    container_resources(pod, &pod.spec_ref().containers[0], node, QuotaMode::Enforced)
}

fn unified(resources: &LinuxResources) -> String {
    let files: Vec<String> = resources.unified.iter().map(|(k, v)| format!("{k}={v}")).collect();
    files.join(" ")
}

fn no_pages() -> Vec<(String, u64)> {
    vec![("2MB".to_owned(), 0), ("1GB".to_owned(), 0)]
}

#[test]
fn recorded_numbers_of_bounded_and_unbounded_containers_come_out_the_same() {
    let rich = pod([
        container(
            "main",
            &[("cpu", "100m"), ("memory", "1Mi")],
            &[("cpu", "500m"), ("memory", "64Mi")],
        ),
        container("side", &[], &[]),
    ]);
    let main = LinuxResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 102,
        memory_limit: 67_108_864,
        memory_swap_limit: 67_108_864,
        oom_score_adj: 999,
        hugepage_limits: no_pages(),
        ..LinuxResources::default()
    };
    assert_eq!(of(&rich, &node()), main);
    let side = LinuxResources {
        cpu_period: 100_000,
        cpu_shares: 2,
        oom_score_adj: 999,
        hugepage_limits: no_pages(),
        ..LinuxResources::default()
    };
    let spec = &rich.spec_ref().containers[1];
    assert_eq!(container_resources(&rich, spec, &node(), QuotaMode::Enforced), side);
}

#[test]
fn a_sandbox_is_told_the_sum_and_overhead_apart() {
    let costly = pod_json(json!({"spec": {
        "overhead": {"cpu": "250m", "memory": "16Mi"},
        "containers": [
            {"name": "a", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m", "memory": "64Mi"}}},
            {"name": "b"}]}}));
    let sum = sandbox_resources(&costly, &node(), QuotaMode::Enforced);
    assert_eq!(
        (sum.cpu_shares, sum.cpu_quota, sum.memory_limit, sum.oom_score_adj),
        (102, 50_000, 64 << 20, 0)
    );
    assert!(sum.hugepage_limits.is_empty() && sum.memory_swap_limit == 0);
    let cost = overhead_resources(&costly, &node());
    assert_eq!((cost.cpu_shares, cost.cpu_quota, cost.memory_limit), (256, 25_000, 16 << 20));
    assert_eq!(
        overhead_resources(&pod([container("a", &[], &[])]), &node()),
        LinuxResources::default()
    );
}

#[test]
fn quotas_vanish_without_enforcement_and_on_owned_cpus() {
    let bounded = pod([container("a", &[], &[("cpu", "2")])]);
    let mut lax = node();
    lax.cgroups.cpu_cfs_quota = false;
    let free = of(&bounded, &lax);
    assert_eq!((free.cpu_period, free.cpu_quota, free.cpu_shares), (0, 0, 2048));
    let spec = &bounded.spec_ref().containers[0];
    let owned = container_resources(&bounded, spec, &node(), QuotaMode::Exclusive);
    assert_eq!((owned.cpu_period, owned.cpu_quota), (100_000, -1));
}

#[test]
fn a_container_without_limits_takes_the_pods() {
    let own = pod_json(json!({"spec": {
        "resources": {"limits": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "8Mi"}, "requests": {"cpu": "1"}},
        "containers": [{"name": "a"}]}}));
    let taken = of(&own, &node());
    assert_eq!((taken.cpu_shares, taken.cpu_quota, taken.memory_limit), (1024, 100_000, GIB));
    assert_eq!(taken.hugepage_limits[0], ("2MB".to_owned(), 8 << 20));
}

#[test]
fn the_unified_files_follow_the_policy() {
    let bounded = || pod([container("a", &[("memory", "1Gi")], &[("memory", "2Gi")])]);
    let check = |node: &NodeResources, files: &str| {
        assert_eq!(unified(&of(&bounded(), node)), files);
    };
    check(&node(), "");
    check(&node_v2(), "memory.low=0 memory.min=0 memory.oom.group=1 memory.swap.max=0");
    let mut changed = node_v2();
    changed.single_process_oom_kill = true;
    changed.swap.is_controlled = false;
    changed.cgroups.memory_qos = None;
    check(&changed, "memory.high=max");
    changed.cgroups.memory_qos = Some(MemoryQos {
        throttling_factor: Some(0.9),
        is_reserving: true,
        allocatable: 7 * GIB,
        page_size: 4096,
    });
    check(&changed, "memory.high=2040107008 memory.low=1073741824");
}

/// LimitedSwap: the share of a container is its request of the node's memory.
#[test]
fn limited_swap_is_shared_by_request_among_burstable_pods() {
    let mut node = node_v2();
    node.swap.behavior = SwapBehavior::LimitedSwap;
    node.swap.capacity = 4 * GIB;
    let swap = |pod: &Pod| of(pod, &node).unified["memory.swap.max"].clone();
    let half = (GIB / 2).to_string();
    assert_eq!(swap(&pod([container("a", &[("memory", "1Gi")], &[])])), half);
    assert_eq!(swap(&pod([container("a", &[("cpu", "1")], &[])])), "0");
    assert_eq!(swap(&pod([container("a", &[("memory", "1Gi")], &[("memory", "1Gi")])])), "0");
    let mut fixed = pod([container("a", &[("memory", "1Gi")], &[])]);
    let annotations =
        BTreeMap::from([("kubernetes.io/config.source".to_owned(), "file".to_owned())]);
    fixed.metadata.annotations = Some(annotations);
    assert_eq!(swap(&fixed), "0", "static pods count as critical");
}

#[test]
fn page_sizes_have_the_kernels_names() {
    for (bytes, name) in
        [(2 << 20, Some("2MB")), (1 << 30, Some("1GB")), (64 << 10, Some("64KB")), (1500, None)]
    {
        assert_eq!(huge_page_size_name(bytes).as_deref(), name);
    }
}
