//! Processors of their own: who gets one, who moves aside, and what is left of it after a restart.

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::{Node, PodView};
use serde_json::{Value, json};

use super::{GONE, LATER, cases, wait_running};
use crate::build::{pod, script};
use crate::context::Context;
use crate::look;
use crate::runner::Outcome;

cases![a_guaranteed_pod_has_a_processor_of_its_own];

/// Says every second what it may run on.
const TELL: &str = "while true; do grep Cpus_allowed_list /proc/self/status; sleep 1; done";

fn asking(name: &str, resources: &Value) -> Value {
    let mut main = script("main", TELL);
    main["resources"] = resources.clone();
    pod(name, &[main])
}

/// What a container says last.
fn runs_on(node: &Node, pod: &PodView) -> Result<String> {
    let lines = look::log_lines(node, pod, "main", 0)?;
    let last = lines.last().context("nothing is said yet")?;
    let cpus = last.split_whitespace().last().context("an empty line")?;
    Ok(cpus.to_owned())
}

fn wait_for_cpus(node: &mut Node, pod: &PodView, expected: &str) -> Result<()> {
    let what = format!("{} to run on {expected}", pod.name());
    node.wait(&what, LATER, |node| {
        let cpus = runs_on(node, pod)?;
        ensure!(cpus == expected, "it runs on {cpus}");
        Ok(Some(()))
    })
}

fn a_guaranteed_pod_has_a_processor_of_its_own(context: &mut Context<'_>) -> Result<Outcome> {
    let n_cpus = std::thread::available_parallelism()?.get();
    if n_cpus < 2 {
        return Ok(Outcome::Skipped("one processor cannot be shared and owned".to_owned()));
    }
    let (all, last) = (format!("0-{}", n_cpus - 1), n_cpus - 1);
    let mut options = context.node_options();
    // All but the last are reserved, so that it is known which one is given.
    let reserved = if last == 1 { "0".to_owned() } else { format!("0-{}", last - 1) };
    options.configuration = json!({
        "cpuManagerPolicy": "static",
        "cpuManagerReconcilePeriod": "1s",
        "reservedSystemCPUs": reserved,
    });
    let mut node = context.node_with(options)?;
    node.put_pod(&asking("sharing", &json!({})))?;
    let sharing = wait_running(&mut node, "sharing")?;
    wait_for_cpus(&mut node, &sharing, &all)?;

    let one = json!({ "cpu": "1", "memory": "64Mi" });
    node.put_pod(&asking("owner", &json!({ "requests": one, "limits": one })))?;
    let owner = wait_running(&mut node, "owner")?;
    wait_for_cpus(&mut node, &owner, &last.to_string())?;
    wait_for_cpus(&mut node, &sharing, &reserved)?;
    let state = std::fs::read_to_string(node.root().join("cpu_manager_state"))?;
    let state: Value = serde_json::from_str(&state)?;
    let written = &state["entries"][owner.uid()]["main"];
    ensure!(*written == json!(last.to_string()), "{state}");

    node.kill()?;
    node.launch()?;
    node.wait_healthy()?;
    let again = node.wait_pod("owner", "running as before", LATER, |pod| {
        pod.container("main").is_ok_and(|main| main.is_running())
    })?;
    ensure!(again.uid() == owner.uid() && again.restarts() == 0, "{}", again.0["status"]);
    wait_for_cpus(&mut node, &owner, &last.to_string())?;
    wait_for_cpus(&mut node, &sharing, &reserved)?;

    node.remove_manifest("owner.yaml")?;
    let containerd = context.containerd()?;
    node.wait("the owner to be gone", GONE, |node| {
        look::ensure_gone(node, containerd, &owner).map(Some)
    })?;
    wait_for_cpus(&mut node, &sharing, &all)?;
    Ok(Outcome::Passed)
}
