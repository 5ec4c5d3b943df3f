//! The race: rounds in which both kubelets take their turn, and what is printed and written about
//! them.
//!
//! Runs in a world of its own ([`isolation`]), which takes everything away at the end, on failure
//! and on Ctrl-C. It never fails because of a slow figure: the table says what fell short, and
//! people decide.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ArgMatches;
use ferrolet_lab::cluster::Api;
use ferrolet_lab::parts::ControlPlane;
use ferrolet_lab::{Bench, Cluster, ClusterOptions, Network, Part, Toolbox, isolation, parts};
use serde_json::{Value, json};

use super::leg::{self, Scene};
use super::machine::Machine;
use super::score::{Row, Values, Verdict, catalogue, missing, rows};
use super::{chart, page, table};
use crate::{build, given};

/// What to measure.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) agent: PathBuf,
    pub(super) n_rounds: usize,
    /// In growing order; the last is the one that costs are read at.
    pub(super) bursts: Vec<usize>,
    pub(super) n_rate: usize,
    pub(super) quiet: Duration,
    /// Time to let allocators and caches come to rest before costs are read.
    pub(super) rest: Duration,
}

/// Where to put the result besides standard output.
struct Targets {
    json: Option<PathBuf>,
    is_page_wanted: bool,
    is_smoke: bool,
}

/// Who takes a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Ours,
    Upstream,
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Ours => "ferrolet",
            Contender::Upstream => "upstream",
        }
    }

    /// Both, and each first in every other round.
    fn in_order(round: usize) -> [Contender; 2] {
        if round.is_multiple_of(2) {
            [Contender::Ours, Contender::Upstream]
        } else {
            [Contender::Upstream, Contender::Ours]
        }
    }
}

/// The values of all rounds so far.
#[derive(Default)]
struct Results {
    ours: Vec<Values>,
    upstream: Vec<Values>,
}

pub(super) fn command(args: &ArgMatches) -> Result<u8> {
    let targets = Targets {
        json: args.get_one::<String>("json").map(PathBuf::from),
        is_page_wanted: args.get_flag("write"),
        is_smoke: args.get_flag("smoke"),
    };
    let (tools, binaries) = match (parts::toolbox(), parts::control_plane()) {
        (Part::Available(tools), Part::Available(binaries)) => (tools, binaries),
        // The smoke test is one of many: what it needs may be missing, as for the others.
        (Part::Missing(reason), _) | (_, Part::Missing(reason)) if targets.is_smoke => {
            println!("skipped bench: {reason}");
            println!("0 passed, 0 failed, 1 skipped");
            return Ok(0);
        }
        (tools, binaries) => (tools.required()?, binaries.required()?),
    };
    let plan = plan(args)?;
    isolation::run(Network::Private, |bench| race(bench, &tools, &binaries, &plan, &targets))
}

fn plan(args: &ArgMatches) -> Result<Plan> {
    let agent = build::agent(args)?;
    if args.get_flag("smoke") {
        return Ok(Plan {
            agent,
            n_rounds: 1,
            bursts: vec![3],
            n_rate: 2,
            quiet: Duration::from_secs(2),
            rest: Duration::from_secs(1),
        });
    }
    let bursts = args.get_many::<usize>("burst").into_iter().flatten();
    let mut bursts: Vec<usize> = bursts.copied().collect();
    bursts.sort_unstable();
    bursts.dedup();
    Ok(Plan {
        agent,
        n_rounds: given(args, "rounds"),
        bursts,
        n_rate: given(args, "rate-pods"),
        quiet: given(args, "quiet"),
        rest: Duration::from_secs(5),
    })
}

