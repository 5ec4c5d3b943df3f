//! Would this container start again? Restart policies and their exit-code rules, as far as a status must foresee them.
//!
//! Owned by `containers`, `phase` and `conditions`. In: the specification, exits, the previous status. Out: yes or no.
//! Refuses to decide a restart: that is the lifecycle's; both follow the same rules of the API.

use ferrolet_types::{
    observed::{ContainerState, PodObservation},
    pod::{PodView, RestartPolicy, own_restart_policy},
};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};

use crate::conditions;

/// Word of the rule's action and of the container states it leads to.
pub(crate) const RESTARTING_ALL: &str = "RestartingAllContainers";
const RESTART_ALL_ACTION: &str = "RestartAllContainers";

/// True when an exit with this code is followed by another start: rules first, then the container's policy, then the pod's.
pub(crate) fn restarts_after(container: &Container, pod: &Pod, code: i32) -> bool {
    let own = own_restart_policy(container);
    if own.is_some() && matches!(rule_for(container, code), Some("Restart" | RESTART_ALL_ACTION)) {
        return true;
    }
    match own.unwrap_or_else(|| pod.restart_policy()) {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => code != 0,
        RestartPolicy::Never => false,
    }
}

/// True when the next step will start the container: it is not running and nothing forbids it.
pub(crate) fn will_start(container: &Container, pod: &Pod, observation: &PodObservation) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    match observation.newest_container(&container.name).map(|c| &c.state) {
        None | Some(ContainerState::Created | ContainerState::Unknown) => true,
        Some(ContainerState::Running { .. }) => false,
        Some(ContainerState::Exited(exit)) => restarts_after(container, pod, exit.code),
    }
}

/// True when some container's rules may restart the whole pod in place.
pub(crate) fn may_restart_all(spec: &PodSpec) -> bool {
    init_and_regular(spec)
        .flat_map(|container| container.restart_policy_rules.iter().flatten())
        .any(|rule| rule.action == RESTART_ALL_ACTION)
}

/// True while the whole pod restarts in place, from the exit that asked for it.
pub(crate) fn is_restarting_all(pod: &Pod, seen: &PodObservation, old: &PodStatus) -> bool {
    let condition = conditions::find(old, conditions::ALL_RESTARTING);
    condition.is_some_and(|condition| condition.status == "True")
        || init_and_regular(pod.spec_ref()).any(|container| {
            // Without an exit of this very container the old status is not asked: it speaks of one that was replaced.
            let exit = seen.newest_container(&container.name).and_then(|c| c.state.exit());
            exit.is_some_and(|exit| {
                asks_for_all(container, exit.code)
                    || published_exit(old, &container.name)
                        .is_some_and(|code| asks_for_all(container, code))
            })
        })
}

/// True when the restart in place has removed every container it set out to remove.
pub(crate) fn is_swept(pod: &Pod, seen: &PodObservation) -> bool {
    init_and_regular(pod.spec_ref()).all(|c| seen.newest_container(&c.name).is_none())
}

fn asks_for_all(container: &Container, code: i32) -> bool {
    rule_for(container, code) == Some(RESTART_ALL_ACTION)
}

/// The action of the first rule that fits the exit code.
fn rule_for(container: &Container, code: i32) -> Option<&str> {
    let rules = container.restart_policy_rules.iter().flatten();
    let mut fitting = rules.filter(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let is_listed = codes.values.iter().flatten().any(|value| *value == code);
            match codes.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                _ => false,
            }
        })
    });
    fitting.next().map(|rule| rule.action.as_str())
}

fn published_exit(status: &PodStatus, name: &str) -> Option<i32> {
    let init = status.init_container_statuses.iter().flatten();
    let regular = status.container_statuses.iter().flatten();
    let found = init.chain(regular).find(|status| status.name == name)?;
    let terminated = found.state.as_ref()?.terminated.as_ref()?;
    Some(terminated.exit_code)
}

fn init_and_regular(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(spec.containers.iter())
}
