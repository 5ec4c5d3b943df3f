//! The pod's conditions that the kubelet owns, and the keeping of those it does not.
//!
//! Owned by `compute` and `merge`. In: computed statuses and phase, the sandbox, the previous
//! status. Out: conditions in the order the API has always shown them. Refuses to judge a condition
//! that somebody else owns.

use ferrolet_pod::may_restart_all;
use ferrolet_types::{
    Timestamp,
    observed::NetworkMode,
    pod::{Phase, PodView, is_sidecar},
};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodCondition, PodStatus};

use crate::{
    containers::{Statuses, text, time},
    inputs::{Stage, StatusInputs, StatusOverride},
    restart,
};

/// Type of the condition that is true while a pod restarts in place.
pub(crate) const ALL_RESTARTING: &str = "AllContainersRestarting";
/// Type of the condition that we may set and others may too.
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const INITIALIZED: &str = "Initialized";
const SANDBOX_READY: &str = "PodReadyToStartContainers";

/// Types whose every instance is ours.
const OWNED: [&str; 8] = [
    "PodScheduled",
    READY,
    INITIALIZED,
    CONTAINERS_READY,
    "PodResizeInProgress",
    "PodResizePending",
    SANDBOX_READY,
    ALL_RESTARTING,
];

/// True for a condition type that only the kubelet sets.
pub(crate) fn is_owned(kind: &str) -> bool {
    OWNED.contains(&kind)
}

/// The condition of that type.
pub(crate) fn find<'a>(status: &'a PodStatus, kind: &str) -> Option<&'a PodCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == kind)
}

/// Puts a condition in the place of the one of its type, or last.
pub(crate) fn put(list: &mut Vec<PodCondition>, condition: PodCondition) {
    match list.iter_mut().find(|old| old.type_ == condition.type_) {
        Some(old) => *old = condition,
        None => list.push(condition),
    }
}

/// A condition's time of change: the old one's while the status is the same.
pub(crate) fn stamp(condition: &mut PodCondition, old: &PodStatus, now: Timestamp) {
    let unchanged = find(old, &condition.type_).filter(|old| old.status == condition.status);
    condition.last_transition_time = match unchanged {
        Some(old) => old.last_transition_time.clone(),
        None => Some(time(now)),
    };
}

/// Takes readiness from a pod that is over: controllers would count it as serving.
pub(crate) fn settle_readiness(
    status: &mut PodStatus,
    phase: Option<Phase>,
    (old, generation): (&PodStatus, Option<i64>),
    now: Timestamp,
) {
    let Some(phase) = phase.filter(|phase| phase.is_terminal()) else {
        return;
    };
    let claims = |kind| find(status, kind).is_some_and(|condition| condition.status == "True");
    if claims(READY) || claims(CONTAINERS_READY) {
        let outcome = Outcome::no(over_reason(phase), "");
        let list = status.conditions.get_or_insert_default();
        for kind in [CONTAINERS_READY, READY] {
            let mut condition = outcome.condition(kind, generation);
            stamp(&mut condition, old, now);
            put(list, condition);
        }
    }
}

