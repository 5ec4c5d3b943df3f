use serde_json::json;

use super::*;
use crate::tests_pods::{container, pod, pod_json};

const RICH: CgroupLimits = CgroupLimits {
    cpu_shares: Some(102),
    cpu_quota: None,
    cpu_period: None,
    memory: None,
    ..CgroupLimits::NONE
};

fn check(pod: &Pod, policy: CgroupPolicy, qos: Qos, limits: CgroupLimits) {
    let cgroup = pod_cgroup(pod, &policy);
    assert_eq!((cgroup.qos, cgroup.limits), (qos, limits));
}

#[test]
fn recorded_cgroups_of_the_three_classes_come_out_the_same() {
    let policy = CgroupPolicy::default();
    // rich-pod/cgroups-v1.txt: one bounded container beside two unbounded init containers.
    let rich = pod_json(json!({"spec": {
        "initContainers": [{"name": "first"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "main", "resources": {
            "requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}}]}}));
    check(&rich, policy, Qos::Burstable, RICH);
    let both = [("cpu", "200m"), ("memory", "48Mi")];
    let sure = CgroupLimits {
        cpu_shares: Some(204),
        cpu_quota: Some(20_000),
        cpu_period: Some(100_000),
        memory: Some(50_331_648),
        ..CgroupLimits::NONE
    };
    check(&pod([container("g", &both, &both)]), policy, Qos::Guaranteed, sure);
    let loose = CgroupLimits { cpu_shares: Some(2), ..CgroupLimits::default() };
    check(&pod([container("x", &[], &[])]), policy, Qos::BestEffort, loose);
}

#[test]
fn a_burstable_pod_is_bounded_where_every_container_is() {
    let bounded = pod([
        container("a", &[("cpu", "100m")], &[("cpu", "1"), ("memory", "1Gi")]),
        container("b", &[], &[("memory", "1Gi")]),
    ]);
    let limits = CgroupLimits { memory: Some(2 << 30), ..RICH };
    check(&bounded, CgroupPolicy::default(), Qos::Burstable, limits);
}

#[test]
fn the_pods_own_limit_bounds_it_whatever_its_containers_say() {
    let own = pod_json(json!({"spec": {
        "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}, "containers": [{"name": "a"}, {"name": "b"}]}}));
    let limits = CgroupLimits { cpu_quota: Some(200_000), cpu_period: Some(100_000), ..RICH };
    check(&own, CgroupPolicy::default(), Qos::Burstable, limits);
}

#[test]
fn the_policy_can_lift_quotas_and_bound_processes() {
    let both = [("cpu", "100m"), ("memory", "1Gi")];
    let policy =
        CgroupPolicy { cpu_cfs_quota: false, pids_limit: Some(64), ..CgroupPolicy::default() };
    let limits =
        CgroupLimits { cpu_period: Some(100_000), memory: Some(1 << 30), pids: Some(64), ..RICH };
    check(&pod([container("a", &both, &both)]), policy, Qos::Guaranteed, limits);
}

#[test]
fn the_recorded_class_wins_over_the_computed_one() {
    let recorded =
        pod_json(json!({"spec": {"containers": []}, "status": {"qosClass": "Guaranteed"}}));
    assert_eq!(pod_qos(&recorded), Qos::Guaranteed);
}

/// Memory quality of service (v2): what pods and the classes above them are protected by and
/// throttled at.
#[test]
fn memory_is_reserved_by_class_and_throttled_where_the_pod_has_limits_of_its_own() {
    let policy = |factor: Option<f64>, is_reserving: bool| CgroupPolicy {
        memory_qos: Some(MemoryQos {
            throttling_factor: factor,
            is_reserving,
            allocatable: 1 << 30,
            page_size: 4096,
        }),
        ..CgroupPolicy::default()
    };
    let whole = |request: &str, limit: &str| {
        pod_json(json!({"spec": {"containers": [{"name": "a"}], "resources": {
            "requests": {"memory": request}, "limits": {"memory": limit}}}}))
    };
    let both = [("cpu", "1"), ("memory", "32Mi")];
    let sure = pod([container("a", &both, &both)]);
    let burst = pod([container("a", &[("memory", "16Mi")], &[("memory", "64Mi")])]);
    let weightless = pod_json(json!({"spec": {
        "containers": [{"name": "a"}], "overhead": {"memory": "8Mi"}}}));
    let mi = |n: i64| n << 20;
    for (pod, factor, is_reserving, expected) in [
        (&sure, None, false, ""),
        (&sure, Some(0.9), true, "min 33554432"),
        (&burst, None, true, "low 16777216"),
        // Its container is throttled, not the pod.
        (&burst, Some(0.5), false, ""),
        (&whole("16Mi", "48Mi"), Some(0.5), false, "high 33554432"),
        (&whole("16Mi", "48Mi"), Some(0.5), true, "low 16777216 high 33554432"),
        // Whole pages, and nothing between a request and a limit that are one.
        (&whole("1", "8193"), Some(0.9), false, "high 4096"),
        (&whole("16Mi", "16Mi"), Some(0.5), false, ""),
        (&whole("16Mi", "48Mi"), None, false, ""),
        (&weightless, Some(0.5), true, "low 8388608"),
        (&pod([container("a", &[], &[])]), Some(0.5), true, ""),
    ] {
        let limits = pod_cgroup(pod, &policy(factor, is_reserving)).limits;
        let told: Vec<String> = limits
            .protection()
            .map(|(file, bytes)| format!("{} {bytes}", file.trim_start_matches("memory.")))
            .collect();
        assert_eq!(told.join(" "), expected, "{factor:?} {is_reserving}");
    }
    let all = [&sure, &burst, &weightless];
    let reserved = class_bounds(all, &policy(None, true));
    assert_eq!(reserved.all.memory_min, Some(mi(48)));
    assert_eq!(reserved.all.memory_low, Some(mi(16)));
    assert_eq!(reserved.burstable.memory_low, Some(mi(16)));
    let plain = class_bounds(all, &policy(Some(0.5), false));
    assert_eq!(plain.all, CgroupLimits::NONE);
    assert_eq!(plain.burstable.memory_low, None);
}

/// Memory quality of service (v2): what another policy left is taken back when the agent
/// starts.
#[test]
fn protection_that_nobody_asks_for_any_more_is_taken_back_at_the_start() {
    let check = |mode, has_reservations, all: [Option<i64>; 2], burstable: Option<i64>| {
        let found = ClassBounds::at_start(mode, has_reservations);
        assert_eq!([found.all.memory_min, found.all.memory_low], all);
        assert_eq!(found.burstable.memory_low, burstable);
    };
    check(CgroupMode::V1, false, [None; 2], None);
    check(CgroupMode::V2, true, [None; 2], None);
    check(CgroupMode::V2, false, [Some(0); 2], Some(0));
}

#[test]
fn the_burstable_class_weighs_what_its_pods_ask_for() {
    let asks = |cpu: &'static str| pod([container("c", &[("cpu", cpu)], &[])]);
    let guaranteed = {
        let both = [("cpu", "4"), ("memory", "1Gi")];
        pod([container("c", &both, &both)])
    };
    let shares = |pods: &[&Pod]| {
        let bounds = class_bounds(pods.iter().copied(), &CgroupPolicy::default());
        bounds.burstable.cpu_shares
    };
    assert_eq!(shares(&[&asks("100m")]), Some(102));
    assert_eq!(shares(&[&asks("100m"), &asks("400m"), &guaranteed]), Some(512));
    assert_eq!(shares(&[]), Some(2));
}

#[test]
fn huge_pages_are_bounded_by_size() {
    let pages = [("hugepages-2Mi", "4Mi"), ("memory", "1Gi")];
    let both = pod([container("a", &pages, &pages), container("b", &pages, &pages)]);
    let cgroup = pod_cgroup(&both, &CgroupPolicy::default());
    assert_eq!(cgroup.huge_pages, BTreeMap::from([("2MB".to_owned(), 8 << 20)]));
}

#[test]
fn lower_classes_are_kept_from_what_higher_ones_reserve() {
    let mi = |n: i64| n << 20;
    let asks = |memory: &'static str| pod([container("c", &[("memory", memory)], &[])]);
    let sure = {
        let both = [("cpu", "1"), ("memory", "40Mi")];
        pod([container("c", &both, &both)])
    };
    let check = |percent: u8, allocatable: i64, expected: [Option<i64>; 2]| {
        let memory_reserve = Some(MemoryReserve { percent, allocatable });
        let policy = CgroupPolicy { memory_reserve, ..CgroupPolicy::default() };
        let bounds = class_bounds([&sure, &asks("20Mi")], &policy);
        assert_eq!([bounds.burstable.memory, bounds.best_effort.memory], expected, "{percent}%");
        assert_eq!(bounds.all, CgroupLimits::NONE);
    };
    check(100, mi(200), [Some(mi(160)), Some(mi(140))]);
    check(50, mi(200), [Some(mi(180)), Some(mi(170))]);
    check(0, mi(200), [Some(mi(200)), Some(mi(200))]);
    check(100, 0, [None, None]);
    let bounds = class_bounds([&sure], &CgroupPolicy::default());
    assert_eq!([bounds.burstable.memory, bounds.best_effort.memory], [None, None]);
}
