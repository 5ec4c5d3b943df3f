use std::{fs, path::PathBuf};

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::*;
use crate::{
    defaults,
    manifest::{Expect, decode},
    read,
};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn defaulted(name: &str) -> Pod {
    let bytes = fs::read(golden(name)).unwrap();
    let mut pods = decode(&bytes, Expect::OnePod).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut pod = pods.remove(0);
    defaults::apply(&mut pod);
    pod
}

fn vectors() -> Vec<(String, String, String)> {
    let text = fs::read_to_string(golden("uids.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].to_owned(), words[1].to_owned(), words[2].to_owned())
        })
        .collect()
}

#[test]
fn static_pods_have_upstreams_uid() {
    let vectors = vectors();
    assert!(vectors.len() >= 15);
    let mut wrong = Vec::new();
    for (name, from_file, from_url) in vectors {
        let pod = defaulted(&name);
        let path = format!("/etc/kubernetes/manifests/{name}");
        if uid(&pod, "Node-A", Origin::File(&path)) != from_file {
            wrong.push(format!("{name} from a file"));
        }
        let url = format!("http://example.invalid/{name}");
        if uid(&pod, "Node-A", Origin::Url(&url)) != from_url {
            wrong.push(format!("{name} from a URL"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Absent, null, empty list and empty object mean the same in what the API writes.
fn without_empties(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().map(|(name, field)| (name.clone(), without_empties(field)));
            Value::Object(kept.filter(|(_, field)| !is_empty(field)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_empties).collect()),
        other => other.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[test]
fn a_manifest_becomes_the_pod_that_upstream_makes_of_it() {
    let mut n_compared = 0;
    for (name, _, _) in vectors() {
        let stem = name.rsplit_once('.').unwrap().0;
        let Ok(expected) = fs::read_to_string(golden(&format!("expected/{stem}.json"))) else {
            continue;
        };
        let bytes = fs::read(golden(&name)).unwrap();
        let path = format!("/etc/kubernetes/manifests/{name}");
        let reading =
            read(&bytes, Origin::File(&path), "node-a").unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut pod = (*reading.pods[0].pod).clone();
        let uid = pod.metadata.uid.take().unwrap();
        let hash = pod.metadata.annotations.as_mut().unwrap().remove(HASH_ANNOTATION);
        assert_eq!(hash, Some(uid), "{name}");
        let mut found = serde_json::to_value(&pod).unwrap();
        found.as_object_mut().unwrap().retain(|field, _| field != "kind" && field != "apiVersion");
        let expected: Value = serde_json::from_str(&expected).unwrap();
        assert_eq!(without_empties(&found), without_empties(&expected), "{name}");
        n_compared += 1;
    }
    assert!(n_compared >= 15, "{n_compared}");
}

#[test]
fn a_uid_in_the_manifest_is_kept() {
    let mut pod = defaulted("01-minimal.yaml");
    pod.metadata.uid = Some("mine".to_owned());
    assign(&mut pod, "Node-A", Origin::File("/x"));
    assert_eq!(pod.metadata.uid.as_deref(), Some("mine"));
    assert_eq!(pod.metadata.name.as_deref(), Some("minimal-node-a"));
    assert_eq!(pod.metadata.annotations.unwrap()[HASH_ANNOTATION], "mine");
}

#[test]
fn pods_of_a_url_get_no_toleration() {
    let mut pod = defaulted("01-minimal.yaml");
    assign(&mut pod, "n", Origin::Url("http://x/"));
    assert_eq!(pod.spec.unwrap().tolerations, None);
}
