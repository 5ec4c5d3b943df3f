//! What the page shows, as one JSON object. Pure.
//!
//! Usage is the summary as `/stats/summary` gives it; the node is a v1 Node; pods are cut down to
//! what a person looks at.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrolet_ports::{EventKind, EventObject, HealthCheck};
use ferrolet_status::{headline, why};
use ferrolet_types::{
    Pod, Timestamp,
    pod::{Phase, PodView as _},
};
use k8s_openapi::api::core::v1::{ContainerStatus, Node, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::recent::Noted;

type Limits = BTreeMap<String, Quantity>;

/// Everything there is to see.
pub(super) struct Seen<'a> {
    pub(super) node: &'a Node,
    pub(super) pods: &'a [Pod],
    pub(super) events: &'a [Noted],
    pub(super) checks: &'a [Arc<dyn HealthCheck>],
    pub(super) stats: Option<Value>,
    pub(super) now: Timestamp,
    pub(super) has_logs: bool,
}

pub(super) fn data(seen: Seen<'_>) -> Value {
    let mut pods: Vec<&Pod> = seen.pods.iter().collect();
    pods.sort_by_key(|pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone()));
    let checks = seen.checks.iter().map(|check| {
        let fault = check.check().err();
        json!({"name": check.name(), "fault": fault})
    });
    json!({
        "now": seen.now.to_second_precision().to_string(),
        "node": seen.node,
        "pods": pods.into_iter().map(|pod| shown(pod, seen.events)).collect::<Vec<Value>>(),
        "events": seen.events.iter().map(event).collect::<Vec<Value>>(),
        "checks": checks.collect::<Vec<Value>>(),
        "stats": seen.stats,
        "hasLogs": seen.has_logs,
    })
}

fn shown(pod: &Pod, events: &[Noted]) -> Value {
    let status = pod.status.as_ref();
    let spec = pod.spec.as_ref();
    let init = status.and_then(|it| it.init_container_statuses.as_deref());
    let regular = status.and_then(|it| it.container_statuses.as_deref());
    let extra = status.and_then(|it| it.ephemeral_container_statuses.as_deref());
    let kinds = [
        ("init", init.unwrap_or_default()),
        ("regular", regular.unwrap_or_default()),
        ("ephemeral", extra.unwrap_or_default()),
    ];
    let containers = kinds.iter().flat_map(|(kind, statuses)| {
        let statuses = statuses.iter();
        statuses.map(|status| container(kind, status, &limits_of(pod, &status.name)))
    });
    let n_restarts: i32 =
        kinds.iter().flat_map(|(_, statuses)| statuses.iter()).map(|it| it.restart_count).sum();
    let regular = regular.unwrap_or_default();
    json!({
        "namespace": pod.metadata.namespace,
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "created": pod.metadata.creation_timestamp,
        "started": status.and_then(|it| it.start_time.clone()),
        "word": headline(pod),
        "phase": status.and_then(|it| it.phase.clone()),
        "ip": status.and_then(|it| it.pod_ip.clone()),
        "qos": status.and_then(|it| it.qos_class.clone()),
        "nReady": regular.iter().filter(|it| it.ready).count(),
        "nContainers": spec.map_or(0, |it| it.containers.len()),
        "nRestarts": n_restarts,
        "isStatic": pod.is_static(),
        "containers": containers.collect::<Vec<Value>>(),
        "limits": pod_limits(spec),
        "why": reasons(pod, events),
    })
}

/// What the status says, and for a pod that only waits, what was last complained about it.
fn reasons(pod: &Pod, events: &[Noted]) -> Vec<Value> {
    let mut told: Vec<Value> = why(pod)
        .into_iter()
        .map(|it| json!({"container": it.container, "reason": it.reason, "message": it.message}))
        .collect();
    let is_pending = matches!(pod.api_phase(), None | Some(Phase::Pending));
    let is_unready =
        told.iter().any(|it| it["reason"] == "NotReady" || it["reason"] == "NotStarted");
    if (is_pending && told.is_empty()) || is_unready {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let complaint = events.iter().find(|noted| {
            let is_ours = matches!(&noted.event.object, EventObject::Pod { uid: of, .. } if of.as_str() == uid);
            is_ours && noted.event.kind == EventKind::Warning
        });
        told.extend(complaint.map(|noted| {
            json!({"container": null, "reason": noted.event.reason, "message": noted.event.message})
        }));
    }
    told
}

