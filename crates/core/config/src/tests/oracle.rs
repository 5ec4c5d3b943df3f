//! Thousands of random configurations against what upstream's own decoder, defaults and validation
//! made of them: `tests/oracle/config/gen.py` says how they were recorded.

use serde_json::{Map, Value};

use super::command_line;
use crate::{FieldError, LoadError, NamedText, load};

const RECORDED: &str = include_str!("../../../../../tests/oracle/recorded/config-validate.jsonl");

/// Fields whose values upstream looks at only later in its start, where it refuses what is refused
/// here at once, with all other faults.
const CHECKED_LATER: &[&str] = &[
    "evictionMinimumReclaim",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "kubeReserved",
    "reservedSystemCPUs",
    "systemReserved",
    "tlsCipherSuites",
    "tlsMinVersion",
];

/// What the record cannot say: upstream's program knows its release and the JSON format of its log,
/// and resolves paths before it judges them; the recorded functions do none of it.
fn is_beyond_the_record(given: &Map<String, Value>) -> bool {
    let is_relative = |value: &Value| value.as_str().is_some_and(|path| !path.starts_with('/'));
    given.contains_key("showHiddenMetricsForVersion")
        || given.get("podLogsDir").is_some_and(is_relative)
        || given.get("logging").is_some_and(|logging| logging["format"] == "json")
}

/// The configuration with these fields, as the record was made.
fn text(fields: &Map<String, Value>) -> NamedText {
    let mut object = fields.clone();
    object.insert("apiVersion".to_owned(), "kubelet.config.k8s.io/v1beta1".into());
    object.insert("kind".to_owned(), "KubeletConfiguration".into());
    object.insert("failCgroupV1".to_owned(), false.into());
    NamedText { name: "/config.json".to_owned(), text: Value::Object(object).to_string() }
}

/// The effective configuration; the thresholds that are filled in while a file is read are not part
/// of the record.
fn effective(fields: &Map<String, Value>) -> Result<Map<String, Value>, LoadError> {
    let json = load(&command_line(&[]), Some(text(fields)), &[])?.raw.to_json();
    let mut object = json.as_object().cloned().unwrap_or_default();
    object.remove("evictionHard");
    Ok(object)
}

#[test]
fn random_configurations_are_judged_and_completed_as_upstream_does() {
    let empty = effective(&Map::new()).unwrap();
    let (mut n_lines, mut faults) = (0, Vec::new());
    for line in RECORDED.lines() {
        n_lines += 1;
        let (given, accepted, differs): (Map<String, Value>, bool, Map<String, Value>) =
            serde_json::from_str(line).unwrap();
        if is_beyond_the_record(&given) {
            continue;
        }
        let is_later = |fault: &FieldError| {
            let field = fault.path.split('.').next().unwrap_or_default();
            CHECKED_LATER.contains(&field)
        };
        match (accepted, effective(&given)) {
            (true, Err(error)) if error.faults.iter().all(is_later) => {}
            (true, Err(error)) => faults.push(format!("upstream takes {line}\n  ours: {error}")),
            (false, Ok(_)) => faults.push(format!("upstream refuses {line}")),
            (false, Err(_)) => {}
            (true, Ok(ours)) => {
                let names: std::collections::BTreeSet<&String> =
                    ours.keys().chain(empty.keys()).collect();
                let found: Map<String, Value> = names
                    .into_iter()
                    .filter(|name| ours.get(*name) != empty.get(*name))
                    .map(|name| (name.clone(), ours.get(name).cloned().unwrap_or_default()))
                    .collect();
                if found != differs {
                    let found = Value::Object(found);
                    faults.push(format!("upstream: {line}\n  ours: {found}"));
                }
            }
        }
    }
    assert!(n_lines > 2000, "{n_lines}");
    let n_faults = faults.len();
    faults.truncate(40);
    assert!(faults.is_empty(), "{n_faults} of {n_lines}:\n{}", faults.join("\n"));
}
