//! `cargo xtask bench runtime`: the embedded runtime and containerd, driven over CRI by the same program.
//!
//! ```text
//! rounds, both in turn ─► leg: start the runtime in a group of its own ─► cri_load, phase by phase ─► Values
//!                            └─ side: CPU time of that group, memory of whoever is in it
//! score (pure: medians, spread, goals) ─► table; page
//! ```
//!
//! CPU is what the kernel charged to the runtime's group and to its pods' groups together: daemon, shims, OCI runtime,
//! network plugins, pause processes and the containers' own `sleep` on one side; runtime, spawner, monitors and the same
//! `sleep` on the other. Memory is the PSS of everything but the containers. Both pull the same image, one layer of
//! random bytes, from one registry on loopback.

mod side;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::ArgMatches;
use ferrolet_lab::image::{Entry, ImageSpec};
use ferrolet_lab::process::output;
use ferrolet_lab::{Bench, Network, Registry, Toolbox, isolation, parts};
use serde_json::Value;

use super::score::{Figure, Goal, Row, Unit, Values, rows};
use super::{machine, table};
use crate::{build, given};
use side::Side;

/// The image that is pulled, and its registry's name.
const REGISTRY: &str = "bench.test";
const PULLED: &str = "bench.test/big:1";
/// Files of that image.
const N_FILES: usize = 64;

struct Plan {
    agent: PathBuf,
    load: PathBuf,
    n_rounds: usize,
    n_singles: usize,
    n_pods: usize,
    log_megabytes: usize,
    image_megabytes: usize,
    oci_runtime: Option<PathBuf>,
    is_written: bool,
}

pub(super) fn command(args: &ArgMatches) -> Result<u8> {
    let agent = build::agent(args)?;
    let plan = Plan {
        load: load_program(args, &agent)?,
        agent,
        n_rounds: given(args, "rounds"),
        n_singles: given(args, "singles"),
        n_pods: given(args, "pods"),
        log_megabytes: given(args, "log"),
        image_megabytes: given(args, "image"),
        oci_runtime: args.get_one::<String>("runc").map(PathBuf::from),
        is_written: args.get_flag("write"),
    };
    let mut tools = parts::toolbox().required()?;
    if let Some(path) = &plan.oci_runtime {
        tools.runc.clone_from(path);
    }
    isolation::run(Network::Private, |bench| race(bench, &tools, &plan))
}

/// The program that drives both: where another agent is measured, the one that was built beside it, if any.
fn load_program(args: &ArgMatches, agent: &Path) -> Result<PathBuf> {
    let beside = agent.with_file_name("examples").join("cri_load");
    if args.contains_id("agent") && beside.exists() {
        return Ok(beside);
    }
    build::example("ferrolet-runtime-service", "cri_load", args)
}

fn race(bench: &Bench, tools: &Toolbox, plan: &Plan) -> Result<u8> {
    let load = machine::load()?;
    let registry = Registry::start(&[big(plan.image_megabytes)?])?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..plan.n_rounds {
        let mut legs = [true, false];
        if round % 2 == 1 {
            legs.reverse();
        }
        for is_ours in legs {
            let side = if is_ours {
                Side::ours(bench, tools, &plan.agent, &registry)?
            } else {
                Side::containerd(bench, tools, &registry)?
            };
            println!("round {}: {}", round + 1, side.name());
            let values = leg(bench, &side, plan);
            let values = values.with_context(|| format!("{}\n{}", side.name(), side.log()))?;
            side.end()?;
            if is_ours { &mut ours } else { &mut theirs }.push(values);
        }
    }
    let rows = rows(&figures(plan), &ours, &theirs);
    let oci_runtime = oci_runtime(tools)?;
    println!(
        "\ncontainerd {} with {oci_runtime}; load {load:.1} at the start, {:.1} at the end",
        tools.containerd.version,
        machine::load()?
    );
    println!("\n{}\n{}", table::text(&rows, "containerd"), table::summary(&rows));
    if plan.is_written {
        let page = page(&rows, plan, &tools.containerd.version, &oci_runtime, load)?;
        fs::write(build::root().join("docs/benchmarks-runtime.md"), page)?;
    }
    Ok(0)
}

fn oci_runtime(tools: &Toolbox) -> Result<String> {
    let said = output(Command::new(&tools.runc).arg("--version"))?;
    Ok(said.lines().next().unwrap_or_default().replace(" version", ""))
}

/// An image that cannot be compressed.
fn big(megabytes: usize) -> Result<ImageSpec> {
    let size = (megabytes * 1_000_000 / N_FILES) as u64;
    let mut entries = Vec::new();
    for n in 0..N_FILES {
        let mut content = Vec::new();
        let source = fs::File::open("/dev/urandom").context("open /dev/urandom")?;
        std::io::Read::read_to_end(&mut std::io::Read::take(source, size), &mut content)?;
        entries.push(Entry::File { path: format!("/file-{n}"), mode: 0o644, content });
    }
    let command = vec!["/file-0".to_owned()];
    Ok(ImageSpec { name: PULLED.to_owned(), entries, command, ..ImageSpec::default() })
}

