//! Who dies first when memory runs out: the OOM killer's adjustment of each container.

use ferrolet_types::{
    Qos,
    pod::{PodView as _, is_sidecar},
};
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{
    amount, amounts::containers_total, amounts::pod_level, container_requests,
    has_pod_level_requests, parse_amounts, pod_qos,
};

const GUARANTEED: i64 = -997;
const BEST_EFFORT: i64 = 1000;
/// A guaranteed pod that uses all memory scores 3; burstable pods stay above it.
const LOWEST_BURSTABLE: i64 = 1000 + GUARANTEED;
const NODE_CRITICAL: &str = "system-node-critical";

/// The adjustment for a container's processes, from -997 (last) to 1000 (first).
///
/// Burstable containers are protected in proportion to what they ask for. A sidecar is never killed
/// before the regular container that asks for least. What a pod-level request leaves unassigned is
/// shared evenly by all containers.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: i64) -> i64 {
    if is_node_critical(pod) {
        return GUARANTEED;
    }
    match pod_qos(pod) {
        Qos::Guaranteed => return GUARANTEED,
        Qos::BestEffort => return BEST_EFFORT,
        Qos::Burstable => {}
    }
    let capacity = memory_capacity.max(1);
    let share = unassigned_share(pod);
    let score = |request: i64| {
        let taken = i128::from(request.saturating_add(share)) * 1000 / i128::from(capacity);
        1000 - i64::try_from(taken).unwrap_or(i64::MAX)
    };
    let mut adjustment = score(memory_request(container));
    if is_sidecar_of(pod, container) {
        let least = pod.spec_ref().containers.iter().map(memory_request).min();
        adjustment = adjustment.min(score(least.unwrap_or(0)));
    }
    adjustment.clamp(LOWEST_BURSTABLE, BEST_EFFORT - 1)
}

fn is_node_critical(pod: &Pod) -> bool {
    pod.is_critical() && pod.spec_ref().priority_class_name.as_deref() == Some(NODE_CRITICAL)
}

fn is_sidecar_of(pod: &Pod, container: &Container) -> bool {
    let mut init = pod.spec_ref().init_containers.iter().flatten();
    is_sidecar(container) && init.any(|other| other.name == container.name)
}

fn memory_request(container: &Container) -> i64 {
    amount(&container_requests(container), "memory").value()
}

fn unassigned_share(pod: &Pod) -> i64 {
    if !has_pod_level_requests(pod) {
        return 0;
    }
    let own = pod_level(pod).and_then(|resources| resources.requests.as_ref());
    let own = amount(&parse_amounts(own), "memory").value();
    let assigned = amount(&containers_total(pod, container_requests), "memory").value();
    let spec = pod.spec_ref();
    let n_containers = spec.containers.len() + spec.init_containers.iter().flatten().count();
    let n_containers = i64::try_from(n_containers).unwrap_or(i64::MAX).max(1);
    (own - assigned).max(0) / n_containers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_pods::{container, pod, pod_json};

    const GIB: i64 = 1 << 30;

    fn check(pod: &Pod, name: &str, expected: i64) {
        let spec = pod.spec_ref();
        let found = spec
            .init_containers
            .iter()
            .flatten()
            .chain(&spec.containers)
            .find(|c| c.name == name)
            .unwrap();
        assert_eq!(oom_score_adj(pod, found, 8 * GIB), expected, "{name}");
    }

    #[test]
    fn the_class_and_the_request_decide_the_score() {
        let both = [("cpu", "1"), ("memory", "1Gi")];
        check(&pod([container("c", &both, &both)]), "c", -997);
        check(&pod([container("c", &[], &[])]), "c", 1000);
        check(&pod([container("c", &[("cpu", "1")], &[])]), "c", 999);
        check(&pod([container("c", &[("memory", "2Gi")], &[])]), "c", 750);
        check(&pod([container("c", &[("memory", "8Gi")], &[])]), "c", 3);
        check(&pod([container("c", &[("memory", "1Ti")], &[])]), "c", 3);
        check(&pod([container("c", &[("memory", "1Mi")], &[])]), "c", 999);
    }

    #[test]
    fn only_node_critical_pods_are_spared_whatever_they_ask_for() {
        let critical = |class: &str, priority: i32| {
            pod_json(serde_json::json!({"spec": {
                "priority": priority, "priorityClassName": class, "containers": [{"name": "c"}]}}))
        };
        check(&critical("system-node-critical", 2_000_001_000), "c", -997);
        check(&critical("system-cluster-critical", 2_000_000_000), "c", 1000);
        check(&critical("system-node-critical", 5), "c", 1000);
    }

    #[test]
    fn a_sidecar_outlives_the_regular_container_that_asks_for_least() {
        let with_sidecar = |sidecar: &str| {
            pod_json(serde_json::json!({"spec": {
                "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"memory": sidecar}}}],
                "containers": [
                    {"name": "a", "resources": {"requests": {"memory": "2Gi"}}},
                    {"name": "b", "resources": {"requests": {"memory": "1Gi"}}}]}}))
        };
        check(&with_sidecar("1Mi"), "s", 875);
        check(&with_sidecar("4Gi"), "s", 500);
        check(&with_sidecar("1Mi"), "b", 875);
    }

    #[test]
    fn what_the_pod_asks_for_beyond_its_containers_is_shared_evenly() {
        let shared = pod_json(serde_json::json!({"spec": {
            "resources": {"requests": {"memory": "4Gi"}},
            "containers": [
                {"name": "a", "resources": {"requests": {"memory": "2Gi"}}},
                {"name": "b"}]}}));
        check(&shared, "a", 625);
        check(&shared, "b", 875);
    }
}
