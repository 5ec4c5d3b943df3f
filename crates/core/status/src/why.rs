//! What a pod looks like at a glance, and why it is not well.
//!
//! For people: the node's page today, the command line later. In: a pod with its status. Out: one
//! word as `kubectl get pods` shows it, and a list of troubles with the evidence that the status
//! holds. Refuses: guessing; what the status does not say is not told.

use ferrolet_types::{
    Pod,
    pod::{Phase, is_sidecar},
};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus};

/// One thing that keeps a pod from being well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The container it is about; none when it is about the pod.
    pub container: Option<String>,
    /// One word: a waiting reason, a condition's name, `Error`.
    pub reason: String,
    /// A sentence with the evidence; may be empty.
    pub message: String,
}

/// Waiting that is part of every start and needs no explanation.
const ORDINARY: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The word in the STATUS column of `kubectl get pods`.
pub fn headline(pod: &Pod) -> String {
    let Some(status) = &pod.status else {
        return "Pending".to_owned();
    };
    let is_ending = pod.metadata.deletion_timestamp.is_some();
    if is_ending && status.reason.as_deref() == Some("NodeLost") {
        return "Unknown".to_owned();
    }
    let is_over = Phase::of(status).is_some_and(Phase::is_terminal);
    if is_ending && !is_over {
        return "Terminating".to_owned();
    }
    if let Some(word) = init_word(pod) {
        return word;
    }
    let phase = status.phase.as_deref().unwrap_or("Pending");
    let mut word = status.reason.as_deref().unwrap_or(phase).to_owned();
    let mut some_run = false;
    let regular = status.container_statuses.iter().flatten();
    for container in regular.rev() {
        let state = state_of(container);
        if let Some(reason) = state.waiting.and_then(|it| it.reason) {
            word = reason;
        } else if let Some(ended) = &state.terminated {
            word = ended_word(ended);
        } else if container.ready && state.running.is_some() {
            some_run = true;
        }
    }
    if word == "Completed" && some_run {
        let is_ready = condition(pod, "Ready").is_some_and(|(status, _)| status == "True");
        word = if is_ready { "Running" } else { "NotReady" }.to_owned();
    }
    word
}

/// `Init:…` while an init container stands in the way.
fn init_word(pod: &Pod) -> Option<String> {
    let specs = pod.spec.as_ref()?.init_containers.as_deref()?;
    let statuses = pod.status.as_ref()?.init_container_statuses.as_deref()?;
    for (index, container) in statuses.iter().enumerate() {
        let state = state_of(container);
        let spec = specs.iter().find(|spec| spec.name == container.name);
        let is_sidecar = spec.is_some_and(is_sidecar);
        if state.terminated.as_ref().is_some_and(|it| it.exit_code == 0)
            || is_sidecar && container.started == Some(true)
        {
            continue;
        }
        let waiting = state.waiting.and_then(|it| it.reason);
        let word = match (state.terminated, waiting) {
            (Some(ended), _) => ended_word(&ended),
            (None, Some(reason)) if reason != "PodInitializing" => reason,
            _ => format!("{index}/{}", specs.len()),
        };
        return Some(format!("Init:{word}"));
    }
    None
}

fn ended_word(ended: &ContainerStateTerminated) -> String {
    match (ended.reason.as_deref(), ended.signal) {
        (Some(reason), _) if !reason.is_empty() => reason.to_owned(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", ended.exit_code),
    }
}

/// Everything that keeps the pod from being well, the pod's own first; empty when it is well, or on
/// its ordinary way there.
pub fn why(pod: &Pod) -> Vec<Trouble> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    if Phase::of(status) == Some(Phase::Succeeded) {
        return Vec::new();
    }
    let mut troubles = Vec::new();
    if let Some(reason) = status.reason.as_deref().filter(|it| !it.is_empty()) {
        let message = status.message.clone().unwrap_or_default();
        troubles.push(of_pod(reason, message));
    }
    let init = status.init_container_statuses.iter().flatten();
    let regular = status.container_statuses.iter().flatten();
    for container in init.clone().chain(regular) {
        troubles.extend(of_container(container));
    }
    if Phase::of(status) == Some(Phase::Running) {
        let gates = pod.spec.iter().flat_map(|it| it.readiness_gates.iter());
        for gate in gates.flatten() {
            let seen = condition(pod, &gate.condition_type);
            if seen.as_ref().is_none_or(|(status, _)| status != "True") {
                let message = seen.map_or("nobody has set it yet".to_owned(), |(_, words)| words);
                troubles.push(of_pod(&format!("ReadinessGate {}", gate.condition_type), message));
            }
        }
    }
    for name in ["PodResizePending", "PodResizeInProgress"] {
        if let Some(found) = conditions(pod).find(|it| it.type_ == name && it.status == "True")
            && let Some(reason) = found.reason.as_deref().filter(|it| !it.is_empty())
        {
            let message = found.message.clone().unwrap_or_default();
            troubles.push(of_pod(&format!("{name} {reason}"), message));
        }
    }
    troubles
}

