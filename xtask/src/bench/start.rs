//! `cargo xtask bench start`: how long a pod takes to start, how much of that is ours, and what the
//! agent costs.
//!
//! The clock starts right before the manifest's rename and stops when the container writes its
//! first line, whose time the runtime records. The part spent in CRI calls comes from the agent's
//! own log (`"CRI call" method=… duration=…`, at verbosity 6); the rest is ours. Any agent can be
//! measured; one that does not log its calls just has no such part.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::ArgMatches;
use ferrolet_lab::image::BUSYBOX;
use ferrolet_lab::{Bench, Containerd, Network, Node, NodeOptions, Toolbox, isolation, parts};
use serde_json::json;

use super::cost::Cost;
use super::figures::Figures;
use super::trace;
use crate::span::brief;
use crate::{build, given};

/// What to measure.
struct Plan {
    agent: PathBuf,
    n_singles: usize,
    n_burst: usize,
    quiet: Duration,
}

/// When a pod's manifest came and when its container wrote its first line, in seconds since 1970.
struct Start {
    renamed: f64,
    started: f64,
}

pub(crate) fn command(args: &ArgMatches) -> Result<u8> {
    let plan = Plan {
        agent: build::agent(args)?,
        n_singles: given(args, "singles"),
        n_burst: given(args, "burst"),
        quiet: given(args, "quiet"),
    };
    let tools = parts::toolbox().required()?;
    isolation::run(Network::Private, |bench| measure(bench, &tools, &plan))
}

fn measure(bench: &Bench, tools: &Toolbox, plan: &Plan) -> Result<u8> {
    let containerd = Containerd::start(bench, tools, "containerd")?;
    let mut options = NodeOptions::new("bench", &plan.agent);
    options.verbosity = 6;
    let mut node = Node::start(bench, &containerd, options)?;
    node.wait_healthy()?;
    println!("containerd {}, agent {}", tools.containerd.version, plan.agent.display());

    let idle = Cost::settled(node.pid()?)?;
    let mut singles = BTreeMap::new();
    for n in 0..plan.n_singles {
        let name = format!("single-{n}");
        let started = start(&mut node, std::slice::from_ref(&name))?;
        singles.extend(started);
        remove(&mut node, &[name])?;
        if bench.is_interrupted() {
            return Ok(1);
        }
    }
    let log = node.log_text();
    print_starts(&format!("{} pods, one at a time", plan.n_singles), &singles, &log, Some(20.0));

    let names: Vec<String> = (0..plan.n_burst).map(|n| format!("burst-{n}")).collect();
    let burst = start(&mut node, &names)?;
    let log = node.log_text();
    print_starts(&format!("{} pods at once", plan.n_burst), &burst, &log, None);

    let share = Cost::cpu_share(node.pid()?, plan.quiet, || bench.is_interrupted())?;
    let full = Cost::settled(node.pid()?)?;
    println!("memory, idle             {:7.1} MB   (goal: under 12)", idle.resident_mb);
    println!(
        "memory, {:3} pods         {:7.1} MB   (goal at 50: under 20)",
        plan.n_burst, full.resident_mb
    );
    println!(
        "CPU over a quiet {:<7} {:7.2} %    (goal at 50 pods: under 0.5 % of a core)",
        brief(plan.quiet),
        share * 100.0
    );
    Ok(0)
}

/// Puts all manifests at once and waits until each container has written its first line.
fn start(node: &mut Node, names: &[String]) -> Result<BTreeMap<String, Start>> {
    let mut renamed = BTreeMap::new();
    for name in names {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        node.put_pod(&pod(name))?;
        renamed.insert(name.clone(), now);
    }
    let mut starts = BTreeMap::new();
    for (name, renamed) in renamed {
        let started = node.wait(&format!("{name} to start"), Duration::from_secs(120), |node| {
            first_line(node, &name)
        })?;
        starts.insert(name, Start { renamed, started });
    }
    Ok(starts)
}

fn remove(node: &mut Node, names: &[String]) -> Result<()> {
    for name in names {
        node.remove_manifest(&format!("{name}.yaml"))?;
        node.wait(&format!("{name} to go"), Duration::from_secs(60), |node| {
            Ok(node.pod(name).is_err().then_some(()))
        })?;
    }
    Ok(())
}

/// The time of the first line that a pod's container wrote.
fn first_line(node: &Node, name: &str) -> Result<Option<f64>> {
    let prefix = format!("default_{}_", node.pod_name(name));
    for entry in fs::read_dir(node.pod_logs())?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let Ok(text) = fs::read_to_string(entry.path().join("main/0.log")) else {
                return Ok(None);
            };
            return Ok(text.split(' ').next().and_then(trace::parse_rfc3339));
        }
    }
    Ok(None)
}

fn pod(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": BUSYBOX,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", "echo started; trap 'exit 0' TERM; sleep 100000 & wait"],
            }],
        },
    })
}

fn print_starts(title: &str, starts: &BTreeMap<String, Start>, log: &str, goal: Option<f64>) {
    let calls = trace::calls(log);
    // One pod at a time, every call is that pod's. In a burst a call counts for a pod only if the
    // log says whose it was; otherwise the time with any pod's call under way is all that can be
    // told.
    let is_named =
        starts.len() > 1 && calls.iter().any(|call| starts.keys().any(|name| call.names(name)));
    let (mut total, mut inside, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for (name, start) in starts {
        let span = (start.renamed, start.started);
        let mine = calls.iter().filter(|call| !is_named || call.names(name));
        let in_calls = trace::covered(mine, span);
        total.push((start.started - start.renamed) * 1e3);
        inside.push(in_calls * 1e3);
        ours.push((start.started - start.renamed - in_calls) * 1e3);
    }
    println!("\n{title:<24} {:>10} {:>10} {:>10} {:>10}", "median", "p90", "p99", "last");
    println!("{:<24} {}", "rename to start", Figures::of(total));
    if calls.is_empty() {
        println!("(this agent logs no CRI calls)");
    } else {
        let figures = Figures::of(ours);
        let verdict =
            goal.map(|goal| format!("   (goal: p99 under {goal} ms)")).unwrap_or_default();
        let whose =
            if goal.is_some() || is_named { "  in CRI calls" } else { "  in any pod's CRI calls" };
        println!("{whose:<24} {}", Figures::of(inside));
        println!("{:<24} {figures}{verdict}", "  ours");
    }
    println!();
}
