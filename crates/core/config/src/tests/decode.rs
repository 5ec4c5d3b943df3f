//! What a file may look like: strictness, messages, paths, both notations.

use super::{HEAD, file};
use crate::{NamedText, RawConfig};

/// Every message that the file's text gives rise to.
fn faults(text: &str) -> Vec<String> {
    let text = NamedText { name: "/etc/k.yaml".to_owned(), text: text.to_owned() };
    let faults = RawConfig::decode(&text).expect_err("the text has a fault");
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn faults_name_file_field_and_value() {
    for (fields, expected) in [
        ("maxPod: 5", "/etc/k.yaml: maxPod = 5: unknown field; did you mean \"maxPods\"?"),
        ("zebra: 5", "/etc/k.yaml: zebra = 5: unknown field"),
        (
            "authentication: {webhok: {}}",
            "/etc/k.yaml: authentication.webhok = {}: unknown field; did you mean \"webhook\"?",
        ),
        (
            "maxPods: many",
            "/etc/k.yaml: maxPods = \"many\": expected a whole number of 32 bits, found a text",
        ),
        (
            "maxPods: 1.5",
            "/etc/k.yaml: maxPods = 1.5: expected a whole number of 32 bits, found a number",
        ),
        (
            "maxPods: 3000000000",
            "/etc/k.yaml: maxPods = 3000000000: expected a whole number of 32 bits, found a number",
        ),
        (
            "syncFrequency: 5",
            "/etc/k.yaml: syncFrequency = 5: expected a duration such as \"1m30s\", found a number",
        ),
        (
            "syncFrequency: soon",
            "/etc/k.yaml: syncFrequency = \"soon\": expected a duration such as \"1m30s\", found a text",
        ),
        (
            "enableServer: 1",
            "/etc/k.yaml: enableServer = 1: expected true or false, found a number",
        ),
        (
            "clusterDomain: 7",
            "/etc/k.yaml: clusterDomain = 7: expected a text, found a number; put it in quotes",
        ),
        (
            "systemReserved: {cpu: 1}",
            "/etc/k.yaml: systemReserved.cpu = 1: expected a text, found a number; put it in quotes",
        ),
        (
            "clusterDNS: 10.0.0.1",
            "/etc/k.yaml: clusterDNS = \"10.0.0.1\": expected a list, found a text",
        ),
        ("clusterDNS: [[]]", "/etc/k.yaml: clusterDNS[0] = []: expected a text, found a list"),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: lots}}]",
            "/etc/k.yaml: reservedMemory[0].limits.memory = \"lots\": expected a quantity such as \"64Mi\", found a text",
        ),
        ("maxPods: 1\nmaxPods: 2", "/etc/k.yaml: maxPods: this field is given twice"),
        (
            "logging: {verbosity: 1, verbosity: 2}",
            "/etc/k.yaml: logging.verbosity: this field is given twice",
        ),
        (
            "staticPodURLHeader: {Authorization: secret}",
            "/etc/k.yaml: staticPodURLHeader.Authorization = <masked>: expected a list, found a text",
        ),
    ] {
        assert_eq!(faults(&format!("{HEAD}{fields}\n")), [expected], "{fields}");
    }
}

#[test]
fn what_is_no_configuration_at_all_is_refused() {
    for (text, expected) in [
        ("", "the file is empty"),
        (" \n\n", "the file is empty"),
        ("[]", "expected a KubeletConfiguration object, found a list"),
        (
            "kind: KubeletConfiguration",
            "apiVersion: is missing, must be kubelet.config.k8s.io/v1beta1",
        ),
        (
            "kind: Pod\napiVersion: kubelet.config.k8s.io/v1beta1",
            "kind = \"Pod\": must be KubeletConfiguration",
        ),
        (
            "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1",
            "apiVersion = \"kubelet.config.k8s.io/v1\": must be kubelet.config.k8s.io/v1beta1",
        ),
    ] {
        assert_eq!(faults(text), [format!("/etc/k.yaml: {expected}")], "{text}");
    }
    for text in ["a: [", "{\"a\": ", "\u{0}\u{1}", "a: b: c"] {
        let found = faults(text);
        assert_eq!(found.len(), 1, "{text}");
        assert!(found[0].starts_with("/etc/k.yaml: "), "{found:?}");
    }
}

#[test]
fn all_faults_are_found_at_once() {
    assert_eq!(faults("kind: Pod\nmaxPod: 1\nport: x\nmaxPods: 1\nmaxPods: 2\n").len(), 5);
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        let aliases = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{aliases}]\n"));
    }
    assert_eq!(faults(&bomb).len(), 1);
}

#[test]
fn json_and_yaml_say_the_same() {
    let json = NamedText {
        name: "/etc/kubelet/config.json".to_owned(),
        text: r#"{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                  "syncFrequency": "90s", "logging": {"flushFrequency": 5000000000, "verbosity": 3}}"#
            .to_owned(),
    };
    let yaml = file("syncFrequency: 1m30s\nlogging:\n  flushFrequency: 5s\n  verbosity: 3");
    assert_eq!(RawConfig::decode(&json), RawConfig::decode(&yaml));
}

#[test]
fn relative_paths_are_meant_from_the_files_directory() {
    let raw = RawConfig::decode(&file(
        "staticPodPath: manifests\nresolvConf: ../resolv.conf\ntlsCertFile: /abs/x.crt\nvolumePluginDir: ''\n\
         podLogsDir: ./logs/\nauthentication: {x509: {clientCAFile: pki/ca.crt}}\nclusterDomain: not/a/path",
    ))
    .unwrap();
    for (path, expected) in [
        ("staticPodPath", "/etc/kubelet/manifests"),
        ("resolvConf", "/etc/resolv.conf"),
        ("tlsCertFile", "/abs/x.crt"),
        ("volumePluginDir", ""),
        ("podLogsDir", "/etc/kubelet/logs"),
        ("authentication.x509.clientCAFile", "/etc/kubelet/pki/ca.crt"),
        ("clusterDomain", "not/a/path"),
    ] {
        assert_eq!(raw.get(path).and_then(|value| value.as_str()), Some(expected), "{path}");
    }
}
