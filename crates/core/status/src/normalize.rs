//! A status in the shape that the API will give back: comparing the two must not find differences
//! that mean nothing.
//!
//! Owned by `compute`; also for statuses from elsewhere. Times lose their fractions, lists get
//! their order, and the messages of all containers together stay within a bound, each with an equal
//! share.

use ferrolet_types::{Timestamp, pod::PodView};
use k8s_openapi::{
    api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// Bytes that the termination messages of one pod may take.
const MAX_MESSAGES: usize = 12 * 1024;

/// Brings a status of this pod into the API's shape.
pub fn normalize(pod: &Pod, status: &mut PodStatus) {
    let spec = pod.spec_ref();
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let n_ephemeral = spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
    let n_containers = spec.containers.len() + init.len() + n_ephemeral;
    let share = MAX_MESSAGES / n_containers.max(1);
    cut_time(&mut status.start_time);
    for condition in status.conditions.iter_mut().flatten() {
        cut_time(&mut condition.last_probe_time);
        cut_time(&mut condition.last_transition_time);
    }
    let lists = [
        &mut status.container_statuses,
        &mut status.init_container_statuses,
        &mut status.ephemeral_container_statuses,
    ];
    for container in lists.into_iter().flatten().flatten() {
        cut_state(&mut container.state, share);
        cut_state(&mut container.last_state, share);
    }
    let by_name = |list: &mut Option<Vec<ContainerStatus>>| {
        if let Some(list) = list {
            list.sort_by(|a, b| a.name.cmp(&b.name));
        }
    };
    by_name(&mut status.container_statuses);
    by_name(&mut status.ephemeral_container_statuses);
    if let Some(list) = &mut status.init_container_statuses {
        let place = |status: &ContainerStatus| init.iter().position(|c| c.name == status.name);
        list.sort_by_key(|status| place(status).unwrap_or(usize::MAX));
    }
}

fn cut_state(state: &mut Option<ContainerState>, share: usize) {
    let Some(state) = state else { return };
    if let Some(running) = &mut state.running {
        cut_time(&mut running.started_at);
    }
    if let Some(end) = &mut state.terminated {
        cut_time(&mut end.started_at);
        cut_time(&mut end.finished_at);
        if let Some(message) = &mut end.message {
            message.truncate(message.floor_char_boundary(share));
        }
    }
}

fn cut_time(time: &mut Option<Time>) {
    if let Some(time) = time {
        time.0 = Timestamp(time.0).to_second_precision().0;
    }
}
