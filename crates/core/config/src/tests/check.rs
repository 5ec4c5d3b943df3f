//! What `config check` and `config show` have to say, and in which line.

use super::{HEAD, command_line, file};
use crate::{NamedText, check, load, shown_fields};

fn found(main: &str, dropin: Option<&str>) -> Vec<String> {
    let dropins: Vec<NamedText> = dropin
        .map(|fields| NamedText {
            name: "/etc/kubelet/conf.d/a.conf".to_owned(),
            text: format!("{HEAD}{fields}\n"),
        })
        .into_iter()
        .collect();
    let findings = check(&command_line(&[]), Some(file(main)), &dropins);
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn faults_are_told_with_file_line_and_nearest_name() {
    assert_eq!(
        found(
            "maxPod: 5\nport: 10250\nport: 10250\nauthentication:\n  webhook: {cacheTTL: soon}",
            None
        ),
        [
            "/etc/kubelet/config.yaml:3: error: maxPod = 5: unknown field; did you mean \"maxPods\"?",
            "/etc/kubelet/config.yaml:5: error: port: this field is given twice",
            "/etc/kubelet/config.yaml:7: error: authentication.webhook.cacheTTL = \"soon\": expected a duration such as \"1m30s\", found a text",
        ]
    );
    assert_eq!(
        found("maxPod: 1\nport: -1", None),
        [
            "/etc/kubelet/config.yaml:3: error: maxPod = 1: unknown field; did you mean \"maxPods\"?",
            "/etc/kubelet/config.yaml:4: error: port = -1: must be between 1 and 65535",
        ],
        "a word that is not understood hides no other fault"
    );
    assert_eq!(
        found("port: 1\nmaxPods: 1", Some("maxPods: -2\nevictionHard:\n  memory.available: '0'")),
        [
            "/etc/kubelet/conf.d/a.conf:3: error: maxPods = -2: must not be negative",
            "/etc/kubelet/conf.d/a.conf:4: error: evictionHard.memory.available = 0: must be more than zero",
        ]
    );
}

#[test]
fn what_would_only_be_remarked_on_is_a_warning() {
    assert_eq!(
        found("enableContentionProfiling: true", None),
        [
            "warning: enableContentionProfiling has no effect: profiles of lock contention are a facility of Go's own runtime"
        ]
    );
    assert_eq!(found("maxPods: 9", None), [""; 0]);
}

#[test]
fn each_value_says_where_it_comes_from() {
    let flags = command_line(&["--max-pods=4"]);
    let main = file("port: 1111\nstaticPodURLHeader: {Authorization: [Bearer abc]}");
    let loaded = load(&flags, Some(main), &[]).unwrap();
    let lines: Vec<String> = shown_fields(&loaded).iter().map(ToString::to_string).collect();
    for expected in [
        "maxPods = 4  # command line",
        "port = 1111  # /etc/kubelet/config.yaml:3",
        "syncFrequency = \"1m0s\"  # default",
        "staticPodURLHeader = {\"Authorization\":[\"<masked>\"]}  # /etc/kubelet/config.yaml:4",
        "authentication.webhook.cacheTTL = \"2m0s\"  # default",
    ] {
        let is_there = lines.iter().any(|line| line == expected);
        assert!(is_there, "{expected} is missing from {lines:#?}");
    }
}
