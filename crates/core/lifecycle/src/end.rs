//! The way out: stop what runs, take away what was set up, forget the rest.

use std::time::Duration;

use ferrolet_pod::containers_of;
use ferrolet_types::{
    GracePeriod, Timestamp,
    observed::{ObservedContainer, PodObservation},
    pod::{ContainerKind, PodView},
};

use crate::{
    Action, Facts, KeptContainers, PodState, Stage, Step, StopCause, Wish, facts::Presence,
};

/// Even an impatient stop leaves a process this long to end by itself.
const SHORTEST_STOP: GracePeriod = GracePeriod(Duration::from_secs(2));

/// How long a container that is being stopped has from its signal to its end, when the hook and the
/// wait for others took that much of the grace. The runtime is told whole seconds, so only whole
/// ones are taken away, as upstream counts: else a hook of two seconds would cost three.
pub fn left_to_stop(grace: GracePeriod, spent: Duration) -> GracePeriod {
    let spent = Duration::from_secs(spent.as_secs());
    GracePeriod(grace.0.saturating_sub(spent)).max(SHORTEST_STOP)
}

/// How often upstream looks at what ended pods left.
const HOUSEKEEPING: Duration = Duration::from_secs(2);

/// Stops every container, then every sandbox, and has claims taken back. Sidecars wait for their turn on the pod's time, not
/// on their own.
pub(crate) fn stop(
    facts: &Facts<'_>,
    grace: GracePeriod,
    since: Timestamp,
    now: Timestamp,
) -> Step {
    let mut running = facts.seen.running();
    let is_sidecars_turn = running.all(|it| sidecar_place(facts, it.name.as_str()).is_some());
    let left = if is_sidecars_turn {
        GracePeriod(grace.0.saturating_sub(now.since(since)))
    } else {
        grace
    };
    let mut stages = stop_everything(facts, left);
    if stages.is_empty() && facts.holds_claims {
        // Before anybody is told that the pod is over: others may get its claims from then on.
        stages.push(vec![Action::UnprepareClaims]);
    }
    if stages.is_empty() {
        return take_down(facts, now);
    }
    held_back(Step { stages, ..Step::rest(PodState::Stopping { grace, since }) }, facts, now)
}

/// Which of the pod's sidecars a container is, counted from the first.
fn sidecar_place(facts: &Facts<'_>, name: &str) -> Option<usize> {
    let sidecars = containers_of(facts.pod?, ContainerKind::Sidecar);
    sidecars.iter().position(|sidecar| sidecar.name == name)
}

/// The stages that stop what runs: all containers at once, then sandboxes. Everybody's hook runs at
/// once too, but a sidecar is signalled after the regular containers it serves and after the
/// sidecars that were started later.
pub(crate) fn stop_everything(facts: &Facts<'_>, grace: GracePeriod) -> Vec<Stage> {
    let regular = facts.pod.map(|pod| pod.spec_ref().containers.as_slice()).unwrap_or_default();
    let goes_before = |place: usize, other: &str| {
        regular.iter().any(|it| it.name == other)
            || sidecar_place(facts, other).is_some_and(|it| it > place)
    };
    let stop = |it: &ObservedContainer| {
        let place = sidecar_place(facts, it.name.as_str());
        let is_before = |other: &&ObservedContainer| {
            place.is_some_and(|place| goes_before(place, other.name.as_str()))
        };
        let before = facts.seen.running().filter(is_before);
        Action::StopContainer {
            id: it.id.clone(),
            container: it.name.clone(),
            grace,
            cause: StopCause::PodEnds,
            after: before.map(|other| other.id.clone()).collect(),
        }
    };
    let ready = facts.seen.sandboxes.iter().filter(|sandbox| sandbox.is_ready);
    let mut stages: Vec<Stage> = vec![
        facts.seen.running().map(stop).collect(),
        ready.map(|sandbox| Action::StopSandbox { id: sandbox.id.clone() }).collect(),
    ];
    stages.retain(|stage| !stage.is_empty());
    stages
}

/// Takes away volumes and cgroup of a pod that runs nothing any more.
pub(crate) fn take_down(facts: &Facts<'_>, now: Timestamp) -> Step {
    if is_running_anything(facts.seen) {
        // Something came to life after we looked, a container of a call that was given up for
        // instance.
        let stages = stop_everything(facts, SHORTEST_STOP);
        return held_back(Step { stages, ..Step::rest(PodState::Stopped) }, facts, now);
    }
    if facts.setup.volumes != Presence::Absent {
        return held_back(release_volumes(facts), facts, now);
    }
    if facts.setup.cgroup != Presence::Absent {
        return held_back(
            Step::rest(PodState::Stopped).then(vec![Action::RemoveCgroup]),
            facts,
            now,
        );
    }
    settle(facts, now)
}

