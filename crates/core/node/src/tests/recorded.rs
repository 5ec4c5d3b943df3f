//! Upstream's node as recorded in a real cluster: the same facts must give the same object.

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use super::{facts, heartbeat, settings};
use crate::new_node;

fn recorded() -> Node {
    let text = include_str!("../../tests/golden/node-object.json");
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_new_node_is_what_upstream_registers_and_reports() {
    let mut made = serde_json::to_value(new_node(&settings(), &facts(), heartbeat()).node).unwrap();
    let mut expected = serde_json::to_value(recorded()).unwrap();
    // What the API and its controllers add.
    for field in ["creationTimestamp", "resourceVersion", "uid"] {
        expected["metadata"].as_object_mut().unwrap().remove(field);
    }
    let annotations = expected["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.remove("node.alpha.kubernetes.io/ttl");
    expected.as_object_mut().unwrap().remove("spec");
    // The recording's conditions changed when the node was made, half an hour before its last
    // heartbeat.
    let conditions = expected["status"]["conditions"].as_array_mut().unwrap();
    for condition in conditions {
        condition["lastTransitionTime"] = condition["lastHeartbeatTime"].clone();
    }
    for part in ["metadata", "status"] {
        let (made, expected) = (made[part].take(), expected[part].take());
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(made[name], *value, "{part}.{name}");
        }
        let names =
            |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
        assert_eq!(names(&made), names(&expected), "{part}");
    }
}
