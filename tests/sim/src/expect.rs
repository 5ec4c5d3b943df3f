//! What must be true in the end, when nothing goes wrong any more.

use std::time::Duration;

use ferrolet_testkit::{Script, World};
use ferrolet_types::{PodUid, observed::ContainerState, pod::RestartPolicy};

use crate::{
    shape::{MISSING, Part, Shape},
    watch::StatusWatch,
};

/// The longest wait of a crash loop or a failed pull, and some.
const LONGEST_WAIT: Duration = Duration::from_secs(310);

/// A wanted pod, long after the last fault.
pub(crate) struct Wanted<'a> {
    pub(crate) uid: &'a PodUid,
    pub(crate) shape: &'a Shape,
    /// Its sandbox or containers were killed, so one that does not restart may have ended early.
    pub(crate) is_disturbed: bool,
}

/// Says what is wrong with a pod, if something is.
pub(crate) fn check(wanted: &Wanted<'_>, world: &World, watch: &StatusWatch) -> Result<(), String> {
    let Wanted {
        uid,
        shape,
        is_disturbed,
    } = wanted;
    let Some(phase) = watch.phase(uid) else {
        return Err(format!("{uid} is wanted and has no status"));
    };
    if phase == "Succeeded" || phase == "Failed" {
        return check_ended(uid, shape, &phase, world);
    }
    let never = shape.policy == RestartPolicy::Never;
    if never && *is_disturbed || is_blocked(shape) {
        return Ok(());
    }
    for part in shape.regular.iter().filter(|part| part.image != MISSING) {
        check_part(uid, shape, part, world)?;
    }
    Ok(())
}

/// An ended pod runs nothing and keeps nothing but its containers.
fn check_ended(uid: &PodUid, shape: &Shape, phase: &str, world: &World) -> Result<(), String> {
    if shape.policy == RestartPolicy::Always {
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
    shape
        .init
        .iter()
        .any(|part| part.image == MISSING || fails(part))
        || shape.sidecars.iter().any(|part| part.image == MISSING)
}

/// A regular container runs, waits for its turn to restart, or has ended as its policy allows.
fn check_part(uid: &PodUid, shape: &Shape, part: &Part, world: &World) -> Result<(), String> {
    let name = &part.name;
    let Some(newest) = world.newest_container(uid, name) else {
        return match part.last() {
            Script::FailsToCreate(_) => Ok(()),
            _ => Err(format!("{uid}: {name} was never made")),
        };
    };
    match &newest.state {
        ContainerState::Running { .. } => Ok(()),
        ContainerState::Exited(exit) => {
            let is_over = match shape.policy {
                RestartPolicy::Always => false,
                RestartPolicy::OnFailure => exit.code == 0,
                RestartPolicy::Never => true,
            };
            let waits = world.now().since(exit.finished_at) <= LONGEST_WAIT && !part.stays();
            let cannot = matches!(part.last(), Script::FailsToCreate(_));
            if is_over || waits || cannot {
                return Ok(());
            }
            Err(format!(
                "{uid}: {name} ended {exit:?} and does not come back"
            ))
        }
        ContainerState::Created if part.stays() => {
            Err(format!("{uid}: {name} was made and never started"))
        }
        ContainerState::Created | ContainerState::Unknown => Ok(()),
    }
}