/// The cgroup stays until the volumes are gone, so that memory which they hold is counted there and
/// not above. What is left of the pod in it, unknown to the runtime, gets little of the processors
/// meanwhile (upstream: `cleanupOrphanedPodCgroups`).
fn release_volumes(facts: &Facts<'_>) -> Step {
    let release = Action::ReleaseVolumes { lower_after: HOUSEKEEPING };
    let step = Step::rest(PodState::Stopped);
    match facts.pod_failure {
        None => step.then(vec![release]),
        // It will take longer: this is not the first try.
        Some(_) => step.then(vec![Action::LowerCpu]).then(vec![release]),
    }
}

/// Keeps what logs and status need, only the status when the pod was evicted, or nothing at all
/// when it is to be forgotten. A pod that begins anew finds what is there.
pub(crate) fn settle(facts: &Facts<'_>, now: Timestamp) -> Step {
    if matches!(facts.wish, Wish::Renew { .. }) {
        return Step::rest(PodState::Gone);
    }
    let is_forgotten = matches!(facts.wish, Wish::Forget { .. });
    if let (false, KeptContainers::Newest(n_kept)) = (is_forgotten, facts.kept) {
        let step = Step::rest(PodState::Settled).then(surplus(facts.seen, n_kept));
        return held_back(step, facts, now);
    }
    let containers: Stage = facts
        .seen
        .containers
        .iter()
        .map(|dead| Action::RemoveContainer {
            id: dead.id.clone(),
            container: dead.name.clone(),
            log_path: None,
        })
        .collect();
    let sandboxes: Stage = facts
        .seen
        .sandboxes
        .iter()
        .map(|dead| Action::RemoveSandbox { id: dead.id.clone() })
        .collect();
    if !containers.is_empty() || !sandboxes.is_empty() {
        return held_back(
            Step::rest(PodState::Settled).then(containers).then(sandboxes),
            facts,
            now,
        );
    }
    let mut remains = Vec::new();
    if is_forgotten && facts.setup.files != Presence::Absent {
        remains.push(Action::RemoveFiles);
    }
    if facts.setup.logs != Presence::Absent {
        remains.push(Action::RemoveLogs);
    }
    match (remains.is_empty(), is_forgotten) {
        (true, true) => return Step::rest(PodState::Gone),
        (true, false) => return Step::rest(PodState::Settled),
        (false, _) => {}
    }
    held_back(Step::rest(PodState::Settled).then(remains), facts, now)
}

/// Dead containers that nobody looks at any more: all but the newest few of each name. Logs go with
/// them.
pub(crate) fn surplus(seen: &PodObservation, n_kept: usize) -> Stage {
    let mut stage = Vec::new();
    for (index, container) in seen.containers.iter().enumerate() {
        let is_dead = container.state.exit().is_some();
        let newer_dead = seen.containers[..index]
            .iter()
            .filter(|it| it.name == container.name && it.state.exit().is_some());
        if is_dead && newer_dead.count() >= n_kept {
            stage.push(Action::RemoveContainer {
                id: container.id.clone(),
                container: container.name.clone(),
                log_path: Some(container.log_path.clone()),
            });
        }
    }
    for (index, sandbox) in seen.sandboxes.iter().enumerate() {
        let is_used = seen.containers.iter().any(|container| container.sandbox == sandbox.id);
        if index > 0 && !sandbox.is_ready && !is_used {
            stage.push(Action::RemoveSandbox { id: sandbox.id.clone() });
        }
    }
    stage
}

pub(crate) fn is_running_anything(seen: &PodObservation) -> bool {
    seen.running().next().is_some() || seen.sandboxes.iter().any(|sandbox| sandbox.is_ready)
}

/// After a failure the same step waits its turn instead of spinning.
pub(crate) fn held_back(mut step: Step, facts: &Facts<'_>, now: Timestamp) -> Step {
    let due = facts.pod_failure.map(|failure| failure.retry_at(&facts.back_off));
    if let Some(due) = due.filter(|due| *due > now && !step.stages.is_empty()) {
        step.stages.clear();
        step.wake(due);
    }
    step
}
