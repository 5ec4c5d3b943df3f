//! The difference of two statuses as a strategic merge patch: only what changed travels.
//!
//! Owned by the reporter. In: the API's status and the merged one. Out: a patch of the status
//! subresource that names the pod's UID, so that it cannot hit a pod that took the name since; or
//! nothing.
//!
//! Lists that the API merges by a key (conditions by type, addresses by ip) carry their changed
//! elements, deletions and the wanted order; all other lists travel whole.

use ferrolet_types::PodUid;
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Map, Value, json};

/// Fields whose lists the API merges, with the key of their elements.
const MERGED: [(&str, &str); 3] = [("conditions", "type"), ("hostIPs", "ip"), ("podIPs", "ip")];

/// Plans the patch that leads from `old` to `new`; `None` when there is nothing to say.
pub fn plan_patch(uid: &PodUid, old: &PodStatus, new: &PodStatus) -> Option<Value> {
    let as_map = |status: &PodStatus| match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        Ok(_) | Err(_) => Map::new(),
    };
    let patch = plan_difference(as_map(old), as_map(new), &MERGED);
    (!patch.is_empty()).then(|| json!({ "metadata": { "uid": uid.as_str() }, "status": patch }))
}

/// Plans the strategic merge patch between two objects; `merged` names the lists that the API
/// merges and the key of their elements. Empty when there is nothing to say.
pub fn plan_difference(
    mut old: Map<String, Value>,
    mut new: Map<String, Value>,
    merged: &[(&str, &str)],
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (field, key) in merged {
        let (old, new) = (old.remove(*field), new.remove(*field));
        if old != new {
            list_difference(&mut patch, field, key, items(old), items(new));
        }
    }
    patch.append(&mut difference(&old, &new));
    patch
}

/// Changed and new entries with their values, vanished ones as null; maps are merged entry by
/// entry.
fn difference(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (name, value) in new {
        match (old.get(name), value) {
            (Some(before), after) if before == after => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(name.clone(), Value::Object(difference(before, after)));
            }
            (_, after) => {
                patch.insert(name.clone(), after.clone());
            }
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    patch
}

fn list_difference(
    patch: &mut Map<String, Value>,
    field: &str,
    key: &str,
    old: Vec<Map<String, Value>>,
    new: Vec<Map<String, Value>>,
) {
    let mut changes = Vec::new();
    for element in &new {
        let change = match old.iter().find(|before| before.get(key) == element.get(key)) {
            Some(before) => difference(before, element),
            None => element.clone(),
        };
        if !change.is_empty() {
            changes.push(keyed(change, key, element));
        }
    }
    for element in &old {
        if new.iter().all(|after| after.get(key) != element.get(key)) {
            let deletion = Map::from_iter([("$patch".to_owned(), json!("delete"))]);
            changes.push(keyed(deletion, key, element));
        }
    }
    let order = new.iter().map(|element| keyed(Map::new(), key, element));
    let order: Vec<Value> = order.collect();
    patch.insert(format!("$setElementOrder/{field}"), Value::Array(order));
    if !changes.is_empty() {
        patch.insert(field.to_owned(), Value::Array(changes));
    }
}

/// The map with the key that names the element.
fn keyed(mut map: Map<String, Value>, key: &str, element: &Map<String, Value>) -> Value {
    let name = element.get(key).cloned().unwrap_or_default();
    map.insert(key.to_owned(), name);
    Value::Object(map)
}

fn items(list: Option<Value>) -> Vec<Map<String, Value>> {
    let Some(Value::Array(list)) = list else {
        return Vec::new();
    };
    let maps = list.iter().filter_map(Value::as_object);
    maps.cloned().collect()
}
