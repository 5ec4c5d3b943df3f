//! The difference between two nodes as a patch of the status: labels, annotations and what changed
//! in the status. Pure.

use ferrolet_status::plan_difference;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use serde_json::{Map, Value, json};

/// Plans the patch that leads from `old` to `new`; `None` when there is nothing to say. The
/// specification is not compared.
pub fn plan_node_patch(old: &Node, new: &Node) -> Option<Value> {
    let metadata = |node: &Node| {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let annotations = node.metadata.annotations.clone().unwrap_or_default();
        as_map(json!({ "labels": labels, "annotations": annotations }))
    };
    let mut patch = Map::new();
    let difference = plan_difference(metadata(old), metadata(new), &[]);
    if !difference.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(difference));
    }
    let empty = NodeStatus::default();
    let status = |node: &Node| {
        let status = node.status.as_ref().unwrap_or(&empty);
        as_map(serde_json::to_value(status).unwrap_or_default())
    };
    let (mut old, mut new) = (status(old), status(new));
    // The API merges addresses by type, which two addresses of one type do not survive: they are
    // replaced as a whole.
    let (was, is) = (old.remove("addresses"), new.remove("addresses"));
    let mut difference = plan_difference(old, new, &[("conditions", "type")]);
    if was != is {
        let list = is.and_then(|list| list.as_array().cloned());
        let mut list = list.unwrap_or_default();
        if was.is_some() {
            list.push(json!({ "$patch": "replace" }));
        }
        difference.insert("addresses".to_owned(), Value::Array(list));
    }
    if !difference.is_empty() {
        patch.insert("status".to_owned(), Value::Object(difference));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn as_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
