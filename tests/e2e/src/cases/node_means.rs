//! What the node keeps for itself and for its daemons: bounds of its own cgroups, the kernel's
//! settings, the agent as a process.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::{Node, cgroups};
use serde_json::{Value, json};

use super::{LATER, SOON, cases};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    pods_together_and_daemons_are_bounded_and_put_right,
    reservations_that_do_not_fit_the_machine_are_refused_by_name,
    the_agent_sets_itself_and_its_kernel_up_or_says_why_not,
];

/// The machine's memory in bytes.
fn memory() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).context("MemTotal")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

fn memory_file() -> &'static str {
    if cgroups::is_v2() { "memory.max" } else { "memory.limit_in_bytes" }
}

fn shows(group: &str, file: &str, expected: &str) -> Result<Option<()>> {
    let value = cgroups::value(group, file)?;
    ensure!(value == expected, "{file} of {group} is {value}, not {expected}");
    Ok(Some(()))
}

fn pods_together_and_daemons_are_bounded_and_put_right(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let daemons = format!("{}/daemons", context.bench.run_id().cgroup());
    cgroups::create(&daemons)?;
    let mut options = context.node_options();
    options.configuration = json!({
        "enforceNodeAllocatable": ["pods", "kube-reserved"],
        "systemReserved": {"cpu": "250m", "memory": "256Mi", "pid": "1000"},
        "kubeReserved": {"cpu": "250m", "memory": "128Mi", "pid": "200"},
        "kubeReservedCgroup": daemons,
        "failSwapOn": false,
    });
    let mut node = context.node_with(options)?;
    let pods = format!("{}/kubepods", node.cgroup_root());
    let n_cpus = u64::try_from(std::thread::available_parallelism()?.get())?;
    let number = |path: &str| -> Result<u64> { Ok(fs::read_to_string(path)?.trim().parse()?) };
    let n_pids =
        number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?) - 1200;
    // The kernel counts in pages.
    let left = ((memory()? - (384 << 20)) / 4096 * 4096).to_string();
    let weight = |milli: u64| {
        let shares = milli * 1024 / 1000;
        if cgroups::is_v2() {
            ("cpu.weight", (1 + (shares - 2) * 9999 / 262_142).to_string())
        } else {
            ("cpu.shares", shares.to_string())
        }
    };
    let bounded = |_: &Node| -> Result<Option<()>> {
        shows(&pods, memory_file(), &left)?;
        let (file, value) = weight(n_cpus * 1000 - 500);
        shows(&pods, file, &value)?;
        shows(&pods, "pids.max", &n_pids.to_string())?;
        shows(&daemons, memory_file(), &(128_u64 << 20).to_string())?;
        let (file, value) = weight(250);
        shows(&daemons, file, &value)?;
        shows(&daemons, "pids.max", "200")
    };
    node.wait("the bounds", SOON, bounded)?;
    node.wait("their events", SOON, |node| {
        let text = node.log_text();
        let told = [
            "Updated Node Allocatable limit across pods",
            &format!("Updated limits on kube reserved cgroup {daemons}"),
        ];
        Ok(told.iter().all(|it| text.contains(*it)).then_some(()))
    })?;
    // Somebody else changes them.
    for hierarchy in cgroups::hierarchies()? {
        let file = hierarchy.join(pods.trim_start_matches('/')).join("pids.max");
        if file.exists() {
            fs::write(file, "77")?;
        }
    }
    node.wait("them to be put right", LATER, bounded)?;
    Ok(Outcome::Passed)
}

/// Starts an agent that must refuse, and gives what it says.
fn refusal(context: &mut Context<'_>, configuration: Value) -> Result<String> {
    let mut options = context.node_options();
    options.configuration = configuration;
    let mut node = context.prepare(options)?;
    node.launch()?;
    let ended = node.wait_ended(SOON)?;
    ensure!(!ended.success(), "it ended well: {ended:?}");
    Ok(node.log_text())
}

fn reservations_that_do_not_fit_the_machine_are_refused_by_name(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let said =
        refusal(context, json!({"systemReserved": {"memory": "9000Gi"}, "failSwapOn": false}))?;
    ensure!(said.contains("systemReserved"), "it says {said}");
    ensure!(said.contains("has a reservation of"), "it says {said}");
    let absent = format!("{}/absent", context.bench.run_id().cgroup());
    let said = refusal(
        context,
        json!({
            "enforceNodeAllocatable": ["pods", "kube-reserved"],
            "kubeReserved": {"cpu": "250m"},
            "kubeReservedCgroup": absent,
        }),
    )?;
    ensure!(said.contains("kubeReservedCgroup"), "it says {said}");
    ensure!(said.contains(&format!("bound cgroup {absent}: there is no ")), "it says {said}");
    Ok(Outcome::Passed)
}

/// The bench has copies of the kernel's settings, so nothing of the machine itself changes.
fn the_agent_sets_itself_and_its_kernel_up_or_says_why_not(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let setting = |name: &str| -> Result<String> {
        Ok(fs::read_to_string(format!("/proc/sys/{name}"))?.trim().to_owned())
    };
    // Another test's agent may have been here.
    fs::write("/proc/sys/vm/overcommit_memory", "0")?;
    let said = refusal(context, json!({"protectKernelDefaults": true}))?;
    let fault = "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0";
    ensure!(said.contains(fault), "it says {said}");
    ensure!(said.contains("KubeletSetupFailed"), "it says {said}");
    ensure!(setting("vm/overcommit_memory")? == "0", "a protected kernel was changed");
    let own = format!("{}/agent", context.bench.run_id().cgroup());
    let mut options = context.node_options();
    options.configuration =
        json!({"kubeletCgroups": own, "maxOpenFiles": 4096, "oomScoreAdj": 500});
    let mut node = context.node_with(options)?;
    for (name, value) in
        [("vm/overcommit_memory", "1"), ("kernel/panic", "10"), ("kernel/panic_on_oops", "1")]
    {
        ensure!(setting(name)? == value, "{name} is {}", setting(name)?);
    }
    let id = node.pid()?;
    node.wait("the agent to be in its cgroup", SOON, |_| {
        Ok(cgroups::processes(&own)?.contains(&id).then_some(()))
    })?;
    let limits = fs::read_to_string(format!("/proc/{id}/limits"))?;
    let files = limits.lines().find(|line| line.starts_with("Max open files")).context("files")?;
    ensure!(files.split_whitespace().nth(3) == Some("4096"), "{files}");
    let score = fs::read_to_string(format!("/proc/{id}/oom_score_adj"))?;
    ensure!(score.trim() == "500", "its score is {score}");
    if !cgroups::is_v2() {
        ensure!(node.log_text().contains("CgroupV1"), "nobody was told of cgroup v1");
    }
    Ok(Outcome::Passed)
}
