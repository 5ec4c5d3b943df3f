//! Pods for tests, built from few words.

use ferrolet_lab::image::BUSYBOX;
use serde_json::{Value, json};

/// A pod with these containers. It stops quickly, because shells as first process ignore the polite
/// signal.
pub(crate) fn pod(name: &str, containers: &[Value]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": { "containers": containers, "terminationGracePeriodSeconds": 1 },
    })
}

/// A container that runs a shell script.
pub(crate) fn script(name: &str, text: &str) -> Value {
    json!({
        "name": name,
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", text],
    })
}

/// A container that stays.
pub(crate) fn sleeper(name: &str) -> Value {
    script(name, "exec sleep 100000")
}

/// A value with fields laid over it, as deep as `change` goes.
pub(crate) fn with(mut base: Value, change: Value) -> Value {
    merge(&mut base, change);
    base
}

fn merge(base: &mut Value, change: Value) {
    match (base, change) {
        (Value::Object(base), Value::Object(change)) => {
            for (key, value) in change {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, change) => *base = change,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_laid_over_without_losing_their_neighbours() {
        let base = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        let changed = with(base, json!({"a": {"c": 3, "e": 4}, "d": [2]}));
        assert_eq!(changed, json!({"a": {"b": 1, "c": 3, "e": 4}, "d": [2]}));
    }
}
