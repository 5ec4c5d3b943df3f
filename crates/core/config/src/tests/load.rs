//! Layers: which one wins, what merges, what is remarked on.

use serde_json::json;

use super::{HEAD, command_line, file, load_file, load_flags};
use crate::{NamedText, effective_json, load};

fn dropin(name: &str, fields: &str) -> NamedText {
    NamedText { name: format!("/etc/kubelet/conf.d/{name}"), text: format!("{HEAD}{fields}\n") }
}

#[test]
fn flags_win_over_dropins_and_dropins_over_the_file() {
    let flags = command_line(&["--max-pods=4", "--feature-gates=EventedPLEG=true"]);
    let main = file(
        "maxPods: 1\nport: 1111\npodsPerCore: 1\nfeatureGates: {EventedPLEG: false, ContainerStopSignals: true}",
    );
    let dropins = [
        dropin("10.conf", "maxPods: 2\nport: 2222\npodsPerCore: 2"),
        dropin("20.conf", "port: 3333"),
    ];
    let loaded = load(&flags, Some(main), &dropins).unwrap();
    for (path, expected) in [
        ("maxPods", json!(4)),
        ("port", json!(3333)),
        ("podsPerCore", json!(2)),
        ("syncFrequency", json!("1m0s")),
        ("featureGates", json!({"EventedPLEG": true, "ContainerStopSignals": true})),
    ] {
        assert_eq!(loaded.raw.get(path), Some(&expected), "{path}");
    }
    assert!(loaded.config.gates.enabled("EventedPLEG"));
}

#[test]
fn a_dropin_is_a_merge_patch() {
    let main = file(
        "clusterDNS: [10.0.0.1, 10.0.0.2]\nsystemReserved: {cpu: 100m, memory: 1Gi}\nmaxPods: 5\n\
         authentication: {anonymous: {enabled: true}}",
    );
    let patch = dropin(
        "a.conf",
        "clusterDNS: [10.0.0.9]\nsystemReserved: {cpu: 200m, memory: null}\nmaxPods: null\n\
         authentication: {webhook: {cacheTTL: 1s}}\nstaticPodPath: relative",
    );
    let loaded = load(&command_line(&[]), Some(main), &[patch]).unwrap();
    for (path, expected) in [
        ("clusterDNS", json!(["10.0.0.9"])),
        ("systemReserved", json!({"cpu": "200m"})),
        ("maxPods", json!(110)),
        ("authentication.anonymous.enabled", json!(true)),
        ("authentication.webhook.cacheTTL", json!("1s")),
        ("staticPodPath", json!("relative")),
    ] {
        assert_eq!(loaded.raw.get(path), Some(&expected), "{path}");
    }
}

#[test]
fn dropins_work_without_a_file_and_then_keep_the_legacy_defaults() {
    let flags = command_line(&["--address=127.0.0.1"]);
    let loaded = load(&flags, None, &[dropin("a.conf", "maxPods: 7")]).unwrap();
    assert_eq!(loaded.config.node.max_pods, 7);
    assert_eq!(loaded.config.server.read_only_port, Some(10255));
}

#[test]
fn faults_of_all_texts_are_reported_together() {
    let bad =
        NamedText { name: "/etc/kubelet/conf.d/b.conf".to_owned(), text: "maxPods: 1".to_owned() };
    let error =
        load(&command_line(&[]), Some(file("maxPod: 1")), &[dropin("a.conf", "prt: 1"), bad])
            .unwrap_err();
    let origins: Vec<_> = error.faults.iter().filter_map(|fault| fault.origin.as_deref()).collect();
    assert_eq!(
        origins,
        [
            "/etc/kubelet/config.yaml",
            "/etc/kubelet/conf.d/a.conf",
            "/etc/kubelet/conf.d/b.conf",
            "/etc/kubelet/conf.d/b.conf",
        ]
    );
    assert!(
        error.to_string().starts_with(
            "invalid configuration, 4 faults:\n  /etc/kubelet/config.yaml: maxPod = 1"
        )
    );
}

#[test]
fn a_broken_rule_names_the_text_that_set_the_field() {
    let main =
        file("port: -1\nmaxPods: -1\nevictionHard: {memory.available: '0'}\nfeatureGates: {}");
    let error =
        load(&command_line(&[]), Some(main), &[dropin("a.conf", "maxPods: -2")]).unwrap_err();
    let found: Vec<String> = error.faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "/etc/kubelet/config.yaml: port = -1: must be between 1 and 65535",
            "/etc/kubelet/conf.d/a.conf: maxPods = -2: must not be negative",
            "/etc/kubelet/config.yaml: evictionHard.memory.available = 0: must be more than zero",
        ]
    );
}

#[test]
fn a_fault_in_a_flags_value_is_the_command_lines() {
    let error = load_flags(&["--port=0"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid configuration: command line: port = 0: must be between 1 and 65535"
    );
}

#[test]
fn each_field_that_can_do_nothing_is_told_with_the_reason() {
    let loaded = load_file(
        "maxPods: 9\niptablesDropBit: 3\nport: 10250\nlogging: {vmodule: [{filePattern: a, verbosity: 3}]}",
    )
    .unwrap();
    assert_eq!(
        loaded.warnings,
        [
            "iptablesDropBit has no effect: nothing is marked by it any more; upstream's kubelet only checks the number"
        ]
    );
    assert_eq!(load_file("iptablesDropBit: 15").unwrap().warnings, [""; 0]);
    assert_eq!(load_file("maxPods: 9").unwrap().warnings, [""; 0]);
}

#[test]
fn deprecations_are_remarked_on_once() {
    let loaded = load_flags(&[
        "--max-pods=9",
        "--container-runtime-endpoint=/run/c.sock",
        "--cluster-dns=10.0.0.1,nonsense",
        "--feature-gates=NodeSwap=true",
    ])
    .unwrap();
    assert_eq!(
        loaded.warnings,
        [
            "deprecated flags, better set in the file given by --config: --feature-gates, --max-pods, \
             --container-runtime-endpoint, --address, --cluster-dns",
            "clusterDNS = nonsense: is not an IP address and is ignored",
            "containerRuntimeEndpoint = /run/c.sock: an endpoint without a scheme is deprecated, write unix:///run/c.sock",
            "feature gate NodeSwap is settled (GA) and will disappear; stop setting it",
        ]
    );
    assert_eq!(loaded.config.runtime.endpoint.to_string(), "unix:///run/c.sock");
}

#[test]
fn headers_are_masked_wherever_they_could_be_seen() {
    let loaded = load_file("staticPodURLHeader: {Authorization: [Bearer abc]}").unwrap();
    assert_eq!(loaded.config.sources.static_pod_url_header["Authorization"], ["Bearer abc"]);
    assert_eq!(
        effective_json(&loaded.raw)["staticPodURLHeader"],
        json!({"Authorization": ["<masked>"]})
    );
    assert!(!format!("{:?}", loaded.config).contains("abc"));
}
