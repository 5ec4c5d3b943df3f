//! What must be true in the end, when nothing goes wrong any more.

use std::time::Duration;

use ferrolet_testkit::{FakeClusterApi, Script, World};
use ferrolet_types::{
    Pod, PodUid,
    observed::ContainerState,
    pod::{PodView as _, RestartPolicy},
};
use k8s_openapi::api::core::v1::PodStatus;

use crate::{
    manners::RESET,
    shape::{MISSING, Part, Shape},
    watch::StatusWatch,
};

/// The longest wait of a crash loop or a failed pull, and some.
const LONGEST_WAIT: Duration = Duration::from_secs(310);

/// A wanted pod, long after the last fault.
pub(crate) struct Wanted<'a> {
    pub(crate) uid: &'a PodUid,
    pub(crate) pod: &'a Pod,
    pub(crate) shape: &'a Shape,
    /// Its sandbox or containers were killed, so one that does not restart may have ended early.
    pub(crate) is_disturbed: bool,
    /// The node could not afford it.
    pub(crate) is_evicted: bool,
}

/// Says what is wrong with a pod, if something is.
pub(crate) fn check(wanted: &Wanted<'_>, world: &World, watch: &StatusWatch) -> Result<(), String> {
    let Wanted { uid, pod, shape, is_disturbed, is_evicted } = wanted;
    let Some(phase) = watch.phase(uid) else {
        return Err(format!("{uid} is wanted and has no status"));
    };
    if phase == "Succeeded" || phase == "Failed" {
        let may_end = *is_evicted || shape.can_end();
        return check_ended(uid, may_end, &phase, world);
    }
    if shape.deadline.is_some() {
        return Err(format!("{uid} has outlived its deadline and is {phase}"));
    }
    let never = shape.policy == RestartPolicy::Never;
    // Where everything starts anew all the time, nothing has run for long.
    let is_restless = shape.parts().any(Part::resets_for_ever);
    if never && *is_disturbed || is_blocked(shape) || is_restless {
        return Ok(());
    }
    for part in shape.regular.iter().filter(|part| part.image != MISSING) {
        if check_part(uid, shape, part, world)? {
            check_shown(uid, part, watch)?;
            check_bounds(uid, pod, part, world)?;
        }
    }
    Ok(())
}

/// The API server has of a pod what the agent last said of it: of a static one in its mirror.
pub(crate) fn check_reported(
    wanted: &Wanted<'_>,
    api: &FakeClusterApi,
    watch: &StatusWatch,
) -> Result<(), String> {
    let (uid, key) = (wanted.uid, wanted.pod.key());
    let Some(stored) = api.pod(&key) else {
        return Err(format!("{uid} is wanted and the API server does not have {key}"));
    };
    let is_of_it = match wanted.pod.is_static() {
        true => stored.is_mirror(),
        false => stored.uid() == *uid,
    };
    if !is_of_it {
        return Err(format!("{key} at the API server is not {uid}"));
    }
    let in_api = stored.status.clone().unwrap_or_default();
    let said = watch.status(uid).unwrap_or_default();
    let shown = |status: &PodStatus| {
        let containers = status.container_statuses.iter().flatten();
        let containers: Vec<_> =
            containers.map(|it| (it.name.clone(), it.ready, it.restart_count)).collect();
        (status.phase.clone(), containers)
    };
    if shown(&in_api) != shown(&said) {
        return Err(format!(
            "{uid}: the API server has {:?} and the agent says {:?}",
            shown(&in_api),
            shown(&said)
        ));
    }
    Ok(())
}

/// What has run for long in peace is ready, and said to be.
fn check_shown(uid: &PodUid, part: &Part, watch: &StatusWatch) -> Result<(), String> {
    let status = watch.status(uid).unwrap_or_default();
    let mut shown = status.container_statuses.into_iter().flatten();
    let shown = shown.find(|it| it.name == part.name);
    match shown {
        Some(it) if it.ready && it.started == Some(true) => Ok(()),
        // It began a moment ago, and will end in another one.
        Some(_) if !part.stays() => Ok(()),
        other => Err(format!("{uid}: {} runs and is shown as {other:?}", part.name)),
    }
}

/// What a container was granted is in force.
fn check_bounds(uid: &PodUid, pod: &Pod, part: &Part, world: &World) -> Result<(), String> {
    let specified = pod.find_container(&part.name);
    let resources = specified.and_then(|(_, it)| it.resources.as_ref());
    let limits = resources.and_then(|it| it.limits.as_ref());
    let memory = limits.and_then(|it| it.get("memory")?.0.parse::<i64>().ok());
    let newest = world.newest_container(uid, &part.name);
    let in_force = newest.map(|it| it.spec.resources.memory_limit);
    if memory.is_some() && memory != in_force {
        return Err(format!(
            "{uid}: {} has {in_force:?} bytes of memory instead of {memory:?}",
            part.name
        ));
    }
    Ok(())
}

/// An ended pod runs nothing and keeps nothing but its containers.
fn check_ended(uid: &PodUid, may_end: bool, phase: &str, world: &World) -> Result<(), String> {
    if !may_end {
        return Err(format!("{uid} always restarts and is {phase}"));
    }
    let containers = world.containers_of(uid);
    let mut sandboxes = world.sandboxes().into_iter();
    if containers.iter().any(|it| it.state.is_running())
        || sandboxes.any(|it| it.spec.uid == *uid && it.is_ready)
        || world.pod_cgroups().contains_key(uid)
        || world.ready_volumes(uid).is_some()
    {
        return Err(format!("{uid} is {phase} and not cleaned up"));
    }
    Ok(())
}

/// True when an init container or sidecar holds the others back for good.
fn is_blocked(shape: &Shape) -> bool {
    let fails = |part: &Part| !matches!(part.last(), Script::ExitsAfter(_, 0));
    shape.init.iter().any(|part| part.image == MISSING || fails(part))
        || shape.sidecars.iter().any(|part| part.image == MISSING)
}

/// A regular container runs (then true), waits for its turn to restart, or has ended as its policy
/// allows.
fn check_part(uid: &PodUid, shape: &Shape, part: &Part, world: &World) -> Result<bool, String> {
    let name = &part.name;
    let Some(newest) = world.newest_container(uid, name) else {
        return match part.last() {
            Script::FailsToCreate(_) => Ok(false),
            _ => Err(format!("{uid}: {name} was never made")),
        };
    };
    match &newest.state {
        ContainerState::Running { .. } => Ok(true),
        ContainerState::Exited(exit) => {
            let is_over = match shape.policy_of(part) {
                _ if part.manners.resets && exit.code == RESET => false,
                RestartPolicy::Always => false,
                RestartPolicy::OnFailure => exit.code == 0,
                RestartPolicy::Never => true,
            };
            let waits = world.now().since(exit.finished_at) <= LONGEST_WAIT && !part.stays();
            let cannot = matches!(part.last(), Script::FailsToCreate(_));
            if is_over || waits || cannot {
                return Ok(false);
            }
            Err(format!("{uid}: {name} ended {exit:?} and does not come back"))
        }
        ContainerState::Created if part.stays() => {
            Err(format!("{uid}: {name} was made and never started"))
        }
        ContainerState::Created | ContainerState::Unknown => Ok(false),
    }
}
