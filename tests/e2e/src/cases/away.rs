//! The agent or the runtime is away for a while.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::wait::stays_true;
use ferrolet_lab::{Node, cgroups};

use super::{GONE, LATER, SOON, cases, wait_running};
use crate::build::{pod, script, sleeper};
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_runtime_that_disappears_and_comes_back_is_used_again,
    a_missing_runtime_socket_is_waited_for,
    a_killed_agent_adopts_its_containers_untouched,
    a_manifest_removed_while_the_agent_is_down_is_torn_down,
    a_manifest_edited_while_the_agent_is_down_is_replaced,
    a_half_made_pod_is_completed,
    a_container_that_died_while_the_agent_was_down_is_restarted,
    a_polite_stop_leaves_the_containers_alone,
    restart_counts_survive_the_runtime_and_the_agent,
    a_pod_whose_cgroup_is_elsewhere_is_killed_once_and_made_anew,
];

fn ids(context: &mut Context<'_>) -> Result<BTreeSet<String>> {
    Ok(context.containerd()?.containers()?.into_iter().map(|it| it.id).collect())
}

fn relaunch(node: &mut Node) -> Result<()> {
    node.launch()?;
    node.wait_healthy()
}

fn a_killed_agent_adopts_its_containers_untouched(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    for name in ["one", "two"] {
        node.put_pod(&pod(name, &[sleeper("main"), sleeper("side")]))?;
        wait_running(&mut node, name)?;
    }
    let before = ids(context)?;
    for _ in 0..3 {
        node.kill()?;
        relaunch(&mut node)?;
        for name in ["one", "two"] {
            let seen = wait_running(&mut node, name)?;
            ensure!(seen.restarts() == 0, "{name} was restarted");
        }
    }
    stays_true("the same containers", Duration::from_secs(3), || Ok(ids(context)? == before))?;
    Ok(Outcome::Passed)
}

fn a_polite_stop_leaves_the_containers_alone(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("stays", &[sleeper("main")]))?;
    wait_running(&mut node, "stays")?;
    let before = context.containerd()?.tasks()?;
    node.stop()?;
    ensure!(context.containerd()?.tasks()? == before, "stopping the agent touched containers");
    relaunch(&mut node)?;
    wait_running(&mut node, "stays")?;
    ensure!(context.containerd()?.tasks()? == before, "starting the agent touched containers");
    Ok(Outcome::Passed)
}

fn a_manifest_removed_while_the_agent_is_down_is_torn_down(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("leaves", &[sleeper("main")]))?;
    node.put_pod(&pod("stays", &[sleeper("main")]))?;
    let leaves = wait_running(&mut node, "leaves")?;
    let stays = wait_running(&mut node, "stays")?;
    node.kill()?;
    node.remove_manifest("leaves.yaml")?;
    relaunch(&mut node)?;
    let containerd = context.containerd()?;
    node.wait("the removed pod to be gone", GONE, |node| {
        look::ensure_gone(node, containerd, &leaves).map(Some)
    })?;
    let same = wait_running(&mut node, "stays")?;
    ensure!(
        same.container("main")?.id() == stays.container("main")?.id(),
        "the other pod was restarted"
    );
    Ok(Outcome::Passed)
}

fn a_manifest_edited_while_the_agent_is_down_is_replaced(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("edited", &[sleeper("main")]))?;
    let before = wait_running(&mut node, "edited")?;
    node.kill()?;
    node.put_pod(&pod("edited", &[script("main", "echo second; exec sleep 100000")]))?;
    relaunch(&mut node)?;
    node.wait_pod("edited", "running anew", LATER, |pod| {
        pod.uid() != before.uid() && pod.container("main").is_ok_and(|it| it.is_running())
    })?;
    let containerd = context.containerd()?;
    node.wait("the old pod to be gone", GONE, |node| {
        look::ensure_gone(node, containerd, &before).map(Some)
    })?;
    Ok(Outcome::Passed)
}

fn a_half_made_pod_is_completed(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("half", &[sleeper("a"), sleeper("b"), sleeper("c")]))?;
    // Killed as soon as the sandbox exists: whatever is missing then is the next agent's work.
    node.wait("a sandbox", SOON, |_| {
        let n = look::n_sandboxes(context.containerd()?)?;
        Ok((n > 0).then_some(()))
    })?;
    node.kill()?;
    relaunch(&mut node)?;
    wait_running(&mut node, "half")?;
    let n = look::n_sandboxes(context.containerd()?)?;
    ensure!(n == 1, "{n} sandboxes");
    Ok(Outcome::Passed)
}

fn a_container_that_died_while_the_agent_was_down_is_restarted(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("mortal", &[sleeper("main")]))?;
    let seen = wait_running(&mut node, "mortal")?;
    let id = seen.container("main")?.id().to_owned();
    node.kill()?;
    context.containerd()?.ctr(&["tasks", "kill", "--signal", "SIGKILL", &id])?;
    relaunch(&mut node)?;
    let seen = node.wait_pod("mortal", "restarted once", LATER, |pod| {
        pod.restarts() == 1 && pod.container("main").is_ok_and(|it| it.is_running())
    })?;
    ensure!(seen.container("main")?.last_exit_code() == Some(137), "{}", seen.0["status"]);
    Ok(Outcome::Passed)
}

