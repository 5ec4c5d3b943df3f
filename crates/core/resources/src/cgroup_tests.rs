use serde_json::json;

use super::*;
use crate::tests_pods::{container, pod, pod_json};

const RICH: CgroupLimits = CgroupLimits {
    cpu_shares: Some(102),
    cpu_quota: None,
    cpu_period: None,
    memory: None,
    pids: None,
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
        pids: None,
    };
    check(
        &pod([container("g", &both, &both)]),
        policy,
        Qos::Guaranteed,
        sure,
    );
    let loose = CgroupLimits {
        cpu_shares: Some(2),
        ..CgroupLimits::default()
    };
    check(
        &pod([container("x", &[], &[])]),
        policy,
        Qos::BestEffort,
        loose,
    );
}

#[test]
fn a_burstable_pod_is_bounded_where_every_container_is() {
    let bounded = pod([
        container("a", &[("cpu", "100m")], &[("cpu", "1"), ("memory", "1Gi")]),
        container("b", &[], &[("memory", "1Gi")]),
    ]);
    let limits = CgroupLimits {
        memory: Some(2 << 30),
        ..RICH
    };
    check(&bounded, CgroupPolicy::default(), Qos::Burstable, limits);
}

#[test]
fn the_pods_own_limit_bounds_it_whatever_its_containers_say() {
    let own = pod_json(json!({"spec": {
        "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}, "containers": [{"name": "a"}, {"name": "b"}]}}));
    let limits = CgroupLimits {
        cpu_quota: Some(200_000),
        cpu_period: Some(100_000),
        ..RICH
    };
    check(&own, CgroupPolicy::default(), Qos::Burstable, limits);
}

#[test]
fn the_policy_can_lift_quotas_and_bound_processes() {
    let both = [("cpu", "100m"), ("memory", "1Gi")];
    let policy = CgroupPolicy {
        cpu_cfs_quota: false,
        pids_limit: Some(64),
        ..CgroupPolicy::default()
    };
    let limits = CgroupLimits {
        cpu_period: Some(100_000),
        memory: Some(1 << 30),
        pids: Some(64),
        ..RICH
    };
    check(
        &pod([container("a", &both, &both)]),
        policy,
        Qos::Guaranteed,
        limits,
    );
}

#[test]
fn the_recorded_class_wins_over_the_computed_one() {
    let recorded =
        pod_json(json!({"spec": {"containers": []}, "status": {"qosClass": "Guaranteed"}}));
    assert_eq!(pod_qos(&recorded), Qos::Guaranteed);
}

#[test]
fn the_burstable_class_weighs_what_its_pods_ask_for() {
    let asks = |cpu: &'static str| pod([container("c", &[("cpu", cpu)], &[])]);
    let guaranteed = {
        let both = [("cpu", "4"), ("memory", "1Gi")];
        pod([container("c", &both, &both)])
    };
    assert_eq!(burstable_shares([&asks("100m")]), 102);
    assert_eq!(
        burstable_shares([&asks("100m"), &asks("400m"), &guaranteed]),
        512
    );
    assert_eq!(burstable_shares([]), 2);
}

#[test]
fn huge_pages_are_bounded_by_size() {
    let pages = [("hugepages-2Mi", "4Mi"), ("memory", "1Gi")];
    let both = pod([
        container("a", &pages, &pages),
        container("b", &pages, &pages),
    ]);
    let cgroup = pod_cgroup(&both, &CgroupPolicy::default());
    assert_eq!(
        cgroup.huge_pages,
        BTreeMap::from([("2MB".to_owned(), 8 << 20)])
    );
}
