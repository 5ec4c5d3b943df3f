//! The machine goes down: pods end in the order of their priority, with a stand-in for logind on a
//! bus of the test's own.

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::{Logind, Node, Part, PodView};
use serde_json::{Value, json};

use super::{SOON, cases, wait_running};
use crate::build::{pod, script, with};
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![
    pods_end_by_priority_before_the_machine_goes_down,
    pods_end_by_priority_on_sigterm_when_that_is_asked_for,
];

const HELD: &str = "held shutdown kubelet delay";
const RELEASED: &str = "released";

/// A pod that says when it is told to end, takes two seconds and says when it ends, in failure: one that
/// ends well has succeeded.
fn slow(name: &str, priority: i64) -> Value {
    let text = "trap 'echo told; sleep 2; echo ended; exit 3' TERM; echo ready; while :; do sleep 0.1; done";
    with(
        pod(name, &[script("main", text)]),
        json!({"spec": {"priority": priority, "terminationGracePeriodSeconds": 15}}),
    )
}

/// An ordinary pod and a critical one, both listening.
fn start_two(node: &mut Node) -> Result<(PodView, PodView)> {
    node.put_pod(&slow("plain", 0))?;
    node.put_pod(&slow("vital", 2_000_001_000))?;
    let (plain, vital) = (wait_running(node, "plain")?, wait_running(node, "vital")?);
    for seen in [&plain, &vital] {
        node.wait("it to listen", SOON, |node| {
            let lines = look::log_lines(node, seen, "main", 0)?;
            Ok(lines.contains(&"ready".to_owned()).then_some(()))
        })?;
    }
    Ok((plain, vital))
}

/// Both ended in their own time, the second was told after the first had ended.
fn one_after_the_other(node: &Node, first: &PodView, second: &PodView) -> Result<()> {
    // Each line of a log has its time.
    let when = |seen: &PodView, word: &str| -> Result<String> {
        let log = look::log_directory(node, seen).join("main/0.log");
        let text = std::fs::read_to_string(log)?;
        let line = text.lines().find(|line| line.ends_with(word)).map(str::to_owned);
        let line = line.with_context(|| format!("nobody said {word}: {text}"))?;
        Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
    };
    let (ended, told) = (when(first, "ended")?, when(second, "told")?);
    ensure!(ended < told, "one ended at {ended}, the other was told at {told}");
    when(second, "ended")?;
    Ok(())
}

/// Without logind: the signal ends the pods, and then the agent.
fn pods_end_by_priority_on_sigterm_when_that_is_asked_for(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let mut options = context.node_options();
    options.arguments = vec!["--shutdown-on-sigterm".to_owned()];
    options.configuration =
        json!({"shutdownGracePeriod": "40s", "shutdownGracePeriodCriticalPods": "20s"});
    let mut node = context.node_with(options)?;
    let (plain, vital) = start_two(&mut node)?;
    let began = std::time::Instant::now();
    node.stop()?;
    let took = began.elapsed();
    // Two pods of two seconds each, one after the other, and not the whole of their time.
    ensure!((4..30).contains(&took.as_secs()), "the agent left after {took:?}");
    one_after_the_other(&node, &plain, &vital)?;
    let record = std::fs::read(node.root().join("graceful_node_shutdown_state"))?;
    let record: Value = serde_json::from_slice(&record)?;
    ensure!(record["endTime"] != "0001-01-01T00:00:00Z", "{record}");
    let log = node.log_text();
    ensure!(log.contains("The shutdown is over, leaving"), "{log}");
    Ok(Outcome::Passed)
}

fn pods_end_by_priority_before_the_machine_goes_down(context: &mut Context<'_>) -> Result<Outcome> {
    let program = match &context.options.logind {
        Part::Available(program) => program.clone(),
        Part::Missing(why) => return Ok(Outcome::Skipped(why.clone())),
    };
    let logind = Logind::start(&program, &std::env::temp_dir().join("down"))?;
    let mut options = context.node_options();
    options.environment.push(logind.environment());
    options.configuration =
        json!({"shutdownGracePeriod": "40s", "shutdownGracePeriodCriticalPods": "20s"});
    let mut node = context.node_with(options)?;
    node.wait("the machine to be held up", SOON, |_| Ok((logind.n_said(HELD) == 1).then_some(())))?;
    let (plain, vital) = start_two(&mut node)?;
    logind.go_down()?;
    node.wait("the machine to be let go", SOON, |_| {
        Ok((logind.n_said(RELEASED) == 1).then_some(()))
    })?;
    one_after_the_other(&node, &plain, &vital)?;
    for name in ["plain", "vital"] {
        let seen = node.pod(name)?;
        let status = &seen.0["status"];
        ensure!(status["phase"] == "Failed", "{status}");
        ensure!(status["reason"] == "Terminated", "{status}");
        let message = "Pod was terminated in response to imminent node shutdown.";
        ensure!(status["message"] == message, "{status}");
        let conditions = status["conditions"].as_array().context("conditions")?;
        let is_target = |it: &&Value| it["type"] == "DisruptionTarget";
        let target = conditions.iter().find(is_target).context("no DisruptionTarget")?;
        ensure!(target["reason"] == "TerminationByKubelet", "{target}");
    }
    let record = std::fs::read(node.root().join("graceful_node_shutdown_state"))?;
    let record: Value = serde_json::from_slice(&record)?;
    ensure!(record["endTime"] != "0001-01-01T00:00:00Z", "{record}");
    node.put_pod(&slow("late", 0))?;
    node.wait("a pod to be refused", SOON, |node| {
        let seen = node.pod("late")?;
        let status = &seen.0["status"];
        Ok((status["phase"] == "Failed" && status["reason"] == "NodeShutdown").then_some(()))
    })?;
    logind.stay_up()?;
    node.wait("the machine to be held up again", SOON, |_| {
        Ok((logind.n_said(HELD) == 2).then_some(()))
    })?;
    node.put_pod(&slow("after", 0))?;
    wait_running(&mut node, "after")?;
    ensure!(node.log_text().contains("Shutdown manager detected shutdown cancellation"));
    Ok(Outcome::Passed)
}
