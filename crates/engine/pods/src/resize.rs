//! Puts granted resources in force, step by step, and notes each step that the runtime has
//! accepted.

use std::time::Duration;

use ferrolet_ports::{PodBounds, RuntimeError, RuntimeErrorKind};
use ferrolet_resources::{
    LinuxResources, PodResources, ResizePlan, ResizeStep, overhead_resources, plan_resize,
};
use ferrolet_types::{ContainerId, ContainerName, Pod, SandboxId, pod::PodView};

use crate::{World, execute::Outcome, memory::Memory, metrics};

/// Resizes the pod and those of its containers that run.
pub(crate) async fn resize(
    world: &World,
    memory: &Memory,
    pod: &Pod,
    sandbox: &SandboxId,
    containers: Vec<(ContainerName, ContainerId)>,
) -> Outcome {
    let mut actuated = memory.made.actuated().cloned().unwrap_or_else(|| PodResources::of(pod));
    let running: Vec<(String, ContainerId)> =
        containers.into_iter().map(|(name, id)| (name.to_string(), id)).collect();
    let mut node = world.settings.spec.resources.clone();
    node.cgroups = world.cgroup_policy(pod);
    let plan = plan_resize(pod, &actuated, &running, &node);
    let done = metrics::resized(async {
        check_memory(world, pod, &plan).await?;
        carry_out(world, pod, sandbox, plan, &mut actuated).await
    })
    .await;
    Outcome::Resized { actuated, error: done.err() }
}

async fn carry_out(
    world: &World,
    pod: &Pod,
    sandbox: &SandboxId,
    plan: ResizePlan,
    actuated: &mut PodResources,
) -> Result<(), String> {
    let mut known = plan.announced_before;
    for step in plan.steps {
        match step {
            ResizeStep::Pod { resource, cgroup, announced } => {
                announce(world, pod, sandbox, &announced)
                    .await
                    .map_err(|error| rejected(resource, sandbox, &error))?;
                if let Err(error) = world.cgroups.ensure(&cgroup).await {
                    take_back(world, pod, sandbox, &known).await;
                    return Err(error.to_string());
                }
                known = announced;
            }
            ResizeStep::Container { name, id, resources, actuated: now } => {
                world
                    .runtime
                    .update_container(&id, &resources)
                    .await
                    .map_err(|error| error.to_string())?;
                actuated.containers.insert(name, now);
            }
            ResizeStep::PodRecord(now) => actuated.pod = Some(now),
        }
        world.records.put_in_force(&pod.uid(), actuated);
    }
    Ok(())
}

/// Tells the runtime first: one that refuses has refused the resize.
async fn announce(
    world: &World,
    pod: &Pod,
    sandbox: &SandboxId,
    resources: &LinuxResources,
) -> Result<(), RuntimeError> {
    let overhead = overhead_resources(pod, &world.settings.spec.resources);
    let bounds = PodBounds { resources, overhead: &overhead };
    match world.runtime.announce_resources(sandbox, bounds).await {
        Err(error) if !is_unimplemented(&error) => Err(error),
        _ => Ok(()),
    }
}

/// True for a runtime that has no such call; containerd 2.2 says so without the code for it.
fn is_unimplemented(error: &RuntimeError) -> bool {
    match error.kind {
        RuntimeErrorKind::Unimplemented => true,
        RuntimeErrorKind::Unknown => error.message.contains("not implemented"),
        _ => false,
    }
}

/// Tells the runtime that what it was told last is not so.
async fn take_back(world: &World, pod: &Pod, sandbox: &SandboxId, known: &LinuxResources) {
    if let Err(error) = announce(world, pod, sandbox, known).await {
        tracing::warn!(pod = %pod.key(), %error, "The runtime cannot be told that a resize failed");
    }
}

/// A resize that the runtime refused, in upstream's words.
fn rejected(resource: &str, sandbox: &SandboxId, error: &RuntimeError) -> String {
    let id = sandbox.as_str();
    format!(
        "failed to notify runtime for UpdatePodSandboxResources (resource={resource}); resize rejected: \
         updatePodSandboxResources failed for sanboxID {id:?}: {error}"
    )
}

/// How old a reading may be that a limit is held against.
const FRESH: Duration = Duration::from_secs(1);

/// Refuses limits below what is in use: the kernel would refuse them too, but only half way
/// through.
async fn check_memory(world: &World, pod: &Pod, plan: &ResizePlan) -> Result<(), String> {
    let Some(usage) = &world.usage else {
        return Ok(());
    };
    if plan.pod_memory.is_none() && plan.container_memory.is_empty() {
        return Ok(());
    }
    let uid = pod.uid();
    let snapshot = usage.snapshot(FRESH).await;
    let used =
        snapshot.ok().and_then(|it| it.pods.iter().find(|it| it.uid == uid).cloned()).ok_or_else(
            || format!("unable to read memory usage for pod {:?}", pod.key().to_string()),
        )?;
    let mut faults = Vec::new();
    if let Some(limit) = plan.pod_memory {
        match used.total.memory.map(|it| it.usage) {
            None => faults.push("missing pod memory usage".to_owned()),
            Some(usage) if is_below(limit, usage) => faults.push(format!(
                "attempting to set pod memory limit ({limit}) below current usage ({usage})"
            )),
            Some(_) => {}
        }
    }
    for (name, id, limit) in &plan.container_memory {
        let found = used.containers.iter().find(|(it, _)| it == id);
        match found.and_then(|(_, it)| it.memory).map(|it| it.usage) {
            None => faults.push(format!("missing container {name:?} memory usage")),
            Some(usage) if is_below(*limit, usage) => faults.push(format!(
                "attempting to set container {name:?} memory limit ({limit}) below current usage ({usage})"
            )),
            Some(_) => {}
        }
    }
    match faults.as_slice() {
        [] => Ok(()),
        [one] => Err(format!("cannot decrease memory limits: {one}")),
        many => Err(format!("cannot decrease memory limits: [{}]", many.join(", "))),
    }
}

fn is_below(limit: i64, usage: u64) -> bool {
    u64::try_from(limit).is_ok_and(|limit| usage >= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Actuation: a runtime without the call does not hold a resize up.
    #[test]
    fn a_runtime_may_have_no_such_call() {
        for (kind, message, expected) in [
            (RuntimeErrorKind::Unimplemented, "", true),
            (RuntimeErrorKind::Unknown, "not implemented yet", true),
            (RuntimeErrorKind::Unknown, "no room", false),
            (RuntimeErrorKind::Internal, "not implemented yet", false),
        ] {
            let error = RuntimeError {
                call: "UpdatePodSandboxResources",
                kind,
                message: message.to_owned(),
            };
            assert_eq!(is_unimplemented(&error), expected, "{error}");
        }
    }
}