fn a_runtime_that_disappears_and_comes_back_is_used_again(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("before", &[sleeper("main")]))?;
    let before = wait_running(&mut node, "before")?;
    context.containerd()?.kill()?;
    node.put_pod(&pod("during", &[sleeper("main")]))?;
    // The agent stays, and still answers, without a runtime.
    node.wait("an answer without a runtime", SOON, |node| node.pods().map(Some))?;
    let pid = node.pid()?;
    context.containerd()?.launch()?;
    let during = node.wait_pod("during", "running", LATER, |pod| pod.phase() == "Running")?;
    ensure!(during.restarts() == 0, "the new pod was restarted");
    let same = wait_running(&mut node, "before")?;
    ensure!(
        same.container("main")?.id() == before.container("main")?.id(),
        "the old pod was restarted"
    );
    ensure!(node.pid()? == pid, "the agent was restarted");
    Ok(Outcome::Passed)
}

fn a_missing_runtime_socket_is_waited_for(context: &mut Context<'_>) -> Result<Outcome> {
    let options = context.node_options();
    context.containerd()?.kill()?;
    let mut node = context.prepare(options)?;
    node.put_pod(&pod("patient", &[sleeper("main")]))?;
    node.launch()?;
    // Not there for a while, then there: the agent must neither end nor need help.
    let began = std::time::Instant::now();
    node.wait("three seconds without a runtime", SOON, |_| {
        Ok((began.elapsed() > Duration::from_secs(3)).then_some(()))
    })
    .context("the agent must outlive a missing runtime")?;
    context.containerd()?.launch()?;
    node.wait_pod("patient", "running", LATER, |pod| pod.phase() == "Running")?;
    Ok(Outcome::Passed)
}

fn restart_counts_survive_the_runtime_and_the_agent(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    // Ends once, and then whenever it is told to.
    let text = "n=$(cat /dev/shm/n 2>/dev/null || echo 0); echo $((n + 1)) > /dev/shm/n; \
        [ $n -eq 0 ] && exit 7; while [ ! -e /dev/shm/end ]; do sleep 0.1; done; rm /dev/shm/end; exit 8";
    node.put_pod(&pod("counted", &[script("main", text)]))?;
    let again = |pod: &ferrolet_lab::PodView, n: u64, code: i64| {
        pod.container("main").is_ok_and(|it| {
            it.is_running() && it.restarts() == n && it.last_exit_code() == Some(code)
        })
    };
    let before = node.wait_pod("counted", "one restart", LATER, |pod| again(pod, 1, 7))?;
    node.kill()?;
    context.containerd()?.kill()?;
    context.containerd()?.launch()?;
    relaunch(&mut node)?;
    let after =
        node.wait_pod("counted", "one restart, remembered", LATER, |pod| again(pod, 1, 7))?;
    let id = after.container("main")?.id().to_owned();
    ensure!(id == before.container("main")?.id(), "the container was replaced");
    let containerd = context.containerd()?;
    containerd.ctr(&["tasks", "exec", "--exec-id", "end", &id, "touch", "/dev/shm/end"])?;
    node.wait_pod("counted", "two restarts", LATER, |pod| again(pod, 2, 8))?;
    Ok(Outcome::Passed)
}

fn a_pod_whose_cgroup_is_elsewhere_is_killed_once_and_made_anew(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&pod("web", &[sleeper("main")]))?;
    let before = wait_running(&mut node, "web")?;
    node.kill()?;
    // From now on the node's cgroups begin one level further down.
    let (file, old) = (node.directory().join("kubelet.yaml"), node.cgroup_root());
    let new = format!("{old}/moved");
    cgroups::create(&new)?;
    let text = fs::read_to_string(&file)?;
    let moved = text.replace(&format!("{old:?}"), &format!("{new:?}"));
    ensure!(moved != text, "no {old:?} in {text}");
    fs::write(&file, moved)?;
    relaunch(&mut node)?;
    let after = node.wait_pod("web", "to run anew", LATER, |pod| {
        let main = pod.container("main");
        main.is_ok_and(|it| it.is_running() && it.restarts() == 1)
    })?;
    ensure!(
        after.uid() == before.uid()
            && after.container("main")?.id() != before.container("main")?.id(),
        "{}",
        after.0["status"]
    );
    let group = format!("{new}/kubepods/besteffort/pod{}", after.uid());
    let inside = cgroups::processes(&group)?;
    ensure!(inside.len() >= 2, "only {inside:?} are in {group}");
    // Once is enough.
    node.kill()?;
    relaunch(&mut node)?;
    let same = wait_running(&mut node, "web")?;
    ensure!(same.container("main")?.id() == after.container("main")?.id(), "it was killed again");
    Ok(Outcome::Passed)
}