fn of_pod(reason: &str, message: String) -> Trouble {
    Trouble { container: None, reason: reason.to_owned(), message }
}

fn of_container(container: &ContainerStatus) -> Option<Trouble> {
    let state = state_of(container);
    let told = |reason: String, message: String| {
        Some(Trouble { container: Some(container.name.clone()), reason, message })
    };
    if let Some(waiting) = state.waiting {
        let reason = waiting.reason.unwrap_or_default();
        if reason.is_empty() || ORDINARY.contains(&reason.as_str()) {
            return None;
        }
        let last = container.last_state.as_ref();
        let last = last.and_then(|it| it.terminated.as_ref()).map(ended_words);
        let parts = [waiting.message.unwrap_or_default(), last.unwrap_or_default()];
        let parts: Vec<&str> =
            parts.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
        return told(reason, parts.join("; "));
    }
    if let Some(ended) = state.terminated {
        let is_fine = ended.exit_code == 0;
        return if is_fine { None } else { told(ended_word(&ended), ended_words(&ended)) };
    }
    if state.running.is_some() && !container.ready {
        let (reason, words) = if container.started == Some(false) {
            ("NotStarted", "it runs, but its startup probe has not succeeded yet")
        } else {
            ("NotReady", "it runs, but its readiness probe does not succeed")
        };
        return told(reason.to_owned(), words.to_owned());
    }
    None
}

/// How a run ended, as one clause.
fn ended_words(ended: &ContainerStateTerminated) -> String {
    let how = match ended.signal.filter(|it| *it != 0) {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("ended with exit code {}", ended.exit_code),
    };
    let reason = ended.reason.as_deref().filter(|it| !matches!(*it, "" | "Error"));
    let reason = reason.map(|it| format!(" ({it})")).unwrap_or_default();
    let message = ended.message.as_deref().map(str::trim).filter(|it| !it.is_empty());
    let message = message.map(|it| format!(": {it}")).unwrap_or_default();
    format!("{how}{reason}{message}")
}

fn state_of(container: &ContainerStatus) -> ContainerState {
    container.state.clone().unwrap_or_default()
}

fn conditions(pod: &Pod) -> impl Iterator<Item = &k8s_openapi::api::core::v1::PodCondition> {
    let status = pod.status.iter();
    status.flat_map(|it| it.conditions.iter().flatten())
}

