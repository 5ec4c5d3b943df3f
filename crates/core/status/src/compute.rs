//! The one entry point: facts in, status out, with what was found out on the way.
//!
//! Owned by the pod workers. Everything that depends on more than one part of the status is decided
//! here: which phase wins, what of the previous status stays, and in what order the parts are made.

use ferrolet_pod::EndReason;
use ferrolet_types::{pod::Phase, pod::PodView, qos_of};
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::{
    addresses,
    conditions::{self, conditions},
    containers::{self, text, time},
    health::volume_health,
    inputs::{Stage, StatusInputs, StatusOverride},
    normalize::normalize,
    phase::{PhaseFacts, phase},
    resources,
    terminate::terminate,
};

/// A pod's status, and what was found out on the way to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    /// What the API is told.
    pub status: PodStatus,
    /// The phase in it.
    pub phase: Phase,
    /// True while a container's exit makes the whole pod start anew in place.
    pub is_restarting_all: bool,
    /// True when the node could not afford the pod, as this life of the agent or an earlier one
    /// decided.
    pub is_evicted: bool,
}

/// Computes what the API is told of a pod, given everything that is known of it.
pub fn compute(inputs: &StatusInputs<'_>) -> Computed {
    let mut computed = match inputs.verdict {
        Some(StatusOverride::Rejected { reason, message }) => rejected(inputs, reason, message),
        Some(StatusOverride::Ended { .. }) | None => generated(inputs),
    };
    let (status, old) = (&mut computed.status, inputs.old());
    status.phase = Some(computed.phase.as_str().to_owned());
    status.observed_generation = inputs.generation().max(old.observed_generation);
    // A pod starts once, whatever happens to its containers.
    status.start_time = old.start_time.clone().or_else(|| Some(time(inputs.now)));
    status.volume_health =
        volume_health(old.volume_health.as_ref(), inputs.volume_health, inputs.now);
    normalize(inputs.pod, status);
    computed
}

/// A pod the node never took has no containers to tell of.
fn rejected(inputs: &StatusInputs<'_>, reason: &str, message: &str) -> Computed {
    let status = PodStatus {
        reason: text(reason),
        message: Some(format!("Pod was rejected: {message}")),
        qos_class: Some(qos(inputs.pod)),
        ..PodStatus::default()
    };
    Computed { status, phase: Phase::Failed, is_restarting_all: false, is_evicted: false }
}

fn generated(inputs: &StatusInputs<'_>) -> Computed {
    let statuses = containers::statuses(inputs);
    let (mut phase, reason, message) = phase_and_reason(inputs, &statuses);
    let is_restarting_all = conditions::is_restarting_all(inputs, phase);
    let ended = reason.as_deref().map(EndReason::parse);
    let mut status = PodStatus {
        reason,
        message,
        qos_class: Some(qos(inputs.pod)),
        conditions: Some(conditions(inputs, &statuses, phase)),
        container_statuses: Some(statuses.regular).filter(|list| !list.is_empty()),
        init_container_statuses: Some(statuses.init).filter(|list| !list.is_empty()),
        ephemeral_container_statuses: Some(statuses.ephemeral).filter(|list| !list.is_empty()),
        allocated_resources: resources::pod_allocated(inputs),
        resources: Some(resources::pod_resources(inputs, phase)),
        ..PodStatus::default()
    };
    addresses::fill(&mut status, inputs);
    if inputs.stage == Stage::Terminated {
        phase = terminate(inputs.pod, &mut status, phase);
        let (old, generation) = (inputs.old(), inputs.generation());
        conditions::settle_readiness(&mut status, Some(phase), (old, generation), inputs.now);
    }
    let is_evicted =
        phase == Phase::Failed && matches!(ended, Some(EndReason::Evicted | EndReason::Preempting));
    Computed { status, phase, is_restarting_all, is_evicted }
}

/// The phase, and the reason and message that go with it.
fn phase_and_reason(
    inputs: &StatusInputs<'_>,
    statuses: &containers::Statuses,
) -> (Phase, Option<String>, Option<String>) {
    let old = inputs.old();
    let api = inputs.pod.status.as_ref();
    let old_phase = Phase::of(old);
    let api_phase = inputs.pod.api_phase();
    let terminal = |phase: Option<Phase>| phase.filter(|phase| phase.is_terminal());
    let computed = phase(
        inputs.pod,
        &statuses.init,
        &statuses.regular,
        PhaseFacts {
            is_over: matches!(inputs.stage, Stage::Stopped | Stage::Terminated),
            is_initialized: is_initialized(inputs),
        },
    );
    // Nothing leads out of a terminal phase: first what the API already shows, then what we told
    // before.
    let settled = terminal(api_phase).or_else(|| match terminal(Some(computed)) {
        Some(phase) => Some(phase),
        None => terminal(old_phase),
    });
    let mut outcome = settled.unwrap_or(computed);
    let (mut reason, mut message) = (None, None);
    if Some(outcome) == old_phase {
        let kept = |of: fn(&PodStatus) -> &Option<String>| {
            let own = of(old).clone().filter(|text| !text.is_empty());
            own.or_else(|| api.and_then(|api| of(api).clone()))
        };
        reason = kept(|status| &status.reason);
        message = kept(|status| &status.message);
    }
    if let Some(StatusOverride::Ended { phase, reason: why, message: sentence, .. }) =
        inputs.verdict
        && !(computed == Phase::Succeeded && counts_by_containers(why))
    {
        (reason, message) = (text(why.as_str()), text(sentence));
        outcome = terminal(api_phase).unwrap_or(*phase);
    }
    (outcome, reason, message)
}

/// Whoever had to go for somebody else's sake, and whose containers all ended well when they were told
/// to, has succeeded and says no more of it; upstream counts by the containers once they have
/// ended, and so do controllers of jobs.
fn counts_by_containers(why: &EndReason) -> bool {
    matches!(why, EndReason::Evicted | EndReason::Preempting | EndReason::Terminated)
}

/// True when a regular container exists in the sandbox in use, which init containers come before.
fn is_initialized(inputs: &StatusInputs<'_>) -> bool {
    let newest = inputs.observation.newest_sandbox();
    let Some(sandbox) = newest.filter(|sandbox| sandbox.is_ready) else {
        return false;
    };
    inputs.pod.spec_ref().containers.iter().any(|container| {
        let mut named = inputs.observation.containers_named(&container.name);
        named.any(|seen| seen.sandbox == sandbox.id)
    })
}

fn qos(pod: &Pod) -> String {
    qos_of(pod.spec_ref()).as_str().to_owned()
}
