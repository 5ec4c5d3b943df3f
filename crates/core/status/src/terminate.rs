//! The last word on a pod that is gone from the node.
//!
//! Owned by `compute`, for [`Stage::Terminated`](crate::Stage). In: a computed status. Out: the
//! same with every container ended and a terminal phase. What has no end by now failed: nobody can
//! say that it succeeded.

use ferrolet_types::pod::{Phase, PodView, is_sidecar};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use crate::containers::{NOT_LOCATED, STATUS_UNKNOWN, terminated, unseen_end};

/// Gives an end to everything that has none, and answers the phase that the pod ends in.
pub(crate) fn terminate(pod: &Pod, status: &mut PodStatus, phase: Phase) -> Phase {
    if has_initialized(pod, status) {
        status.container_statuses.iter_mut().flatten().for_each(end);
    }
    if let Some(init) = &mut status.init_container_statuses {
        let n_tried = n_tried(init);
        init.iter_mut().take(n_tried).for_each(end);
    }
    // A static pod's manifest may still be there: its phase is left open.
    if phase.is_terminal() || pod.is_static() { phase } else { Phase::Failed }
}

fn end(status: &mut ContainerStatus) {
    if terminated_code(status).is_none() {
        status.state = Some(terminated(unseen_end(STATUS_UNKNOWN, NOT_LOCATED)));
    }
}

/// True unless init containers kept every regular container from ever starting.
fn has_initialized(pod: &Pod, status: &PodStatus) -> bool {
    let specified = pod.spec_ref().init_containers.as_deref();
    let Some(last) = specified.and_then(<[_]>::last) else {
        return true;
    };
    let regular = status.container_statuses.iter().flatten();
    let last_status = status.init_container_statuses.iter().flatten().last();
    regular.into_iter().any(was_tried)
        || last_status.is_some_and(|status| {
            if is_sidecar(last) {
                let is_running = status.state.as_ref().is_some_and(|s| s.running.is_some());
                is_running && status.started == Some(true)
            } else {
                let before = status.last_state.as_ref();
                let before = before.and_then(|s| s.terminated.as_ref());
                terminated_code(status) == Some(0) || before.is_some_and(|end| end.exit_code == 0)
            }
        })
}

/// How many init containers, from the first, were tried at least once; the first counts always.
fn n_tried(init: &[ContainerStatus]) -> usize {
    init.iter().rposition(was_tried).map_or(1, |last| last + 1)
}

/// True when the container ever left its first wait.
fn was_tried(status: &ContainerStatus) -> bool {
    let is_waiting = status.state.as_ref().is_some_and(|s| s.waiting.is_some());
    let last = status.last_state.as_ref();
    !is_waiting || last.is_some_and(|last| last.terminated.is_some())
}

fn terminated_code(status: &ContainerStatus) -> Option<i32> {
    let end = status.state.as_ref()?.terminated.as_ref()?;
    Some(end.exit_code)
}
