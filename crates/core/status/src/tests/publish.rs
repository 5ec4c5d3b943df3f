//! The rules of bringing a status to the API: merge, legality, equality, patch.

use ferrolet_types::{PodUid, Timestamp};
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, json};

use super::support::{World, exited, running, said};
use crate::{RunningContainers, check_transition, is_same_for_kubelet, merge_for_api, plan_patch};

const NOW: i64 = 500;

fn status(value: Value) -> PodStatus {
    serde_json::from_value(value).unwrap()
}

fn merge(api: Value, computed: Value, running: RunningContainers) -> PodStatus {
    let mut world = World::of_one("Always");
    world.pod.status = Some(status(api));
    merge_for_api(&world.pod, status(computed), running, Timestamp::from_second(NOW))
}

fn condition(kind: &str, value: &str) -> Value {
    json!({ "type": kind, "status": value, "lastTransitionTime": "1970-01-01T00:00:01Z" })
}

/// Merging with the API's status.
#[test]
fn what_others_wrote_stays_and_what_is_ours_is_replaced() {
    let merged = merge(
        json!({
            "phase": "Running",
            "conditions": [condition("x/y", "True"), condition("Ready", "True")],
            "resourceClaimStatuses": [{ "name": "claim" }],
        }),
        json!({
            "phase": "Running",
            "conditions": [condition("x/y", "False"), condition("Ready", "False")],
        }),
        RunningContainers::Possible,
    );
    assert_eq!(said(&merged, "x/y"), "True", "an old copy does not win");
    assert_eq!(said(&merged, "Ready"), "False");
    assert_eq!(merged.conditions.as_ref().unwrap().len(), 2);
    assert_eq!(merged.resource_claim_statuses.unwrap()[0].name, "claim");
}

/// No terminal phase while containers may run.
#[test]
fn the_end_of_a_pod_is_withheld_while_it_may_run() {
    let check = |api: &str, running: RunningContainers, phase: &str, reason: Option<&str>| {
        let merged = merge(
            json!({ "phase": api }),
            json!({
                "phase": "Failed",
                "reason": "Evicted",
                "conditions": [condition("DisruptionTarget", "True")],
            }),
            running,
        );
        assert_eq!(merged.phase.as_deref(), Some(phase), "{api} {running:?}");
        assert_eq!(merged.reason.as_deref(), reason, "{api} {running:?}");
        let is_told = api == "Running" && running == RunningContainers::Gone;
        let disruption = said(&merged, "DisruptionTarget");
        assert_eq!(disruption, if is_told { "True" } else { "absent" });
        let list = merged.conditions.into_iter().flatten();
        for condition in list {
            let time = condition.last_transition_time.unwrap().0;
            assert_eq!(time.as_second(), NOW, "it waited for the end");
        }
    };
    check("Running", RunningContainers::Possible, "Running", None);
    check("Running", RunningContainers::Gone, "Failed", Some("Evicted"));
    check("Failed", RunningContainers::Possible, "Failed", Some("Evicted"));
}

/// A pod that ended is not ready.
#[test]
fn no_pod_is_over_and_ready() {
    let merged = merge(
        json!({ "phase": "Running", "conditions": [condition("Ready", "True")] }),
        json!({
            "phase": "Succeeded",
            "conditions": [condition("Ready", "True"), condition("ContainersReady", "True")],
        }),
        RunningContainers::Gone,
    );
    assert_eq!(said(&merged, "Ready"), "False PodCompleted");
    assert_eq!(said(&merged, "ContainersReady"), "False PodCompleted");
}

