//! Labels and annotations of sandboxes and containers: the half of our state that the runtime
//! keeps.
//!
//! Names and formats are upstream's, since a node may be handed from one kubelet to the other with
//! containers running.

use std::collections::BTreeMap;

use ferrolet_types::pod::PodView as _;
use k8s_openapi::{
    api::core::v1::{Container, ContainerPort, HTTPGetAction, LifecycleHandler, Pod},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{
    gojson::{json_array, json_object, json_string},
    hash::container_hash_text,
};

/// Label: the pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label: the pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label: the pod's UID.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label: the container's name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Annotation: the specification's hash, hexadecimal.
pub const HASH: &str = "io.kubernetes.container.hash";
/// Annotation: the restart count.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation: where the container writes its last words.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Annotation: whether logs may stand in for last words.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Annotation: the preStop hook as JSON.
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// Annotation: the ports as JSON.
pub const PORTS: &str = "io.kubernetes.container.ports";
/// Annotation: the grace of the pod's deletion in seconds.
pub const DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
/// Annotation: the grace of the pod's specification in seconds.
pub const TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotation of our own: failures in a row before this start.
pub const CRASH_STREAK: &str = "ferrolet.dev/crash-streak";

const DEFAULT_MESSAGE_PATH: &str = "/dev/termination-log";
const DEFAULT_MESSAGE_POLICY: &str = "File";

/// Labels of a pod's sandbox: the pod's own and its identity.
pub fn sandbox_labels(pod: &Pod) -> BTreeMap<String, String> {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(identity(pod));
    labels
}

/// Annotations of a pod's sandbox: the pod's own.
pub fn sandbox_annotations(pod: &Pod) -> BTreeMap<String, String> {
    pod.metadata.annotations.clone().unwrap_or_default()
}

/// Labels of a container.
pub fn container_labels(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<_, _> = identity(pod).into();
    labels.insert(CONTAINER_NAME.to_owned(), container.name.clone());
    labels
}

/// Annotations of a container, laid over those that plugins ask for.
pub fn container_annotations(
    pod: &Pod,
    container: &Container,
    restart_count: u32,
    crash_streak: u32,
    plugins: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut annotations = plugins.clone();
    let mut set = |name: &str, value: String| annotations.insert(name.to_owned(), value);
    set(HASH, container_hash_text(container));
    set(RESTART_COUNT, restart_count.to_string());
    set(TERMINATION_MESSAGE_PATH, termination_message_path(container).to_owned());
    let policy = non_empty(container.termination_message_policy.as_deref());
    set(TERMINATION_MESSAGE_POLICY, policy.unwrap_or(DEFAULT_MESSAGE_POLICY).to_owned());
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        set(DELETION_GRACE_PERIOD, seconds.to_string());
    }
    if let Some(seconds) = pod.spec_ref().termination_grace_period_seconds {
        set(TERMINATION_GRACE_PERIOD, seconds.to_string());
    }
    let pre_stop = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref());
    if let Some(handler) = pre_stop {
        set(PRE_STOP_HANDLER, handler_json(handler));
    }
    if let Some(ports) = container.ports.as_ref().filter(|ports| !ports.is_empty()) {
        set(PORTS, json_array(ports.iter().map(port_json)));
    }
    // Without it the restart count stands in, so a restart that begins no streak has to say so.
    if crash_streak > 0 || restart_count > 0 {
        set(CRASH_STREAK, crash_streak.to_string());
    }
    annotations
}

/// Where the container writes its last words; the API's default when it does not say.
pub fn termination_message_path(container: &Container) -> &str {
    non_empty(container.termination_message_path.as_deref()).unwrap_or(DEFAULT_MESSAGE_PATH)
}

/// A pod as upstream's messages name it: `name_namespace(uid)`.
pub(crate) fn describe(pod: &Pod) -> String {
    let key = pod.key();
    format!("{}_{}({})", key.name, key.namespace, pod.uid())
}

