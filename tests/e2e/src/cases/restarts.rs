//! Restart policies and the crash-loop back-off.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ferrolet_lab::Node;
use ferrolet_lab::wait::stays_true;
use serde_json::json;

use super::{LATER, cases, wait_phase};
use crate::build::{pod, script, with};
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    a_crashing_container_waits_ten_then_twenty_seconds,
    the_back_off_survives_a_restart_of_the_agent,
    a_crash_loop_shows_as_waiting,
    policy_always_restarts_after_success,
    policy_on_failure_restarts_until_success,
    policy_never_does_not_restart,
];

fn with_policy(name: &str, policy: &str, text: &str) -> serde_json::Value {
    with(pod(name, &[script("main", text)]), json!({"spec": {"restartPolicy": policy}}))
}

/// When the restart count was first seen at this value or more.
fn wait_restarts(node: &mut Node, name: &str, count: u64) -> Result<Instant> {
    node.wait_pod(name, &format!("{count} restarts"), LATER, |pod| pod.restarts() >= count)?;
    Ok(Instant::now())
}

fn a_crashing_container_waits_ten_then_twenty_seconds(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&with_policy("crash", "Always", "exit 1"))?;
    let first = wait_restarts(&mut node, "crash", 1)?;
    let second = wait_restarts(&mut node, "crash", 2)?;
    let third = wait_restarts(&mut node, "crash", 3)?;
    let (ten, twenty) = ((second - first).as_secs_f64(), (third - second).as_secs_f64());
    ensure!((9.0..14.0).contains(&ten), "the second restart came {ten:.1} s after the first");
    ensure!(
        (19.0..26.0).contains(&twenty),
        "the third restart came {twenty:.1} s after the second"
    );
    Ok(Outcome::Passed)
}

fn the_back_off_survives_a_restart_of_the_agent(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&with_policy("crash", "Always", "exit 1"))?;
    wait_restarts(&mut node, "crash", 2)?;
    node.kill()?;
    node.launch()?;
    node.wait_healthy()?;
    node.wait_pod("crash", "2 restarts, remembered", LATER, |pod| pod.restarts() >= 2)?;
    // A forgotten back-off would start the container at once.
    stays_true("no third restart", Duration::from_secs(8), || {
        Ok(node.pod("crash")?.restarts() == 2)
    })?;
    Ok(Outcome::Passed)
}

fn a_crash_loop_shows_as_waiting(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&with_policy("crash", "Always", "exit 3"))?;
    // First its end, as upstream shows it, then the wait.
    node.wait_pod("crash", "the end of a container", LATER, |pod| {
        pod.restarts() >= 1
            && pod
                .container("main")
                .is_ok_and(|it| it.exit_code() == Some(3) && it.waiting_reason().is_none())
    })?;
    let seen = node.wait_pod("crash", "CrashLoopBackOff", LATER, |pod| {
        pod.container("main").is_ok_and(|it| it.waiting_reason() == Some("CrashLoopBackOff"))
    })?;
    let main = seen.container("main")?;
    ensure!(main.last_exit_code() == Some(3), "the last exit code is {:?}", main.last_exit_code());
    let said = main.waiting_message().unwrap_or_default().to_owned();
    ensure!(
        said.starts_with("back-off ") && said.contains("restarting failed container=main"),
        "it says {said:?}"
    );
    ensure!(seen.phase() == "Running", "its phase is {}", seen.phase());
    Ok(Outcome::Passed)
}

fn policy_always_restarts_after_success(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&with_policy("again", "Always", "echo done"))?;
    wait_restarts(&mut node, "again", 1)?;
    let seen = node.pod("again")?;
    node.wait("both logs", LATER, |node| {
        let logs =
            [look::log_lines(node, &seen, "main", 0)?, look::log_lines(node, &seen, "main", 1)?];
        Ok((logs == [["done"], ["done"]]).then_some(()))
    })?;
    Ok(Outcome::Passed)
}

fn policy_on_failure_restarts_until_success(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    // Shared memory is the pod's, not the container's: it remembers that there was a first try.
    let text = "if test -e /dev/shm/again; then exit 0; fi; touch /dev/shm/again; exit 1";
    node.put_pod(&with_policy("retry", "OnFailure", text))?;
    let seen = wait_phase(&mut node, "retry", "Succeeded")?;
    let main = seen.container("main")?;
    ensure!(main.restarts() == 1, "{} restarts", main.restarts());
    ensure!(main.exit_code() == Some(0), "exit code {:?}", main.exit_code());
    Ok(Outcome::Passed)
}

fn policy_never_does_not_restart(context: &mut Context<'_>) -> Result<Outcome> {
    let mut node = context.node()?;
    node.put_pod(&with_policy("fails", "Never", "exit 5"))?;
    node.put_pod(&with_policy("works", "Never", "exit 0"))?;
    let fails = wait_phase(&mut node, "fails", "Failed")?;
    let works = wait_phase(&mut node, "works", "Succeeded")?;
    ensure!(fails.container("main")?.exit_code() == Some(5), "{}", fails.0["status"]);
    ensure!(fails.container("main")?.terminated_reason() == Some("Error"), "{}", fails.0["status"]);
    ensure!(
        works.container("main")?.terminated_reason() == Some("Completed"),
        "{}",
        works.0["status"]
    );
    stays_true("no restart", Duration::from_secs(3), || {
        Ok(node.pod("fails")?.restarts() == 0 && node.pod("works")?.restarts() == 0)
    })?;
    Ok(Outcome::Passed)
}