fn condition(pod: &Pod, name: &str) -> Option<(String, String)> {
    let found = conditions(pod).find(|it| it.type_ == name)?;
    Some((found.status.clone(), found.message.clone().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        let spec = json!({
            "containers": [{"name": "main"}, {"name": "side"}],
            "initContainers": [{"name": "first"}, {"name": "proxy", "restartPolicy": "Always"}],
            "readinessGates": [{"conditionType": "example.com/door"}],
        });
        let whole = json!({"metadata": {"name": "web"}, "spec": spec, "status": status});
        Arc::new(serde_json::from_value(whole).unwrap())
    }

    fn container(name: &str, ready: bool, state: Value) -> Value {
        json!({"name": name, "ready": ready, "state": state, "image": "i", "imageID": "", "restartCount": 0})
    }

    fn open_gate() -> Value {
        json!([{"type": "example.com/door", "status": "True"}])
    }

    #[test]
    fn a_pods_headline_is_what_kubectl_shows() {
        let check = |status: Value, expected: &str| {
            assert_eq!(headline(&pod(status.clone())), expected, "{status}");
        };
        let running = json!({"running": {}});
        let ended =
            |code: i32, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        check(json!({}), "Pending");
        check(json!({"phase": "Failed", "reason": "Evicted"}), "Evicted");
        check(
            json!({"phase": "Running", "containerStatuses": [container("main", true, running.clone())]}),
            "Running",
        );
        check(
            json!({"phase": "Running", "containerStatuses": [
                container("main", false, waiting("CrashLoopBackOff")), container("side", true, running.clone())]}),
            "CrashLoopBackOff",
        );
        check(
            json!({"phase": "Running", "containerStatuses": [
                container("main", false, ended(0, "Completed")), container("side", true, running.clone())]}),
            "NotReady",
        );
        check(
            json!({"phase": "Failed", "containerStatuses": [container("main", false, ended(3, "Error"))]}),
            "Error",
        );
        check(
            json!({"phase": "Failed", "containerStatuses": [
                container("main", false, json!({"terminated": {"exitCode": 137, "signal": 9}}))]}),
            "Signal:9",
        );
        check(
            json!({"phase": "Pending", "initContainerStatuses": [container("first", false, running)]}),
            "Init:0/2",
        );
        check(
            json!({"phase": "Pending", "initContainerStatuses": [
                container("first", true, ended(0, "Completed")),
                container("proxy", false, waiting("ImagePullBackOff"))]}),
            "Init:ImagePullBackOff",
        );
        check(
            json!({"phase": "Pending", "initContainerStatuses": [container("first", false, ended(1, "Error"))]}),
            "Init:Error",
        );
    }

    #[test]
    fn a_pod_being_deleted_is_terminating() {
        let whole = json!({
            "metadata": {"name": "web", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Running"},
        });
        let pod: Pod = Arc::new(serde_json::from_value(whole).unwrap());
        assert_eq!(headline(&pod), "Terminating");
    }

    #[test]
    fn trouble_is_told_with_its_evidence_and_health_is_silent() {
        let check = |status: Value, expected: &[(&str, &str, &str)]| {
            let found = why(&pod(status.clone()));
            let found: Vec<_> = found
                .iter()
                .map(|it| (it.container.as_deref().unwrap_or(""), &*it.reason, &*it.message))
                .collect();
            assert_eq!(found, expected, "{status}");
        };
        let running = json!({"running": {}});
        check(json!({"phase": "Pending"}), &[]);
        check(
            json!({"phase": "Pending", "containerStatuses": [
                container("main", false, json!({"waiting": {"reason": "ContainerCreating"}}))]}),
            &[],
        );
        check(
            json!({"phase": "Running", "conditions": open_gate(), "containerStatuses": [container("main", true, running.clone())]}),
            &[],
        );
        check(json!({"phase": "Succeeded", "reason": "whatever"}), &[]);
        check(
            json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}),
            &[("", "OutOfcpu", "Node didn't have enough resource: cpu")],
        );
        let mut looping = container(
            "main",
            false,
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}),
        );
        looping["lastState"] =
            json!({"terminated": {"exitCode": 2, "reason": "Error", "message": "no config\n"}});
        check(
            json!({"phase": "Running", "conditions": open_gate(), "containerStatuses": [looping]}),
            &[(
                "main",
                "CrashLoopBackOff",
                "back-off 10s restarting failed container; ended with exit code 2: no config",
            )],
        );
        check(
            json!({"phase": "Running", "conditions": open_gate(), "containerStatuses": [
                container("main", false, json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})),
                container("side", false, running)]}),
            &[
                ("main", "OOMKilled", "ended with exit code 137 (OOMKilled)"),
                ("side", "NotReady", "it runs, but its readiness probe does not succeed"),
            ],
        );
        check(
            json!({"phase": "Running"}),
            &[("", "ReadinessGate example.com/door", "nobody has set it yet")],
        );
    }
}