fn identity(pod: &Pod) -> [(String, String); 3] {
    let key = pod.key();
    [
        (POD_NAME.to_owned(), key.name.to_string()),
        (POD_NAMESPACE.to_owned(), key.namespace.to_string()),
        (POD_UID.to_owned(), pod.uid().as_str().to_owned()),
    ]
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn text_json(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(|text| json_string(text))
}

fn port_json(port: &ContainerPort) -> String {
    let host_port = port.host_port.filter(|port| *port != 0);
    json_object([
        ("name", text_json(port.name.as_ref())),
        ("hostPort", host_port.map(|port| port.to_string())),
        ("containerPort", Some(port.container_port.to_string())),
        ("protocol", text_json(port.protocol.as_ref())),
        ("hostIP", text_json(port.host_ip.as_ref())),
    ])
}

fn handler_json(handler: &LifecycleHandler) -> String {
    let exec = handler.exec.as_ref().map(|exec| {
        let command = exec.command.as_ref().filter(|command| !command.is_empty());
        let words = command.map(|words| json_array(words.iter().map(|word| json_string(word))));
        json_object([("command", words)])
    });
    let tcp = handler.tcp_socket.as_ref().map(|tcp| {
        json_object([
            ("port", Some(int_or_string_json(&tcp.port))),
            ("host", text_json(tcp.host.as_ref())),
        ])
    });
    let sleep = handler
        .sleep
        .as_ref()
        .map(|sleep| json_object([("seconds", Some(sleep.seconds.to_string()))]));
    json_object([
        ("exec", exec),
        ("httpGet", handler.http_get.as_ref().map(http_json)),
        ("tcpSocket", tcp),
        ("sleep", sleep),
    ])
}

fn http_json(http: &HTTPGetAction) -> String {
    let headers = http.http_headers.as_ref().filter(|list| !list.is_empty());
    let headers = headers.map(|list| {
        json_array(list.iter().map(|header| {
            json_object([
                ("name", Some(json_string(&header.name))),
                ("value", Some(json_string(&header.value))),
            ])
        }))
    });
    json_object([
        ("path", text_json(http.path.as_ref())),
        ("port", Some(int_or_string_json(&http.port))),
        ("host", text_json(http.host.as_ref())),
        ("scheme", text_json(http.scheme.as_ref())),
        ("httpHeaders", headers),
        ("protocol", text_json(http.protocol.as_ref())),
    ])
}

fn int_or_string_json(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => json_string(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn annotations(container: serde_json::Value, streak: u32) -> BTreeMap<String, String> {
        let container = serde_json::from_value(container).unwrap();
        let plugins = BTreeMap::from([
            ("vendor/x".to_owned(), "1".to_owned()),
            (HASH.to_owned(), "taken".to_owned()),
        ]);
        container_annotations(&Pod::default(), &container, 3, streak, &plugins)
    }

    #[test]
    fn defaults_stand_in_for_what_the_manifest_leaves_out() {
        let found = annotations(json!({"name": "c", "image": "i"}), 0);
        let expected = BTreeMap::from(
            [
                (
                    HASH,
                    container_hash_text(&Container {
                        name: "c".into(),
                        image: Some("i".into()),
                        ..Default::default()
                    })
                    .as_str(),
                ),
                (RESTART_COUNT, "3"),
                // A restart that is no crash says so; a first start has nothing to say.
                (CRASH_STREAK, "0"),
                (TERMINATION_MESSAGE_PATH, "/dev/termination-log"),
                (TERMINATION_MESSAGE_POLICY, "File"),
                ("vendor/x", "1"),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned())),
        );
        assert_eq!(found, expected);
    }

    #[test]
    fn hooks_and_ports_are_written_in_upstreams_order() {
        let check = |container: serde_json::Value, name: &str, text: &str| {
            assert_eq!(annotations(container, 2)[name], text);
        };
        check(
            json!({"name": "c", "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "a && b"]}}}}),
            PRE_STOP_HANDLER,
            r#"{"exec":{"command":["sh","-c","a \u0026\u0026 b"]}}"#,
        );
        check(
            json!({"name": "c", "lifecycle": {"preStop": {"httpGet": {
                "port": "web", "path": "/bye", "scheme": "HTTP", "httpHeaders": [{"name": "A", "value": "b"}]}}}}),
            PRE_STOP_HANDLER,
            r#"{"httpGet":{"path":"/bye","port":"web","scheme":"HTTP","httpHeaders":[{"name":"A","value":"b"}]}}"#,
        );
        check(
            json!({"name": "c", "lifecycle": {"preStop": {"tcpSocket": {"port": 80, "host": "h"}}}}),
            PRE_STOP_HANDLER,
            r#"{"tcpSocket":{"port":80,"host":"h"}}"#,
        );
        check(
            json!({"name": "c", "ports": [{"containerPort": 80, "hostIP": "1.2.3.4", "protocol": "UDP"}]}),
            PORTS,
            r#"[{"containerPort":80,"protocol":"UDP","hostIP":"1.2.3.4"}]"#,
        );
        check(json!({"name": "c"}), CRASH_STREAK, "2");
    }
}