/// Every condition of the pod.
pub(crate) fn conditions(
    inputs: &StatusInputs<'_>,
    statuses: &Statuses,
    phase: Phase,
) -> Vec<PodCondition> {
    let (pod, old, generation) = (inputs.pod, inputs.old(), inputs.generation());
    let published = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let foreign = published.filter(|condition| !is_owned(&condition.type_));
    let mut list: Vec<PodCondition> = foreign.cloned().collect();
    if matches!(inputs.stage, Stage::Running | Stage::Terminating) {
        list.extend(inputs.resize.iter().cloned());
    }
    if let Some(disruption) = find(old, DISRUPTION_TARGET) {
        put(&mut list, disruption.clone());
    }
    if let Some(StatusOverride::Ended { conditions, .. }) = inputs.verdict {
        for condition in conditions {
            let mut condition = condition.clone();
            condition.observed_generation = condition.observed_generation.or(generation);
            stamp(&mut condition, old, inputs.now);
            put(&mut list, condition);
        }
    }
    let all: Vec<&ContainerStatus> = statuses.init.iter().chain(&statuses.regular).collect();
    let initialized = initialized(inputs, &all, phase);
    let containers_ready = containers_ready(inputs, &all, phase);
    let ready = ready(inputs, &list, &containers_ready);
    let mut own = vec![
        sandbox_ready(inputs).condition(SANDBOX_READY, generation),
        initialized.condition(INITIALIZED, generation),
        ready.condition(READY, generation),
        containers_ready.condition(CONTAINERS_READY, generation),
        Outcome::yes().condition("PodScheduled", generation),
    ];
    if may_restart_all(pod.spec_ref()) {
        own.push(all_restarting(inputs, phase).condition(ALL_RESTARTING, None));
    }
    for condition in &mut own {
        stamp(condition, old, inputs.now);
    }
    list.extend(own);
    list
}

/// What a condition says, before it has a type and times.
#[derive(Clone)]
struct Outcome {
    is_true: bool,
    reason: &'static str,
    message: String,
}

impl Outcome {
    fn yes() -> Self {
        Self { is_true: true, reason: "", message: String::new() }
    }

    fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_true: false, reason, message: message.into() }
    }

    fn condition(&self, kind: &str, generation: Option<i64>) -> PodCondition {
        PodCondition {
            type_: kind.to_owned(),
            status: if self.is_true { "True" } else { "False" }.to_owned(),
            reason: text(self.reason),
            message: text(&self.message),
            observed_generation: generation,
            last_probe_time: None,
            last_transition_time: None,
        }
    }
}

fn over_reason(phase: Phase) -> &'static str {
    match phase {
        Phase::Failed => "PodFailed",
        Phase::Succeeded => "PodCompleted",
        Phase::Pending | Phase::Running | Phase::Unknown => "",
    }
}

/// A sandbox with a network is there, and only one.
fn sandbox_ready(inputs: &StatusInputs<'_>) -> Outcome {
    const REASON: &str = "PodSandboxNotReady";
    let sandboxes = &inputs.observation.sandboxes;
    let Some(newest) = sandboxes.first() else {
        return Outcome::no(REASON, "no pod sandbox exists");
    };
    let is_host_network = inputs.pod.is_host_network();
    let wanted = if is_host_network { NetworkMode::Node } else { NetworkMode::Pod };
    let fault = if sandboxes.iter().filter(|sandbox| sandbox.is_ready).count() > 1 {
        "multiple pod sandboxes are ready and need to be reconciled"
    } else if !newest.is_ready {
        "pod sandbox is not ready"
    } else if newest.network != wanted {
        "network namespace mode changed and sandbox needs to be recreated"
    } else if !is_host_network && newest.ips.is_empty() {
        "pod sandbox has no IP address"
    } else {
        return Outcome::yes();
    };
    Outcome::no(REASON, fault)
}

