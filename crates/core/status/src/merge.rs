//! Our status and the API's copy, made one: what others wrote stays, and no pod is over while it
//! may still hold the node.
//!
//! Owned by the reporter, between reading a pod from the API and patching it. In: the API's pod, a
//! computed status. Out: the status the API should have. Refuses to send anything itself, and to
//! judge conditions that others own.

use ferrolet_pod::{may_restart_all, policy_restarts, restarts_after};
use ferrolet_types::{
    Timestamp,
    pod::{Phase, PodView, is_sidecar},
};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodStatus};

use crate::{
    conditions::{self, DISRUPTION_TARGET, is_owned},
    inputs::generation_of,
};

/// Whether anything of the pod may still run on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunningContainers {
    /// Something may: the pod holds what only one pod can hold.
    Possible,
    /// Nothing does, and nothing will.
    Gone,
}

/// A container that must not start again is told to be running again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("container {name} ended for good and cannot leave its terminated state")]
pub struct TransitionError {
    name: String,
}

/// Merges a computed status into what the API has: `api` is the pod as just read from there.
pub fn merge_for_api(
    api: &Pod,
    mut computed: PodStatus,
    running: RunningContainers,
    now: Timestamp,
) -> PodStatus {
    let empty = PodStatus::default();
    let old = api.status.as_ref().unwrap_or(&empty);
    let is_terminal = |status: &PodStatus| Phase::of(status).is_some_and(Phase::is_terminal);
    let is_ending = !is_terminal(old) && is_terminal(&computed);
    let foreign = old.conditions.iter().flatten();
    let mut list: Vec<PodCondition> = foreign.filter(|c| !is_owned(&c.type_)).cloned().collect();
    for mut condition in computed.conditions.take().unwrap_or_default() {
        if is_owned(&condition.type_) {
            list.push(condition);
        } else if condition.type_ == DISRUPTION_TARGET
            && is_ending
            && running == RunningContainers::Gone
        {
            // It waited for the end of the pod, so its time is now.
            conditions::stamp(&mut condition, old, now);
            conditions::put(&mut list, condition);
        }
    }
    computed.conditions = Some(list).filter(|list| !list.is_empty());
    computed.resource_claim_statuses.clone_from(&old.resource_claim_statuses);
    computed.extended_resource_claim_status.clone_from(&old.extended_resource_claim_status);
    computed
        .node_allocatable_resource_claim_statuses
        .clone_from(&old.node_allocatable_resource_claim_statuses);
    // Whoever waits for the end of this pod takes the terminal phase as leave to use its things.
    if is_ending && running == RunningContainers::Possible {
        computed.phase.clone_from(&old.phase);
        computed.reason.clone_from(&old.reason);
        computed.message.clone_from(&old.message);
    }
    let phase = Phase::of(&computed);
    conditions::settle_readiness(&mut computed, phase, (old, generation_of(api)), now);
    computed
}

/// Refuses a status that brings back to life a container whose policy lets it end once.
pub fn check_transition(
    pod: &Pod,
    old: &PodStatus,
    new: &PodStatus,
) -> Result<(), TransitionError> {
    let spec = pod.spec_ref();
    if may_restart_all(spec) {
        return Ok(());
    }
    let init = spec.init_containers.iter().flatten();
    let init: Vec<&Container> = init.filter(|c| !is_sidecar(c)).collect();
    let regular: Vec<&Container> = spec.containers.iter().collect();
    let lists = [
        (regular, &old.container_statuses, &new.container_statuses),
        (init, &old.init_container_statuses, &new.init_container_statuses),
    ];
    for (containers, old, new) in lists {
        for container in containers {
            let named = |list: &Option<Vec<ContainerStatus>>| {
                let found = list.iter().flatten().find(|s| s.name == container.name);
                found.map(exit_code)
            };
            let Some(Some(code)) = named(old) else {
                continue;
            };
            // The pod's policy alone lets a container leave its end, whatever its own says.
            let by_pod = policy_restarts(pod.restart_policy(), code);
            if !by_pod && !restarts_after(pod, container, code) && named(new) == Some(None) {
                return Err(TransitionError { name: container.name.clone() });
            }
        }
    }
    Ok(())
}

/// True when two normalised statuses agree in everything that is ours to say; times of conditions
/// aside.
pub fn is_same_for_kubelet(old: &PodStatus, new: &PodStatus) -> bool {
    let ours = |status: &PodStatus| {
        let list = status.conditions.iter().flatten();
        let ours = list.filter(|c| is_owned(&c.type_) || c.type_ == DISRUPTION_TARGET);
        let mut ours: Vec<_> = ours
            .map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone(), c.message.clone()))
            .collect();
        ours.sort();
        ours
    };
    if ours(old) != ours(new) {
        return false;
    }
    let mut old = old.clone();
    old.conditions.clone_from(&new.conditions);
    old.resource_claim_statuses.clone_from(&new.resource_claim_statuses);
    old.extended_resource_claim_status.clone_from(&new.extended_resource_claim_status);
    old.node_allocatable_resource_claim_statuses
        .clone_from(&new.node_allocatable_resource_claim_statuses);
    old == *new
}

fn exit_code(status: &ContainerStatus) -> Option<i32> {
    let end = status.state.as_ref()?.terminated.as_ref()?;
    Some(end.exit_code)
}