/// Illegal transitions.
#[test]
fn a_container_that_ended_for_good_does_not_come_back() {
    let check = |policy: &str, code: i32, is_legal: bool| {
        let world = World::of_one(policy);
        let old = World::of_one(policy).seeing(vec![exited("c", 0, code)]).status();
        let new = World::of_one(policy).seeing(vec![running("c", 1)]).status();
        let verdict = check_transition(&world.pod, &old, &new);
        assert_eq!(verdict.is_ok(), is_legal, "{policy} {code}");
        assert!(check_transition(&world.pod, &new, &old).is_ok());
        assert!(check_transition(&world.pod, &old, &old).is_ok());
    };
    check("Always", 0, true);
    check("OnFailure", 1, true);
    check("OnFailure", 0, false);
    check("Never", 1, false);
    let world = World::of_one("Never").seeing(vec![exited("c", 0, 1)]);
    let anew = World::of_one("Never").seeing(vec![running("c", 1)]).status();
    let error = check_transition(&world.pod, &world.status(), &anew).unwrap_err();
    assert_eq!(
        error.to_string(),
        "container c ended for good and cannot leave its terminated state"
    );
}

/// When a status is sent.
#[test]
fn only_what_is_ours_makes_a_status_different() {
    let base = json!({ "phase": "Running", "conditions": [condition("Ready", "True")] });
    let check = |change: Value, is_same: bool| {
        let mut changed = base.clone();
        let fields = change.as_object().unwrap().clone();
        changed.as_object_mut().unwrap().extend(fields);
        let found = is_same_for_kubelet(&status(base.clone()), &status(changed));
        assert_eq!(found, is_same, "{change}");
    };
    let later =
        json!({ "type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:09Z" });
    check(json!({}), true);
    check(json!({ "conditions": [later] }), true);
    check(json!({ "conditions": [condition("Ready", "True"), condition("x/y", "True")] }), true);
    check(json!({ "resourceClaimStatuses": [{ "name": "c" }] }), true);
    check(json!({ "conditions": [condition("Ready", "False")] }), false);
    check(json!({ "conditions": [] }), false);
    check(json!({ "podIP": "10.0.0.1" }), false);
}

/// The patch.
#[test]
fn a_patch_carries_only_what_changed() {
    let check = |old: Value, new: Value, expected: Option<Value>| {
        let patch = plan_patch(&PodUid::new("u"), &status(old), &status(new));
        let expected =
            expected.map(|status| json!({ "metadata": { "uid": "u" }, "status": status }));
        assert_eq!(patch, expected);
    };
    let (ready, unready) = (condition("Ready", "True"), condition("Ready", "False"));
    let other = condition("x/y", "True");
    check(json!({ "phase": "Running" }), json!({ "phase": "Running" }), None);
    check(
        json!({ "phase": "Pending", "reason": "Why" }),
        json!({ "phase": "Running" }),
        Some(json!({ "phase": "Running", "reason": null })),
    );
    check(
        json!({ "conditions": [other, ready] }),
        json!({ "conditions": [other, unready] }),
        Some(json!({
            "$setElementOrder/conditions": [{ "type": "x/y" }, { "type": "Ready" }],
            "conditions": [{ "type": "Ready", "status": "False" }],
        })),
    );
    check(
        json!({ "conditions": [other, ready] }),
        json!({ "conditions": [ready] }),
        Some(json!({
            "$setElementOrder/conditions": [{ "type": "Ready" }],
            "conditions": [{ "$patch": "delete", "type": "x/y" }],
        })),
    );
    check(
        json!({ "podIPs": [{ "ip": "a" }, { "ip": "b" }] }),
        json!({ "podIPs": [{ "ip": "b" }, { "ip": "a" }] }),
        Some(json!({ "$setElementOrder/podIPs": [{ "ip": "b" }, { "ip": "a" }] })),
    );
    check(
        json!({ "allocatedResources": { "cpu": "1", "memory": "1Gi" } }),
        json!({ "allocatedResources": { "cpu": "2" } }),
        Some(json!({ "allocatedResources": { "cpu": "2", "memory": null } })),
    );
    let container = |ready: bool| json!({ "name": "c", "image": "", "imageID": "", "ready": ready, "restartCount": 0 });
    check(
        json!({ "containerStatuses": [container(false)] }),
        json!({ "containerStatuses": [container(true)] }),
        Some(json!({ "containerStatuses": [container(true)] })),
    );
}
