//! Whether a container that ended is started again.

use ferrolet_types::{
    observed::{ContainerState, Exit, ObservedContainer},
    pod::{PodView, RestartPolicy, own_restart_policy},
};
use k8s_openapi::api::core::v1::{Container, Pod};

/// True when a container shall be started, given the newest one of its name.
///
/// Its own policy stands above the pod's; a rule of its own that matches the exit code stands above both.
pub fn should_restart(
    pod: &Pod,
    container: &Container,
    newest: Option<&ObservedContainer>,
) -> bool {
    if pod.deletion_time().is_some() {
        return false;
    }
    match newest.map(|it| &it.state) {
        None | Some(ContainerState::Created | ContainerState::Unknown) => true,
        Some(ContainerState::Running { .. }) => false,
        Some(ContainerState::Exited(exit)) => restarts_after(pod, container, exit),
    }
}

fn restarts_after(pod: &Pod, container: &Container, exit: &Exit) -> bool {
    if has_matching_rule(container, exit.code) {
        return true;
    }
    match effective_policy(pod, container) {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit.code != 0,
        RestartPolicy::Never => false,
    }
}

/// True when a failure is followed by a restart at all.
pub fn restarts_on_failure(pod: &Pod, container: &Container) -> bool {
    effective_policy(pod, container) != RestartPolicy::Never
}

/// The container's own policy, else the pod's.
pub(crate) fn effective_policy(pod: &Pod, container: &Container) -> RestartPolicy {
    own_restart_policy(container).unwrap_or_else(|| pod.restart_policy())
}

/// The first rule that matches the exit code decides; every action there is means a restart.
fn has_matching_rule(container: &Container, code: i32) -> bool {
    matching_action(container, code).is_some()
}

/// True when an exit with this code makes the whole pod start anew in place.
pub(crate) fn restarts_all(container: &Container, code: i32) -> bool {
    matching_action(container, code) == Some("RestartAllContainers")
}

fn matching_action(container: &Container, code: i32) -> Option<&str> {
    let mut rules = container.restart_policy_rules.iter().flatten();
    let rule = rules.find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.iter().flatten().any(|value| *value == code);
            match codes.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        })
    });
    rule.map(|rule| rule.action.as_str())
}
