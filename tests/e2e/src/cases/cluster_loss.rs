//! What is taken away from a pod behind the agent's back: its sandbox, or one of its containers.

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::{PodView, wait_until};
use serde_json::json;

use super::{LATER, cases};
use crate::build::{script, sleeper, with};
use crate::cluster::World;
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_dead_sandbox_is_replaced_with_everything_in_it,
    a_container_that_vanished_has_ended_in_an_unknown_way,
];

/// Kills the process that holds a pod's sandbox.
fn kill_sandbox(context: &mut Context<'_>, pod: &PodView) -> Result<()> {
    let containerd = context.containerd()?;
    let all = containerd.containers()?;
    let mut sandboxes = all.iter().filter(|it| it.kind == "sandbox");
    let own = sandboxes.find(|it| it.pod_uid == pod.uid());
    let id = &own.context("it has no sandbox")?.id;
    containerd.ctr(&["tasks", "kill", "--signal", "SIGKILL", id])?;
    Ok(())
}

fn a_dead_sandbox_is_replaced_with_everything_in_it(context: &mut Context<'_>) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let first = script("first", "echo first");
    let again =
        with(world.pod("again", &[sleeper("main")]), json!({"spec": {"initContainers": [first]}}));
    let once =
        with(world.pod("once", &[sleeper("main")]), json!({"spec": {"restartPolicy": "Never"}}));
    let (again, once) = (world.run(&again)?, world.run(&once)?);
    for pod in [&again, &once] {
        kill_sandbox(context, pod)?;
    }
    let seen = world.wait_pod("again", "to be ready in another sandbox", LATER, |pod| {
        let main = pod.container("main");
        pod.condition("Ready") == Some("True") && main.is_ok_and(|it| it.restarts() == 1)
    })?;
    ensure!(
        seen.container("main")?.id() != again.container("main")?.id(),
        "its container outlived its sandbox"
    );
    let init = |pod: &PodView| pod.0["status"]["initContainerStatuses"][0].clone();
    let (before, after) = (init(&again), init(&seen));
    ensure!(
        after["containerID"] != before["containerID"]
            && after["state"]["terminated"]["exitCode"] == 0,
        "its init container did not run again: {after}"
    );
    let said = world.wait_event(&seen, "SandboxChanged")?;
    ensure!(said == "Pod sandbox changed, it will be killed and re-created.", "{said:?}");
    // One that never restarts has lived its life.
    let over = world.wait_pod("once", "Failed", LATER, |pod| pod.phase() == "Failed")?;
    ensure!(
        over.restarts() == 0 && over.container("main")?.id() == once.container("main")?.id(),
        "{}",
        over.0["status"]
    );
    Ok(Outcome::Passed)
}

fn a_container_that_vanished_has_ended_in_an_unknown_way(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut world = World::start(context)?;
    let before = world.run(&world.pod("web", &[sleeper("main")]))?;
    let id = before.container("main")?.id().to_owned();
    world.node.node.kill()?;
    let containerd = context.containerd()?;
    wait_until("the container to vanish", LATER, || {
        // containerd's own watch takes the dead task away as well, and either may come second.
        let ended = containerd.ctr(&["tasks", "delete", "--force", &id]);
        let gone = containerd.ctr(&["containers", "delete", &id]);
        gone.with_context(|| format!("its task: {ended:?}")).map(Some)
    })?;
    // What it has in memory goes with it.
    containerd.kill()?;
    containerd.launch()?;
    world.node.node.launch()?;
    let seen = world.wait_pod("web", "to run again", LATER, |pod| {
        let main = pod.container("main");
        main.is_ok_and(|it| it.is_running() && it.id() != id && it.restarts() == 1)
    })?;
    let last = &seen.container("main")?.0["lastState"]["terminated"];
    ensure!(
        last["reason"] == "ContainerStatusUnknown" && last["exitCode"] == 137,
        "its last state is {last}"
    );
    ensure!(
        last["message"]
            == "The container could not be located when the pod was deleted.  The container used to be Running",
        "its last state is {last}"
    );
    Ok(Outcome::Passed)
}
