//! All containers of a pod start anew in its sandbox, because a rule about one container's exit
//! says so.
//!
//! Everything the runtime has of them is stopped without grace and removed, regular containers
//! before init containers; those whose exit asked for it go last, so that a step that is cut short
//! is asked for again. Their logs stay, and the next restart count is read from them. Upstream:
//! `computePodActions` with `restartAllContainers`.
//!
//! No back-off applies, because nothing is left that could tell of one; but a container that asks
//! as soon as it runs is heard once a second, which is as often as upstream's kubelet looks.

use std::time::Duration;

use ferrolet_pod::{asks_to_restart_all, init_and_regular};
use ferrolet_types::{
    GracePeriod, Timestamp,
    observed::{ObservedContainer, PodObservation},
    pod::PodView,
};
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{Action, Stage, StopCause};

/// From the start of a container to the reset that its exit asks for, at least.
const PACE: Duration = Duration::from_secs(1);

/// The earliest moment of the reset.
pub(crate) fn due(pod: &Pod, seen: &PodObservation) -> Option<Timestamp> {
    let all: Vec<&Container> = init_and_regular(pod.spec_ref()).collect();
    let (sources, _) = split(&all, seen);
    let exits = sources.into_iter().filter_map(|it| it.state.exit());
    exits.map(|exit| exit.started_at.unwrap_or(exit.finished_at).after(PACE)).max()
}

/// The stages that clear the pod of its containers.
pub(crate) fn reset(pod: &Pod, seen: &PodObservation) -> Vec<Stage> {
    let spec = pod.spec_ref();
    let init: Vec<&Container> = spec.init_containers.iter().flatten().collect();
    let regular: Vec<&Container> = spec.containers.iter().collect();
    let (init_sources, init_targets) = split(&init, seen);
    let (sources, targets) = split(&regular, seen);
    let groups = [targets, init_targets, sources, init_sources];
    let mut stages = Vec::new();
    for group in groups {
        let running = group.iter().filter(|it| it.state.exit().is_none());
        stages.push(running.map(|it| kill(it)).collect::<Stage>());
        stages.push(group.iter().map(|it| remove(it)).collect());
    }
    stages.retain(|stage| !stage.is_empty());
    stages
}

/// Those whose exit asked for the reset, and the others, in the order of the specification.
fn split<'a>(
    containers: &[&Container],
    seen: &'a PodObservation,
) -> (Vec<&'a ObservedContainer>, Vec<&'a ObservedContainer>) {
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for container in containers {
        for it in seen.containers.iter().filter(|it| it.name.as_str() == container.name) {
            match it.state.exit() {
                Some(exit) if asks_to_restart_all(container, exit.code) => sources.push(it),
                _ => targets.push(it),
            }
        }
    }
    (sources, targets)
}

fn kill(it: &ObservedContainer) -> Action {
    Action::StopContainer {
        id: it.id.clone(),
        container: it.name.clone(),
        grace: GracePeriod(std::time::Duration::ZERO),
        cause: StopCause::AllRestart,
        after: Vec::new(),
    }
}

fn remove(it: &ObservedContainer) -> Action {
    Action::RemoveContainer { id: it.id.clone(), container: it.name.clone(), log_path: None }
}
