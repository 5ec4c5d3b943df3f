//! What travels when the node differs from the API's copy.

use ferrolet_node::{NodeFacts, NodeSettings, adopt_node, new_node};
use ferrolet_types::Timestamp;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::json;

use super::super::plan_node_patch;

fn heartbeat() -> Timestamp {
    Timestamp("2026-11-15T20:58:19Z".parse().unwrap())
}

fn settings() -> NodeSettings {
    NodeSettings::example()
}

fn facts() -> NodeFacts {
    NodeFacts::example()
}

#[test]
fn the_same_facts_ask_for_nothing_but_a_heartbeat() {
    let registered = new_node(&settings(), &facts(), heartbeat()).node;
    let later = heartbeat().after(std::time::Duration::from_secs(300));
    let updated = adopt_node(&settings(), &facts(), &registered, later).node;
    let patch = plan_node_patch(&registered, &updated).unwrap();
    let beat = |kind: &str| json!({ "lastHeartbeatTime": "2026-11-15T21:03:19Z", "type": kind });
    let kinds = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
    let expected = json!({ "status": {
        "$setElementOrder/conditions": kinds.map(|kind| json!({ "type": kind })),
        "conditions": kinds.map(beat),
    }});
    assert_eq!(patch, expected);
    let mut same = updated.clone();
    for condition in same.status.iter_mut().flat_map(|it| it.conditions.iter_mut().flatten()) {
        condition.last_heartbeat_time = Some(Time(heartbeat().0));
    }
    assert_eq!(plan_node_patch(&registered, &same), None);
}

#[test]
fn a_patch_replaces_addresses_merges_conditions_and_names_only_changes() {
    let node = |edit: &dyn Fn(&mut Node)| {
        let mut node = new_node(&settings(), &facts(), heartbeat()).node;
        edit(&mut node);
        node
    };
    let check = |edit: &dyn Fn(&mut Node), expected: serde_json::Value| {
        assert_eq!(plan_node_patch(&node(&|_| {}), &node(edit)).unwrap_or_default(), expected);
    };
    check(&|_| {}, json!(null));
    check(
        &|it| it.status.as_mut().unwrap().addresses.as_mut().unwrap().truncate(1),
        json!({ "status": { "addresses": [{ "address": "10.87.0.1", "type": "InternalIP" }, { "$patch": "replace" }] } }),
    );
    check(
        &|it| {
            it.metadata.labels.as_mut().unwrap().remove("kubernetes.io/os");
            it.metadata.annotations = None;
        },
        json!({ "metadata": {
            "labels": { "kubernetes.io/os": null },
            "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": null },
        } }),
    );
    check(
        &|it| it.status.as_mut().unwrap().node_info.as_mut().unwrap().boot_id = "next".to_owned(),
        json!({ "status": { "nodeInfo": { "bootID": "next" } } }),
    );
    check(
        &|it| it.status.as_mut().unwrap().declared_features = None,
        json!({ "status": { "declaredFeatures": null } }),
    );
    check(&|it| it.spec.get_or_insert_default().unschedulable = Some(true), json!(null));
}