/// What a container may use, as its specification says.
fn limits_of(pod: &Pod, name: &str) -> Limits {
    let spec = pod.spec.iter();
    let containers =
        spec.flat_map(|it| it.containers.iter().chain(it.init_containers.iter().flatten()));
    let own = containers.into_iter().find(|it| it.name == name);
    let resources = own.and_then(|it| it.resources.as_ref());
    resources.and_then(|it| it.limits.clone()).unwrap_or_default()
}

/// What the whole pod may use: as it says, or its only container.
fn pod_limits(spec: Option<&PodSpec>) -> Limits {
    let own = spec.and_then(|it| it.resources.as_ref());
    let own = own.and_then(|it| it.limits.clone());
    let only = spec.and_then(|it| match &it.containers[..] {
        [one] => one.resources.as_ref()?.limits.clone(),
        _ => None,
    });
    own.or(only).unwrap_or_default()
}

fn container(kind: &str, status: &ContainerStatus, limits: &Limits) -> Value {
    let state = status.state.clone().unwrap_or_default();
    let (word, since) = match (state.running, state.waiting, state.terminated) {
        (Some(running), ..) => ("Running".to_owned(), running.started_at),
        (_, Some(waiting), _) => (waiting.reason.unwrap_or("Waiting".to_owned()), None),
        (_, _, Some(ended)) => (
            ended.reason.unwrap_or_else(|| format!("ExitCode:{}", ended.exit_code)),
            ended.finished_at,
        ),
        _ => ("Waiting".to_owned(), None),
    };
    json!({
        "name": status.name,
        "kind": kind,
        "word": word,
        "since": since,
        "ready": status.ready,
        "restarts": status.restart_count,
        "image": status.image,
        "limits": limits,
    })
}

fn event(noted: &Noted) -> Value {
    let (object, container) = match &noted.event.object {
        EventObject::Pod { key, field_path, .. } => (key.to_string(), field_path.clone()),
        EventObject::Node => ("node".to_owned(), None),
    };
    json!({
        "at": noted.at.to_second_precision().to_string(),
        "isWarning": noted.event.kind == EventKind::Warning,
        "reason": noted.event.reason,
        "message": noted.event.message,
        "object": object,
        "container": container,
        "times": noted.n_times,
    })
}

#[cfg(test)]
mod tests {
    use ferrolet_ports::Event;
    use ferrolet_types::PodKey;

    use super::*;

    fn pod(name: &str, status: Value) -> Pod {
        let whole = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "64Mi"}}}]},
            "status": status,
        });
        Arc::new(serde_json::from_value(whole).unwrap())
    }

    fn complaint(name: &str, reason: &str) -> Noted {
        Noted {
            event: Event {
                object: EventObject::Pod {
                    uid: name.into(),
                    key: PodKey::new("default", name),
                    field_path: Some("spec.containers{main}".to_owned()),
                },
                kind: EventKind::Warning,
                reason: reason.to_owned(),
                message: "no such secret".to_owned(),
            },
            n_times: 3,
            at: Timestamp::from_second(1_800_000_000),
        }
    }

    #[test]
    fn a_person_sees_state_reason_and_what_was_complained_about() {
        let running = pod(
            "b",
            json!({"phase": "Running", "podIP": "10.0.0.7", "containerStatuses": [{
                "name": "main", "ready": true, "restartCount": 2, "image": "busybox", "imageID": "",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }]}),
        );
        let waiting = pod("a", json!({"phase": "Pending"}));
        let events = [complaint("a", "FailedMount"), complaint("b", "Unhealthy")];
        let seen = data(Seen {
            node: &Node::default(),
            pods: &[running, waiting],
            events: &events,
            checks: &[],
            stats: None,
            now: Timestamp::from_second(1_800_000_060),
            has_logs: true,
        });
        let pods = seen["pods"].as_array().unwrap();
        assert_eq!(pods[0]["name"], "a", "sorted by name");
        assert_eq!(pods[0]["why"][0]["reason"], "FailedMount");
        assert_eq!(pods[1]["word"], "Running");
        assert_eq!(pods[1]["nRestarts"], 2);
        assert_eq!(pods[1]["limits"]["memory"], "64Mi", "of its only container");
        assert_eq!(pods[1]["why"], json!([]), "what is well needs no reason");
        assert_eq!(
            pods[1]["containers"][0],
            json!({
                "name": "main", "kind": "regular", "word": "Running", "since": "2026-01-01T00:00:00Z",
                "ready": true, "restarts": 2, "image": "busybox", "limits": {"memory": "64Mi"},
            })
        );
        assert_eq!(
            seen["events"][0],
            json!({
                "at": "2027-01-15T08:00:00Z", "isWarning": true, "reason": "FailedMount", "message": "no such secret",
                "object": "default/a", "container": "spec.containers{main}", "times": 3,
            })
        );
    }
}