/// Every init container is through; true for ever once a regular container has run.
fn initialized(inputs: &StatusInputs<'_>, all: &[&ContainerStatus], phase: Phase) -> Outcome {
    let spec = inputs.pod.spec_ref();
    let init = spec.init_containers.as_deref().unwrap_or_default();
    if all.is_empty() && !init.is_empty() {
        return Outcome::no("UnknownContainerStatuses", "");
    }
    let (unknown, incomplete) = split(init.iter(), all, |container, status| {
        if is_sidecar(container) { status.started == Some(true) } else { status.ready }
    });
    if phase == Phase::Succeeded && unknown.is_empty() {
        return Outcome { reason: "PodCompleted", ..Outcome::yes() };
    }
    let has_run = |container: &Container| {
        let status = all.iter().find(|status| status.name == container.name);
        let state = status.and_then(|status| status.state.as_ref());
        state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    // What was initialised stays so, also while a restart in place runs the init containers again.
    let was = find(inputs.old(), INITIALIZED).is_some_and(|condition| condition.status == "True");
    let message = complaint(&unknown, "incomplete", &incomplete);
    if message.is_empty() || was || spec.containers.iter().any(has_run) {
        Outcome::yes()
    } else {
        Outcome::no("ContainersNotInitialized", message)
    }
}

/// Every regular container and sidecar is ready.
fn containers_ready(inputs: &StatusInputs<'_>, all: &[&ContainerStatus], phase: Phase) -> Outcome {
    if all.is_empty() {
        return Outcome::no("UnknownContainerStatuses", "");
    }
    let spec = inputs.pod.spec_ref();
    let init = spec.init_containers.iter().flatten();
    let lasting = init.filter(|c| is_sidecar(c)).chain(&spec.containers);
    let (unknown, unready) = split(lasting, all, |_, status| status.ready);
    if phase == Phase::Failed || phase == Phase::Succeeded && unknown.is_empty() {
        return Outcome::no(over_reason(phase), "");
    }
    let message = complaint(&unknown, "unready", &unready);
    if message.is_empty() { Outcome::yes() } else { Outcome::no("ContainersNotReady", message) }
}

/// The containers are ready and so say all the gates.
fn ready(inputs: &StatusInputs<'_>, set: &[PodCondition], containers_ready: &Outcome) -> Outcome {
    if !containers_ready.is_true {
        return containers_ready.clone();
    }
    let gates = inputs.pod.spec_ref().readiness_gates.iter().flatten();
    let closed = gates.filter_map(|gate| {
        let kind = &gate.condition_type;
        match set.iter().find(|condition| &condition.type_ == kind) {
            None => Some(format!(
                "corresponding condition of pod readiness gate {kind:?} does not exist."
            )),
            Some(condition) if condition.status != "True" => Some(format!(
                "the status of pod readiness gate {kind:?} is not \"True\", but {}",
                condition.status
            )),
            Some(_) => None,
        }
    });
    let closed: Vec<String> = closed.collect();
    if closed.is_empty() {
        Outcome::yes()
    } else {
        Outcome::no("ReadinessGatesNotReady", closed.join(", "))
    }
}

/// True while the pod is being restarted in place and not all of it is swept away yet.
pub(crate) fn is_restarting_all(inputs: &StatusInputs<'_>, phase: Phase) -> bool {
    let (pod, seen) = (inputs.pod, inputs.observation);
    may_restart_all(pod.spec_ref())
        && !phase.is_terminal()
        && restart::is_restarting_all(pod, seen, inputs.old())
        && !restart::is_swept(pod, seen)
}

/// The pod is being restarted in place.
fn all_restarting(inputs: &StatusInputs<'_>, phase: Phase) -> Outcome {
    if !is_restarting_all(inputs, phase) {
        return Outcome::no(over_reason(phase), "");
    }
    Outcome {
        is_true: true,
        reason: "RestartAllContainersStarted",
        message: "container exited with restart policy rule".to_owned(),
    }
}

/// Names of the containers without a status, and of those whose status does not satisfy.
fn split<'a>(
    containers: impl Iterator<Item = &'a Container>,
    all: &[&ContainerStatus],
    satisfies: impl Fn(&Container, &ContainerStatus) -> bool,
) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut unknown, mut unsatisfied) = (Vec::new(), Vec::new());
    for container in containers {
        match all.iter().find(|status| status.name == container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !satisfies(container, status) => {
                unsatisfied.push(container.name.as_str());
            }
            Some(_) => {}
        }
    }
    (unknown, unsatisfied)
}

/// The sentence that names containers, as scripts have learnt to read it.
fn complaint(unknown: &[&str], word: &str, unsatisfied: &[&str]) -> String {
    let part = |word: &str, names: &[&str]| {
        (!names.is_empty()).then(|| format!("containers with {word} status: [{}]", names.join(" ")))
    };
    let parts = [part("unknown", unknown), part(word, unsatisfied)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
