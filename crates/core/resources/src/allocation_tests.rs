use serde_json::{Value, json};

use super::*;
use crate::tests_pods::{container, pod, pod_json};
use crate::{CgroupMode, CgroupPolicy, SwapPolicy};

fn node() -> NodeResources {
    NodeResources {
        cgroup_mode: CgroupMode::V1,
        cgroups: CgroupPolicy::default(),
        memory_capacity: 8 << 30,
        swap: SwapPolicy { is_controlled: true, behavior: SwapBehavior::NoSwap, capacity: 0 },
        huge_page_sizes: Vec::new(),
        single_process_oom_kill: true,
    }
}

/// The stored allocation replaces the specification.
#[test]
fn a_specification_gives_way_to_what_was_granted() {
    let small = pod([container("a", &[("cpu", "100m")], &[]), container("b", &[], &[])]);
    let large = pod([container("a", &[("cpu", "0.2")], &[]), container("b", &[], &[])]);
    let granted = PodResources::of(&small);
    let laid_over = with_resources(&large, &granted).unwrap();
    assert!(PodResources::of(&laid_over).is_same(&granted));
    assert_eq!(with_resources(&small, &granted), None);
    let spelled = pod([container("a", &[("cpu", "0.1")], &[]), container("b", &[], &[])]);
    assert_eq!(with_resources(&spelled, &granted), None, "0.1 is 100m");
    let stranger = PodResources::default();
    assert_eq!(
        with_resources(&large, &stranger),
        None,
        "a container without a record keeps its own"
    );
}

/// Pending queue: what increases requests.
#[test]
fn only_more_cpu_or_memory_makes_a_resize_grow() {
    let of =
        |cpu: &str, memory: &str| pod([container("a", &[("cpu", cpu), ("memory", memory)], &[])]);
    let check = |new: &Pod, expected: bool| {
        assert_eq!(is_growing(&of("100m", "64Mi"), new), expected, "{new:?}");
    };
    check(&of("100m", "64Mi"), false);
    check(&of("50m", "64Mi"), false);
    check(&of("101m", "1Mi"), true);
    check(&of("1m", "65Mi"), true);
}

/// Infeasible causes.
#[test]
fn what_this_node_can_never_resize_is_infeasible() {
    let check = |old: &Pod, new: &Pod, rules: ResizeRules<'_>, expected: &str| {
        let told = check_resize(new, old, &rules).err();
        let said = told.map(|why| {
            let shown = Rejection::from(why);
            assert_eq!(shown.reason, Rejection::INFEASIBLE);
            format!("{}: {}", why.detail(), shown.message)
        });
        assert_eq!(said.unwrap_or_default(), expected);
    };
    let plain = node();
    let rules = ResizeRules { node: &plain, has_static_cpus: false, has_static_memory: false };
    let burst = |memory: &str| pod([container("a", &[("memory", memory)], &[])]);
    check(&burst("1Mi"), &burst("2Mi"), rules, "");
    let mut swapping = node();
    swapping.swap.behavior = SwapBehavior::LimitedSwap;
    let swap_rules = ResizeRules { node: &swapping, ..rules };
    check(
        &burst("1Mi"),
        &burst("2Mi"),
        swap_rules,
        "swap_limitation: In-place resize of containers with swap is not supported.",
    );
    let restarting = |memory: &str| {
        pod_json(
            json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"memory": memory}},
            "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}]}}),
        )
    };
    check(&restarting("1Mi"), &restarting("2Mi"), swap_rules, "");
    let sure = |cpu: &str, memory: &str| {
        let both = [("cpu", cpu), ("memory", memory)];
        pod([container("a", &both, &both)])
    };
    check(&sure("1", "1Mi"), &sure("1", "2Mi"), swap_rules, "");
    let fixed = ResizeRules { has_static_cpus: true, has_static_memory: true, ..rules };
    check(
        &sure("1", "1Mi"),
        &sure("2", "1Mi"),
        fixed,
        "guaranteed_pod_cpu_manager_static_policy: Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"",
    );
    check(
        &sure("1", "1Mi"),
        &sure("1", "2Mi"),
        fixed,
        "guaranteed_pod_memory_manager_static_policy: Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"",
    );
    check(&burst("1Mi"), &burst("2Mi"), fixed, "");
    let with_tmpfs = |size: &str| {
        pod_json(json!({"spec": {"containers": [], "volumes": [
            {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]}}))
    };
    check(
        &with_tmpfs("1Mi"),
        &with_tmpfs("2Mi"),
        rules,
        "memory_volume_resize_gate_off: Memory-backed emptyDir volume resize is disabled",
    );
}

/// The actuated copy: a container without a limit is bounded by its pod's, and the record
/// says so, as upstream's does.
#[test]
fn what_a_container_starts_with_includes_its_pods_limits() {
    let check = |pods: Value, own: Value, expected: Value| {
        let pod = pod_json(
            json!({"spec": {"resources": pods, "containers": [{"name": "a", "resources": own}]}}),
        );
        let container = &pod.spec_ref().containers[0];
        let found = serde_json::to_value(started_with(&pod, container)).unwrap();
        assert_eq!(found, expected);
    };
    let both = json!({"limits": {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi"}});
    check(json!({}), json!({}), json!({}));
    check(json!({"requests": {"cpu": "1"}}), json!({}), json!({}));
    check(both.clone(), json!({}), json!({"limits": {"cpu": "2", "memory": "1Gi"}}));
    check(
        both,
        json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}}),
        json!({"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "500m"}}),
    );
}
