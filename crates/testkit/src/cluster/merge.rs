//! Strategic merge, well enough for pods and nodes: the lists that the API merges by key,
//! directives, nulls.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Lists that are merged, with the key of their elements; all others are replaced.
const MERGED: [(&str, &str); 5] = [
    ("conditions", "type"),
    ("addresses", "type"),
    ("hostIPs", "ip"),
    ("podIPs", "ip"),
    ("ownerReferences", "uid"),
];
const ORDER: &str = "$setElementOrder/";

/// The object with the patch applied.
pub(super) fn apply<T: Serialize + DeserializeOwned>(
    object: &T,
    patch: &Value,
) -> Result<T, String> {
    let object = serde_json::to_value(object).map_err(|error| error.to_string())?;
    let (Value::Object(mut object), Value::Object(patch)) = (object, patch) else {
        return Err("a patch is an object".to_owned());
    };
    merge(&mut object, patch);
    serde_json::from_value(Value::Object(object)).map_err(|error| error.to_string())
}

fn merge(object: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let merged = MERGED.iter().find(|(field, _)| field == name);
        match (value, merged) {
            (Value::Null, _) => {
                object.remove(name);
            }
            (Value::Object(patch), _) => {
                let inner = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(inner) = inner {
                    merge(inner, patch);
                }
            }
            (Value::Array(changes), Some((_, key))) => {
                let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    merge_list(list, changes, key);
                }
            }
            _ => {
                object.insert(name.clone(), value.clone());
            }
        }
    }
    for (name, order) in patch {
        let Some(field) = name.strip_prefix(ORDER) else {
            continue;
        };
        let key = MERGED.iter().find(|(merged, _)| *merged == field);
        if let (Some((_, key)), Value::Array(order), Some(Value::Array(list))) =
            (key, order, object.get_mut(field))
        {
            let place = |element: &Value| order.iter().position(|it| it[*key] == element[*key]);
            list.sort_by_key(|element| place(element).unwrap_or(usize::MAX));
        }
    }
}

fn merge_list(list: &mut Vec<Value>, changes: &[Value], key: &str) {
    if changes.iter().any(|change| change["$patch"] == "replace") {
        list.clear();
        let kept = changes.iter().filter(|change| change["$patch"].is_null());
        list.extend(kept.cloned());
        return;
    }
    for change in changes {
        let found = list.iter().position(|element| element[key] == change[key]);
        match (found, change) {
            (Some(index), _) if change["$patch"] == "delete" => {
                list.remove(index);
            }
            (Some(index), Value::Object(change)) => {
                if let Value::Object(element) = &mut list[index] {
                    merge(element, change);
                }
            }
            (None, _) if change["$patch"].is_null() => list.push(change.clone()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_merge_lists_by_key_and_replace_the_rest() {
        let check = |object: Value, patch: Value, expected: Value| {
            assert_eq!(apply(&object, &patch), Ok(expected), "{patch}");
        };
        let list = json!({ "conditions": [{ "type": "A", "status": "x" }, { "type": "B" }], "names": [1, 2] });
        check(
            list.clone(),
            json!({ "names": [3] }),
            json!({ "conditions": [{ "type": "A", "status": "x" }, { "type": "B" }], "names": [3] }),
        );
        check(
            list.clone(),
            json!({ "names": null, "conditions": [{ "type": "A", "status": "y" }] }),
            json!({ "conditions": [{ "type": "A", "status": "y" }, { "type": "B" }] }),
        );
        check(
            list.clone(),
            json!({ "names": null, "conditions": [{ "type": "C" }, { "type": "A", "$patch": "delete" }],
                "$setElementOrder/conditions": [{ "type": "C" }, { "type": "B" }] }),
            json!({ "conditions": [{ "type": "C" }, { "type": "B" }] }),
        );
        check(
            list,
            json!({ "names": null, "conditions": [{ "type": "Z" }, { "$patch": "replace" }] }),
            json!({ "conditions": [{ "type": "Z" }] }),
        );
        check(
            json!({ "a": { "b": 1, "c": 2 } }),
            json!({ "a": { "b": null, "d": 3 } }),
            json!({ "a": { "c": 2, "d": 3 } }),
        );
    }
}