fn race(
    bench: &Bench,
    tools: &Toolbox,
    binaries: &ControlPlane,
    plan: &Plan,
    targets: &Targets,
) -> Result<u8> {
    let machine = Machine::look(tools, binaries, &plan.agent)?;
    println!(
        "{} against kubelet {}, containerd {}, {} cores, load {:.1}{}",
        machine.ours,
        machine.upstream,
        machine.containerd,
        machine.n_cores,
        machine.load,
        if machine.is_busy() { " (busy: expect noise)" } else { "" }
    );
    let cluster = Cluster::start(bench, binaries, &ClusterOptions::default())?;
    // Pods wait for it, and the first pod of the first leg must not wait longer than the others.
    cluster.wait("the namespace's authority", Duration::from_secs(60), |it| {
        it.find("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
    })?;
    let scene =
        Scene { bench, tools, cluster: &cluster, api: Api::new(&cluster.proxy_address())?, plan };
    let mut results = Results::default();
    for round in 0..plan.n_rounds {
        for contender in Contender::in_order(round) {
            let name = contender.name();
            let (agent, legs) = match contender {
                Contender::Ours => (plan.agent.clone(), &mut results.ours),
                Contender::Upstream => (binaries.binary("kubelet"), &mut results.upstream),
            };
            let values = leg::run(&scene, &format!("{name}-{round}"), &agent)?;
            println!("round {} of {}: {name} done", round + 1, plan.n_rounds);
            legs.push(values);
        }
    }
    report(&results, &machine, plan, targets)
}

fn report(results: &Results, machine: &Machine, plan: &Plan, targets: &Targets) -> Result<u8> {
    let figures = catalogue(&plan.bursts, plan.n_rate);
    let rows = rows(&figures, &results.ours, &results.upstream);
    println!("\n{}\n{}", table::text(&rows, "upstream"), table::summary(&rows));
    if plan.n_rounds < 2 {
        println!("one round tells nothing about noise");
    }
    if let Some(path) = &targets.json {
        let value = json_of(&rows, results, machine, plan);
        write(path, &format!("{}\n", serde_json::to_string_pretty(&value)?))?;
    }
    if targets.is_page_wanted {
        let docs = build::root().join("docs");
        let most = plan.bursts.last().copied().unwrap_or_default();
        write(&docs.join("benchmarks.svg"), &chart::svg(&rows, most))?;
        write(&docs.join("benchmarks.md"), &page::page(&rows, machine, plan))?;
    }
    let mut missing = missing(&figures, &results.ours);
    missing.extend(self::missing(&figures, &results.upstream));
    ensure!(missing.is_empty(), "figures are missing: {}", missing.join(", "));
    if targets.is_smoke {
        println!("1 passed, 0 failed, 0 skipped");
    }
    Ok(0)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

fn json_of(rows: &[Row], results: &Results, machine: &Machine, plan: &Plan) -> Value {
    let figures: Vec<Value> = rows
        .iter()
        .map(|row| {
            let key = &row.figure.key;
            let rounds = |legs: &[Values]| -> Vec<Option<f64>> {
                legs.iter().map(|leg| leg.get(key).copied()).collect()
            };
            let (is_noisy, ratio) = match row.verdict {
                Verdict::Noisy { .. } => (true, None),
                Verdict::Holds { ratio, .. } => (false, ratio),
            };
            json!({
                "key": key,
                "label": row.figure.label,
                "ferrolet": {"median": row.ours, "rounds": rounds(&results.ours)},
                "upstream": {"median": row.upstream, "rounds": rounds(&results.upstream)},
                "spread": row.spread,
                "noisy": is_noisy,
                "ratio": ratio,
            })
        })
        .collect();
    json!({
        "machine": machine.json(),
        "plan": {
            "rounds": plan.n_rounds,
            "bursts": plan.bursts,
            "ratePods": plan.n_rate,
            "quietSeconds": plan.quiet.as_secs_f64(),
        },
        "figures": figures,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contender_goes_first_in_every_other_round() {
        let first = |round: usize| Contender::in_order(round)[0];
        assert_eq!(
            [first(0), first(1), first(2)],
            [Contender::Ours, Contender::Upstream, Contender::Ours]
        );
    }
}
