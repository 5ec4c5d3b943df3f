//! Rules about exit codes, and pods that start anew in place.

use super::*;

/// A container whose exit with 42 starts every container of the pod anew.
fn resets(name: &str) -> Container {
    let rule = k8s_openapi::api::core::v1::ContainerRestartRule {
        action: "RestartAllContainers".to_owned(),
        exit_codes: Some(k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes {
            operator: "In".to_owned(),
            values: Some(vec![42]),
        }),
    };
    Container {
        restart_policy: Some("Never".to_owned()),
        restart_policy_rules: Some(vec![rule]),
        ..container(name)
    }
}

/// Everything is removed without grace, the containers that asked for it last; sandbox,
/// volumes and logs stay.
#[test]
fn a_pod_that_starts_anew_in_place_is_cleared_of_containers_first() {
    let all =
        pod("Never", vec![container("i"), sidecar("s")], vec![container("c"), resets("source")]);
    let mut scene = Scene::new(all).with(vec![
        seen_container("source", 0, exited(42, NOW - 20, NOW - 10)),
        seen_container("c", 0, running()),
        seen_container("s", 0, running()),
        seen_container("i", 0, exited(0, NOW - 40, NOW - 30)),
    ]);
    scene.is_restarting_all = true;
    assert_eq!(
        scene.plan(),
        "stop c-0 0s AllRestart; remove c-0; stop s-0 0s AllRestart; remove i-0, remove s-0; remove source-0"
    );
    scene.seen.containers.clear();
    scene.is_restarting_all = false;
    assert_eq!(scene.plan(), "start i");
}

/// No back-off holds a reset up, but one that is asked for at once is done when the
/// container would be a second old.
#[test]
fn a_pod_that_always_starts_anew_does_so_once_a_second() {
    let check = |started: i64, finished: i64, plan: &str, wake: Option<i64>| {
        let all = pod("Never", vec![], vec![resets("source")]);
        let dead = seen_container("source", 3, exited(42, started, finished));
        let mut scene = Scene::new(all).with(vec![dead]);
        scene.is_restarting_all = true;
        assert_eq!(scene.plan(), plan, "{started} to {finished}");
        assert_eq!(scene.step().wake_at, wake.map(at), "{started} to {finished}");
    };
    check(NOW, NOW, "", Some(NOW + 1));
    check(NOW - 1, NOW, "remove source-3", None);
    check(NOW - 90, NOW, "remove source-3", None);
}
