//! The engine's rules as tables, and the engine itself on fakes.

mod csi;
mod engine;
mod flex;
mod health;
mod provided;
mod rules;

use std::sync::Arc;

use ferrolet_resources::Amounts;
use ferrolet_types::{Pod, Quantity};
use serde_json::{Value, json};

/// A pod whose one container mounts every volume given, and more as the test says.
pub(crate) fn pod(volumes: Value, more: Value) -> Pod {
    let mounts: Vec<Value> = volumes
        .as_array()
        .into_iter()
        .flatten()
        .map(|volume| json!({"name": volume["name"], "mountPath": format!("/m/{}", volume["name"].as_str().unwrap())}))
        .collect();
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "uid-1",
            "labels": {"a": "b", "k": "say \"hi\""}, "annotations": {"n": "1\n2"}},
        "spec": {"serviceAccountName": "account", "volumes": volumes,
            "containers": [{"name": "c", "volumeMounts": mounts}]},
    });
    merge(&mut pod, more);
    Arc::new(serde_json::from_value(pod).unwrap())
}

pub(super) fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(more)) => {
            for (into, more) in into.iter_mut().zip(more) {
                merge(into, more);
            }
        }
        (into, more) => *into = more,
    }
}

pub(crate) fn allocatable() -> Amounts {
    let amounts = [("cpu", "2"), ("memory", "4Gi"), ("ephemeral-storage", "10Gi")];
    let amounts = amounts.iter();
    amounts.map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).unwrap())).collect()
}
