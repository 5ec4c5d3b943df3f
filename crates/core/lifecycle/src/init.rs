//! Init containers and sidecars: which is next, which must come back.
//!
//! The list is read from its end, because a runtime may have forgotten init containers that ended
//! long ago: the last one that left a trace says how far the pod is.

use ferrolet_pod::{restarts_on_failure, should_start};
use ferrolet_types::{
    observed::{ContainerState, ObservedContainer},
    pod::{ContainerKind, PodView, init_kind},
};
use k8s_openapi::api::core::v1::Container;

use crate::{StopCause, facts::Verdict, run::Plan};

/// How far initialisation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InitProgress {
    /// Regular containers may start.
    Done,
    /// Something must run first.
    UnderWay,
    /// An init container failed for good.
    Failed,
}

/// Plans init containers and sidecars, first to last.
pub(crate) fn plan_init(plan: &mut Plan<'_>) -> InitProgress {
    let pod = plan.pod;
    let list = pod.spec_ref().init_containers.as_deref().unwrap_or_default();
    // A regular container in this sandbox proves that every init container was done once.
    let mut regular = pod.spec_ref().containers.iter();
    let is_initialised = list.is_empty() || regular.any(|it| here(plan, &it.name).is_some());
    if is_initialised {
        for sidecar in list.iter().filter(|it| init_kind(it) == ContainerKind::Sidecar) {
            let seen = here(plan, &sidecar.name);
            keep_sidecar(plan, sidecar, seen);
        }
        return InitProgress::Done;
    }
    // Everything before the last one that left a trace was done before it; only sidecars among them
    // still matter.
    let position = list.iter().rposition(|it| here(plan, &it.name).is_some());
    let earlier = &list[..position.unwrap_or(0)];
    for sidecar in earlier.iter().filter(|it| init_kind(it) == ContainerKind::Sidecar) {
        let seen = here(plan, &sidecar.name);
        keep_sidecar(plan, sidecar, seen);
    }
    let Some(index) = position else {
        plan.start(&list[0], init_kind(&list[0]));
        return InitProgress::UnderWay;
    };
    let current = &list[index];
    let Some(seen) = here(plan, &current.name) else {
        return InitProgress::UnderWay;
    };
    match outcome(plan, current, seen) {
        Outcome::Done => match list.get(index + 1) {
            Some(next) => {
                plan.start(next, init_kind(next));
                InitProgress::UnderWay
            }
            None => InitProgress::Done,
        },
        Outcome::UnderWay => InitProgress::UnderWay,
        Outcome::Failed => InitProgress::Failed,
    }
}

/// The newest container of that name, if it lives in the sandbox that is in use.
fn here<'a>(plan: &Plan<'a>, name: &str) -> Option<&'a ObservedContainer> {
    plan.facts.seen.newest_container(name).filter(|it| it.sandbox == *plan.sandbox)
}

enum Outcome {
    Done,
    UnderWay,
    Failed,
}

fn outcome(plan: &mut Plan<'_>, container: &Container, seen: &ObservedContainer) -> Outcome {
    if init_kind(container) == ContainerKind::Sidecar {
        keep_sidecar(plan, container, Some(seen));
        // One that is replaced because it changed has started all the same: nobody waits for its
        // successor.
        return if seen.state.is_running() && has_started(plan, container) {
            Outcome::Done
        } else {
            Outcome::UnderWay
        };
    }
    match &seen.state {
        ContainerState::Running { .. } => {
            plan.keep(seen);
            Outcome::UnderWay
        }
        ContainerState::Exited(exit) if exit.is_success() => Outcome::Done,
        ContainerState::Created => {
            plan.start(container, ContainerKind::Init);
            Outcome::UnderWay
        }
        ContainerState::Exited(_) if should_start(plan.pod, container, Some(seen)) => {
            plan.start(container, ContainerKind::Init);
            Outcome::UnderWay
        }
        ContainerState::Unknown if restarts_on_failure(plan.pod, container) => {
            plan.replace(container, ContainerKind::Init, seen, StopCause::Unknown);
            Outcome::UnderWay
        }
        ContainerState::Exited(_) | ContainerState::Unknown => Outcome::Failed,
    }
}

/// A sidecar runs whenever the pod does.
fn keep_sidecar(plan: &mut Plan<'_>, sidecar: &Container, seen: Option<&ObservedContainer>) {
    match seen.map(|it| (it, &it.state)) {
        Some((it, ContainerState::Running { .. })) => match startup(plan, sidecar) {
            // Whatever else there is about it, whether it starts at all comes first.
            Verdict::Pending => {}
            Verdict::Failure { .. } => {
                plan.replace(sidecar, ContainerKind::Sidecar, it, StopCause::NotStarted);
            }
            Verdict::Success => match plan.why_stop(sidecar, it) {
                Some((cause, _)) => plan.replace(sidecar, ContainerKind::Sidecar, it, cause),
                None => plan.keep(it),
            },
        },
        Some((it, ContainerState::Unknown)) => {
            plan.replace(sidecar, ContainerKind::Sidecar, it, StopCause::Unknown);
        }
        Some((_, ContainerState::Created | ContainerState::Exited(_))) | None => {
            plan.start(sidecar, ContainerKind::Sidecar);
        }
    }
}

fn has_started(plan: &Plan<'_>, container: &Container) -> bool {
    startup(plan, container) == Verdict::Success
}

/// Without a startup probe, running is enough.
fn startup(plan: &Plan<'_>, container: &Container) -> Verdict {
    if container.startup_probe.is_none() {
        return Verdict::Success;
    }
    let probes = plan.facts.probes.get(container.name.as_str());
    probes.map_or(Verdict::Pending, |probes| probes.started)
}
