use serde_json::{Value, json};

use super::*;
use crate::tests_pods::pod_json;
use crate::{CgroupMode, CgroupPolicy, MemoryQos, SwapBehavior, SwapPolicy};

fn node() -> NodeResources {
    NodeResources {
        cgroup_mode: CgroupMode::V1,
        cgroups: CgroupPolicy::default(),
        memory_capacity: 8 << 30,
        swap: SwapPolicy { is_controlled: false, behavior: SwapBehavior::NoSwap, capacity: 0 },
        huge_page_sizes: Vec::new(),
        single_process_oom_kill: true,
    }
}

/// A pod of guaranteed containers: name, CPU, memory.
fn sure(containers: &[(&str, &str, &str)]) -> Pod {
    let list: Vec<Value> = containers
        .iter()
        .map(|(name, cpu, memory)| {
            let both = json!({"cpu": cpu, "memory": memory});
            json!({"name": name, "resources": {"requests": both, "limits": both}})
        })
        .collect();
    pod_json(json!({"metadata": {"uid": "u"}, "spec": {"containers": list}}))
}

/// The steps in brief.
fn told(plan: &ResizePlan) -> Vec<String> {
    let brief = |step: &ResizeStep| match step {
        ResizeStep::Pod { cgroup, .. } => {
            let limits = cgroup.limits;
            let parts = [
                limits.memory.map(|it| format!("memory {}", it >> 20)),
                limits.cpu_quota.map(|it| format!("quota {it}")),
                limits.cpu_shares.map(|it| format!("shares {it}")),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            format!("pod {}", parts.join(" "))
        }
        ResizeStep::Container { name, resources, .. } => format!(
            "{name} memory {} quota {} shares {}",
            resources.memory_limit >> 20,
            resources.cpu_quota,
            resources.cpu_shares
        ),
        ResizeStep::PodRecord(record) => {
            let limits = record.limits.clone().unwrap_or_default();
            let limit = |name: &str| limits.get(name).map_or("-", |it| it.0.as_str());
            format!("record cpu {} memory {}", limit("cpu"), limit("memory"))
        }
    };
    plan.steps.iter().map(brief).collect()
}

fn check(old: &Pod, new: &Pod, running: &str, expected: &[&str]) {
    let running: Vec<(String, ContainerId)> =
        running.split_whitespace().map(|name| (name.to_owned(), ContainerId::new(name))).collect();
    let plan = plan_resize(new, &PodResources::of(old), &running, &node());
    assert_eq!(told(&plan), expected);
}

/// Actuation: the pod cgroup is raised before and lowered after.
#[test]
fn the_pod_grows_before_its_containers_and_shrinks_after_them() {
    let small = sure(&[("a", "100m", "32Mi")]);
    let large = sure(&[("a", "200m", "64Mi")]);
    check(
        &small,
        &large,
        "a",
        &[
            "pod memory 64",
            "a memory 64 quota 10000 shares 102",
            "pod quota 20000",
            "pod shares 204",
            "a memory 64 quota 20000 shares 204",
        ],
    );
    check(
        &large,
        &small,
        "a",
        &[
            "a memory 32 quota 20000 shares 204",
            "pod memory 32",
            "a memory 32 quota 10000 shares 102",
            "pod shares 102",
            "pod quota 10000",
        ],
    );
}

/// Actuation: with memory that is reserved, protection is written where the limit is, and the
/// runtime knows it from the first step.
#[test]
fn protection_of_memory_goes_along_with_the_limit() {
    let mut node = node();
    node.cgroup_mode = CgroupMode::V2;
    node.cgroups.memory_qos = Some(MemoryQos {
        throttling_factor: None,
        is_reserving: true,
        allocatable: 8 << 30,
        page_size: 4096,
    });
    let old = sure(&[("a", "100m", "32Mi")]);
    let new = sure(&[("a", "200m", "64Mi")]);
    let running = [("a".to_owned(), ContainerId::new("a"))];
    let plan = plan_resize(&new, &PodResources::of(&old), &running, &node);
    let of_pod = plan.steps.iter().filter_map(|step| match step {
        ResizeStep::Pod { resource, cgroup, announced } => Some((
            *resource,
            cgroup.limits.memory_min.map(|it| it >> 20),
            announced.unified.get("memory.min").cloned(),
        )),
        ResizeStep::Container { .. } | ResizeStep::PodRecord(_) => None,
    });
    let announced = Some((64 << 20).to_string());
    let expected = [
        ("memory", Some(64), announced.clone()),
        ("cpu", None, announced.clone()),
        ("cpu", None, announced.clone()),
    ];
    assert_eq!(of_pod.collect::<Vec<_>>(), expected);
    let before = plan.announced_before.unified.get("memory.min").cloned();
    assert_eq!(before, announced);
}

/// Actuation: decreases before increases, memory before CPU.
#[test]
fn containers_that_shrink_make_room_first_and_each_resource_goes_its_own_way() {
    let old = sure(&[("a", "100m", "32Mi"), ("b", "100m", "32Mi")]);
    let new = sure(&[("a", "250m", "30Mi"), ("b", "50m", "64Mi")]);
    check(
        &old,
        &new,
        "a b",
        &[
            "pod memory 94",
            "a memory 30 quota 10000 shares 102",
            "b memory 64 quota 10000 shares 102",
            "pod quota 30000",
            "pod shares 307",
            "b memory 64 quota 5000 shares 51",
            "a memory 30 quota 25000 shares 256",
        ],
    );
}

#[test]
fn a_container_that_does_not_run_counts_for_the_pod_only() {
    let old = sure(&[("a", "100m", "32Mi"), ("b", "100m", "32Mi")]);
    let new = sure(&[("a", "100m", "64Mi"), ("b", "100m", "32Mi")]);
    check(&old, &new, "b", &["pod memory 96"]);
    check(&old, &old, "a b", &[]);
}

#[test]
fn resources_of_the_pod_itself_bound_containers_without_limits() {
    let with = |cpu: &str, memory: &str| {
        let both = json!({"cpu": cpu, "memory": memory});
        pod_json(json!({"metadata": {"uid": "u"}, "spec": {
            "resources": {"requests": both, "limits": both}, "containers": [{"name": "a"}]}}))
    };
    check(
        &with("100m", "32Mi"),
        &with("200m", "64Mi"),
        "a",
        &[
            "pod memory 64",
            "a memory 64 quota 10000 shares 102",
            "record cpu 100m memory 64Mi",
            "pod quota 20000",
            "pod shares 204",
            "a memory 64 quota 20000 shares 204",
            "record cpu 200m memory 64Mi",
        ],
    );
}

/// Actuation: the runtime is told the overhead apart from the rest.
#[test]
fn a_runtime_hears_of_a_pods_bounds_without_its_overhead() {
    let with = |cpu: &str, memory: &str| {
        let mut pod = sure(&[("a", cpu, memory)]);
        let overhead = json!({"cpu": "250m", "memory": "120Mi"});
        pod.spec.as_mut().unwrap().overhead = serde_json::from_value(overhead).unwrap();
        pod
    };
    let (small, large) = (with("1", "64Mi"), with("2", "128Mi"));
    let plan = plan_resize(&large, &PodResources::of(&small), &[], &node());
    let brief = |it: &LinuxResources| (it.memory_limit >> 20, it.cpu_quota, it.cpu_shares);
    assert_eq!(brief(&plan.announced_before), (64, 100_000, 1024));
    let told = plan.steps.iter().filter_map(|step| match step {
        ResizeStep::Pod { resource, announced, .. } => Some((*resource, brief(announced))),
        _ => None,
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("memory", (128, 100_000, 1024)),
            ("cpu", (128, 200_000, 1024)),
            ("cpu", (128, 200_000, 2048)),
        ]
    );
}

/// A memory limit below the usage.
#[test]
fn limits_below_what_may_be_in_use_are_named() {
    let (large, small) = (sure(&[("a", "1", "64Mi")]), sure(&[("a", "1", "32Mi")]));
    let running = [("a".to_owned(), ContainerId::new("a"))];
    let plan = plan_resize(&small, &PodResources::of(&large), &running, &node());
    assert_eq!(plan.pod_memory, Some(32 << 20));
    assert_eq!(plan.container_memory, [("a".to_owned(), ContainerId::new("a"), 32 << 20)]);
    let plan = plan_resize(&large, &PodResources::of(&small), &running, &node());
    assert_eq!((plan.pod_memory, plan.container_memory), (None, Vec::new()));
}

/// Actuation: `RestartContainer`.
#[test]
fn a_change_asks_for_a_restart_only_where_the_policy_does() {
    let with = |cpu: &str, memory: &str| {
        pod_json(json!({"spec": {"containers": [{"name": "a",
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"},
                             {"resourceName": "memory", "restartPolicy": "RestartContainer"}]}]}}))
    };
    let check = |new: &Pod, expected: Option<ResizeNeed>| {
        let needs = resize_needs(new, &PodResources::of(&with("100m", "32Mi")));
        assert_eq!(needs.containers.get("a").copied(), expected);
        assert_eq!(is_resizing(new, &needs, |_| true), expected.is_some());
        assert!(!is_resizing(new, &needs, |_| false));
    };
    check(&with("0.1", "32Mi"), None);
    check(&with("200m", "32Mi"), Some(ResizeNeed::Update));
    check(&with("100m", "33Mi"), Some(ResizeNeed::Restart));
}