/// Everything that is measured of one runtime, once.
fn leg(bench: &Bench, side: &Side, plan: &Plan) -> Result<Values> {
    let logs = bench.directory("logs")?;
    let run = |phase: &str, argument: String| -> Result<Value> {
        let said = output(
            Command::new(&plan.load)
                .arg(side.endpoint())
                .arg(side.pods_group())
                .arg(&logs)
                .args([phase, &argument]),
        )?;
        serde_json::from_str(&said).with_context(|| format!("{phase}: {said:?}"))
    };
    let one = |report: &Value, key: &str| {
        report[key][0].as_f64().with_context(|| format!("no {key} in {report}"))
    };
    let n_pods = plan.n_pods as f64;
    let mut values = Values::new();
    let mut put = |key: &str, value: f64| values.insert(key.to_owned(), value);

    let singles = run("singles", plan.n_singles.to_string())?;
    for key in ["start", "exec", "remove"] {
        put(key, median(&singles[key]).with_context(|| format!("no {key} in {singles}"))?);
    }
    let before = side.cpu_seconds()?;
    let up = run("up", plan.n_pods.to_string())?;
    put("up", one(&up, "up")? / 1e3);
    put("memory", side.memory_megabytes()?);
    let down = run("down", plan.n_pods.to_string())?;
    put("down", one(&down, "down")? / 1e3);
    put("cpu", (side.cpu_seconds()? - before) / n_pods * 1e3);

    let before = side.own_cpu_seconds()?;
    let log = run("log", plan.log_megabytes.to_string())?;
    put("log", plan.log_megabytes as f64 * 1e3 / one(&log, "log")?);
    put("log_cpu", side.own_cpu_seconds()? - before);
    // The next leg is to find its own.
    fs::remove_file(logs.join("log.log")).context("remove the log")?;

    side.forget_peak()?;
    let before = side.own_cpu_seconds()?;
    let pull = run("pull", PULLED.to_owned())?;
    put("pull", one(&pull, "pull")? / 1e3);
    put("pull_cpu", side.own_cpu_seconds()? - before);
    put("pull_memory", side.peak_megabytes()?);
    Ok(values)
}

fn median(values: &Value) -> Option<f64> {
    let mut all: Vec<f64> = values.as_array()?.iter().filter_map(Value::as_f64).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

fn figures(plan: &Plan) -> Vec<Figure> {
    let (n, log, image) = (plan.n_pods, plan.log_megabytes, plan.image_megabytes);
    let figure =
        |key: &str, label: String, unit, goal| Figure { key: key.to_owned(), label, unit, goal };
    let tenth = Some(Goal::AtMost(0.1));
    let eighth = Some(Goal::AtMost(0.125));
    vec![
        figure("start", "sandbox and container, p50".into(), Unit::Milliseconds, tenth),
        figure("exec", "exec true, p50".into(), Unit::Milliseconds, tenth),
        figure("remove", "stop and remove a pod, p50".into(), Unit::Milliseconds, None),
        figure("up", format!("{n} pods up, 4 at a time"), Unit::Seconds, eighth),
        figure("down", format!("{n} pods gone, 4 at a time"), Unit::Seconds, tenth),
        figure(
            "cpu",
            "CPU of a pod's start and removal, ms".into(),
            Unit::Milliseconds,
            Some(Goal::AtMost(1.0 / 12.0)),
        ),
        figure(
            "memory",
            format!("memory of {n} pods, PSS"),
            Unit::Megabytes,
            Some(Goal::Below(15.0)),
        ),
        figure("log", format!("log of {log} MB"), Unit::Throughput, None),
        figure("log_cpu", "CPU of the runtime for it".into(), Unit::CpuSeconds, eighth),
        figure("pull", format!("pull of {image} MB"), Unit::Seconds, Some(Goal::AtMost(0.4))),
        figure("pull_cpu", "CPU of the runtime for it".into(), Unit::CpuSeconds, None),
        figure(
            "pull_memory",
            "memory of the runtime at most while pulling".into(),
            Unit::Megabytes,
            Some(Goal::Below(32.0)),
        ),
    ]
}

/// docs/benchmarks-runtime.md, whole.
fn page(
    rows: &[Row],
    plan: &Plan,
    containerd: &str,
    oci_runtime: &str,
    load: f64,
) -> Result<String> {
    Ok(format!(
        "<!-- Generated by `cargo xtask bench runtime --write`; edits are lost. -->\n\
         # The embedded runtime and containerd, side by side\n\n\
         {summary}.\n\n\
         Load {load:.1} at the start and {end:.1} at the end on {cores} cores: what else the machine does makes absolute \
         figures worse, on both sides.\n\n\
         {table}\n\
         ## Method\n\n\
         One run of `cargo xtask bench runtime` ({rounds} rounds, both runtimes in each, the first one alternating; medians of the \
         rounds). containerd {containerd} with {oci_runtime}, CNI bridge and portmap; `ferrolet runtime` with its own network. Both are driven by \
         `cri_load` over their sockets: {singles} pods one after the other, {pods} pods four at a time, a container that \
         writes {log} MB of 100-byte lines, a pull of {image} MB of random bytes in one layer from a registry on loopback. \
         CPU is what the kernel charged to the runtime's group and its pods' groups together, so children count; for logs and pulls to \
         the runtime's group alone. Memory is the PSS of daemon, shims and pause processes, and of runtime, spawner and monitors. \
         Where containerd's own rounds spread by more than {bound:.0} %, the table says `noisy`.\n",
        summary = table::summary(rows),
        table = table::markdown(rows, "containerd"),
        end = machine::load()?,
        cores = std::thread::available_parallelism()?,
        rounds = plan.n_rounds,
        singles = plan.n_singles,
        pods = plan.n_pods,
        log = plan.log_megabytes,
        image = plan.image_megabytes,
        bound = super::score::BOUND * 100.0,
    ))
}
