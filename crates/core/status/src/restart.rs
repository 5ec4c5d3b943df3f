//! A pod that restarts in place, as its status tells it.
//!
//! Owned by `containers` and `conditions`. In: the specification, exits, the previous status. Out:
//! yes or no. When a container starts again is `ferrolet_pod`'s rule.

use ferrolet_pod::{asks_to_restart_all, init_and_regular};
use ferrolet_types::{observed::PodObservation, pod::PodView};
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::conditions;

/// Word of the container states that a restart in place leads to.
pub(crate) const RESTARTING_ALL: &str = "RestartingAllContainers";

/// True while the whole pod restarts in place, from the exit that asked for it.
pub(crate) fn is_restarting_all(pod: &Pod, seen: &PodObservation, old: &PodStatus) -> bool {
    let condition = conditions::find(old, conditions::ALL_RESTARTING);
    condition.is_some_and(|condition| condition.status == "True")
        || init_and_regular(pod.spec_ref()).any(|container| {
            // Without an exit of this very container the old status is not asked: it speaks of one
            // that was replaced.
            let exit = seen.newest_container(&container.name).and_then(|c| c.state.exit());
            exit.is_some_and(|exit| {
                asks_to_restart_all(container, exit.code)
                    || published_exit(old, &container.name)
                        .is_some_and(|code| asks_to_restart_all(container, code))
            })
        })
}

/// True when the restart in place has removed every container it set out to remove.
pub(crate) fn is_swept(pod: &Pod, seen: &PodObservation) -> bool {
    init_and_regular(pod.spec_ref()).all(|c| seen.newest_container(&c.name).is_none())
}

fn published_exit(status: &PodStatus, name: &str) -> Option<i32> {
    let init = status.init_container_statuses.iter().flatten();
    let regular = status.container_statuses.iter().flatten();
    let found = init.chain(regular).find(|status| status.name == name)?;
    let terminated = found.state.as_ref()?.terminated.as_ref()?;
    Some(terminated.exit_code)
}
