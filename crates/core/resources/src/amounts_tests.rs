use serde_json::json;

use super::*;
use crate::tests_pods::pod_json;

fn text(amounts: &Amounts) -> String {
    let parts: Vec<String> =
        amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
    parts.join(" ")
}

fn check(spec: serde_json::Value, requests: &str, limits: &str) {
    let pod = pod_json(json!({ "spec": spec }));
    assert_eq!(text(&pod_requests(&pod, Overhead::Included)), requests);
    assert_eq!(text(&pod_limits(&pod, Overhead::Included)), limits);
}

#[test]
fn regular_containers_and_sidecars_add_up_and_init_containers_set_a_floor() {
    let asks =
        |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let sidecar = |name: &str, cpu: &str| json!({"name": name, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
    check(json!({"containers": [asks("a", "100m"), asks("b", "200m")]}), "cpu=300m", "");
    check(
        json!({"initContainers": [asks("i", "1"), asks("j", "2")], "containers": [asks("a", "100m")]}),
        "cpu=2",
        "",
    );
    check(
        json!({"initContainers": [sidecar("s", "500m"), asks("i", "1")], "containers": [asks("a", "100m")]}),
        "cpu=1500m",
        "",
    );
    check(
        json!({"initContainers": [asks("i", "1"), sidecar("s", "500m")], "containers": [asks("a", "700m")]}),
        "cpu=1200m",
        "",
    );
}

#[test]
fn a_missing_request_is_the_limit() {
    check(
        json!({"containers": [
            {"name": "a", "resources": {"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "100m"}}},
            {"name": "b", "resources": {"limits": {"memory": "64Mi"}}}]}),
        "cpu=100m memory=128Mi",
        "cpu=1 memory=128Mi",
    );
}

#[test]
fn pod_level_values_replace_the_sums_and_overhead_comes_on_top() {
    check(
        json!({"resources": {"requests": {"cpu": "2", "example.com/x": "1"}, "limits": {"memory": "1Gi"}},
            "overhead": {"cpu": "250m", "memory": "16Mi"},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "10Mi"}}}]}),
        "cpu=2250m memory=26Mi",
        "memory=1040Mi",
    );
}
