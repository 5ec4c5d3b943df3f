//! Defaults against the specification's table and against what an upstream kubelet answered at
//! `/configz`.

use serde_json::{Value, json};

use super::{load_file, load_flags};
use crate::{RawConfig, duration, effective_json, is_known_field, schema::FIELDS};

const TABLE: &str = include_str!("../../tests/golden/defaults.tsv");
const CONFIGZ: &str = include_str!("../../tests/golden/configz.json");

#[test]
fn every_field_has_the_default_of_the_specification() {
    let defaults = RawConfig::defaults();
    for line in TABLE.lines() {
        let (path, expected) = line.split_once('\t').expect("two columns");
        assert!(is_known_field(path), "{path} is not in the schema");
        let found = defaults.get(path);
        let as_expected = match (expected, found) {
            ("-", found) => found.is_none(),
            ("(object)", found) => found.is_some_and(Value::is_object),
            (_, Some(Value::String(text))) => {
                text == expected
                    || duration::parse(text)
                        .is_some_and(|nanos| Some(nanos) == duration::parse(expected))
            }
            (_, Some(Value::Array(items))) => items == &[json!(expected)],
            (_, Some(value)) => expected == format!("{value}"),
            (_, None) => false,
        };
        assert!(as_expected, "{path}: expected {expected}, found {found:?}");
    }
}

#[test]
fn the_schema_has_exactly_the_specifications_fields() {
    let listed =
        TABLE.lines().filter(|line| !line.split('\t').next().unwrap().contains('.')).count();
    assert_eq!(listed, 126);
    assert_eq!(FIELDS.len(), 126);
}

#[test]
fn the_effective_configuration_is_what_upstream_serves() {
    let loaded = load_file(
        "tlsCertFile: /etc/lab/pki/node.crt\n\
         tlsPrivateKeyFile: /etc/lab/pki/node.key\n\
         authentication: {x509: {clientCAFile: /etc/lab/pki/ca.crt}}\n\
         clusterDomain: cluster.local\n\
         clusterDNS: [10.96.0.10]\n\
         imageGCHighThresholdPercent: 99\n\
         imageGCLowThresholdPercent: 98\n\
         maxPods: 500\n\
         evictionHard: {imagefs.available: 1%, memory.available: 100Mi, nodefs.available: 1%}\n\
         failSwapOn: false\n\
         failCgroupV1: false\n\
         containerRuntimeEndpoint: unix:///run/private-containerd/containerd.sock",
    )
    .unwrap();
    let recorded: Value = serde_json::from_str(CONFIGZ).unwrap();
    assert_eq!(effective_json(&loaded.raw), recorded["kubeletconfig"]);
}

#[test]
fn some_defaults_depend_on_other_fields() {
    for (fields, path, expected) in [
        ("nodeStatusUpdateFrequency: 4s", "nodeStatusReportFrequency", json!("4s")),
        ("nodeStatusReportFrequency: 7s", "nodeStatusReportFrequency", json!("7s")),
        ("maxParallelImagePulls: 1", "serializeImagePulls", json!(true)),
        ("maxParallelImagePulls: 2", "serializeImagePulls", json!(false)),
        ("podPidsLimit: -7", "podPidsLimit", json!(-1)),
        ("syncFrequency: 0s", "syncFrequency", json!("1m0s")),
        ("maxPods: 0", "maxPods", json!(110)),
        ("healthzPort: 0", "healthzPort", json!(0)),
        ("eventRecordQPS: 0", "eventRecordQPS", json!(0)),
        ("enforceNodeAllocatable: []", "enforceNodeAllocatable", json!([])),
        ("maxPods: null", "maxPods", json!(110)),
        (
            "evictionHard: {memory.available: 1Gi}",
            "evictionHard",
            json!({"memory.available": "1Gi"}),
        ),
        ("evictionHard: {}", "evictionHard", json!({})),
        (
            "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true",
            "evictionHard",
            json!({
                "memory.available": "1Gi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
                "imagefs.available": "15%", "imagefs.inodesFree": "5%",
            }),
        ),
    ] {
        let loaded = load_file(fields).unwrap_or_else(|error| panic!("{fields}: {error}"));
        // Dots inside a map's keys are not part of the path.
        assert_eq!(loaded.raw.get(path), Some(&expected), "{fields}");
    }
    let plain = load_file("").unwrap();
    assert_eq!(
        plain.raw.get("evictionHard").and_then(Value::as_object).map(serde_json::Map::len),
        Some(5)
    );
}

#[test]
fn gates_decide_about_two_defaults() {
    let off =
        "featureGates: {KubeletCrashLoopBackOffMax: false, KubeletEnsureSecretPulledImages: false}";
    let loaded = load_file(off).unwrap();
    assert_eq!(loaded.raw.get("crashLoopBackOff.maxContainerRestartPeriod"), None);
    assert_eq!(loaded.raw.get("imagePullCredentialsVerificationPolicy"), None);
    assert_eq!(loaded.config.runtime.max_restart_back_off.as_secs(), 300);
    load_flags(&["--feature-gates=KubeletCrashLoopBackOffMax=false"]).unwrap();
}

/// Crash-loop back-off: its first and its longest wait.
#[test]
fn the_waits_of_a_crash_loop_follow_two_gates_and_a_field() {
    let reduced = "ReduceDefaultCrashLoopBackOffDecay: true";
    let no_field = "KubeletCrashLoopBackOffMax: false";
    for (text, first, longest) in [
        (String::new(), 10, 300),
        (format!("featureGates: {{{reduced}}}"), 1, 300),
        (format!("featureGates: {{{reduced}, {no_field}}}"), 1, 60),
        ("crashLoopBackOff: {maxContainerRestartPeriod: 4s}".to_owned(), 4, 4),
        (
            format!(
                "crashLoopBackOff: {{maxContainerRestartPeriod: 4s}}\nfeatureGates: {{{reduced}}}"
            ),
            1,
            4,
        ),
    ] {
        let runtime = load_file(&text).unwrap().config.runtime;
        let waits =
            (runtime.first_restart_back_off.as_secs(), runtime.max_restart_back_off.as_secs());
        assert_eq!(waits, (first, longest), "{text}");
    }
}

#[test]
fn without_a_file_the_old_permissive_defaults_hold() {
    let (with, without) = (load_file("").unwrap(), load_flags(&[]).unwrap());
    for (path, in_file, in_flags) in [
        ("authentication.anonymous.enabled", json!(false), json!(true)),
        ("authentication.webhook.enabled", json!(true), json!(false)),
        ("authorization.mode", json!("Webhook"), json!("AlwaysAllow")),
    ] {
        assert_eq!(with.raw.get(path), Some(&in_file), "{path}");
        assert_eq!(without.raw.get(path), Some(&in_flags), "{path}");
    }
    assert_eq!(with.config.server.read_only_port, None);
    assert_eq!(without.config.server.read_only_port, Some(10255));
    assert!(without.raw.get("evictionHard").is_none());
}
