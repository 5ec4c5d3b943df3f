//! `cargo xtask conformance`: upstream's test suites judge the node, and upstream's kubelet is the
//! control group.
//!
//! ```text
//! run ── control plane, containerd, images, one node ──► ginkgo over the names of a judge's list
//!  │                                                       └─ report.json ── report (pure) ──► verdicts
//!  ├─ results (pure: merge, compare; kept as JSON) ◄───────────────────────────────────────────┘
//!  └─ table, page (pure: text)
//! ```
//!
//! The last full run of each kubelet is kept below `~/.cache/ferrolet/conformance`; `--again` runs
//! what failed in it and lays the new verdicts over it. `--write` puts all into
//! `tests/conformance/results` and generates docs/conformance.md.

mod ginkgo;
mod judge;
mod list;
mod node_log;
mod page;
pub(crate) mod report;
mod results;
mod run;
mod services;
mod store;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use ferrolet_lab::{CgroupView, Network, isolation, parts};

use crate::{build, count, given, option};
use judge::Judge;
use results::Kubelet;

/// What to run.
#[derive(Debug, Clone)]
struct Plan {
    judge: Judge,
    kubelet: Kubelet,
    agent: PathBuf,
    /// Only names that match, as ginkgo matches.
    focus: Option<String>,
    /// Any test of the suite may be run, not only those of the list.
    is_any: bool,
    n_procs: usize,
    is_again: bool,
    is_page_wanted: bool,
}

/// The command line of `conformance`.
pub(crate) fn command(fast: Arg, agent: Arg) -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("conformance")
        .about("Run upstream's tests of kubelets against this node")
        .arg(fast)
        .arg(agent)
        .arg(
            option(
                "suite",
                "WHICH",
                "Which of upstream's suites: that of clusters, or that of nodes",
            )
            .value_parser(Judge::SUITES.map(Judge::name))
            .default_value(Judge::Cluster.name()),
        )
        .arg(
            option("kubelet", "WHO", "The node's kubelet; upstream's is the control group")
                .value_parser(Kubelet::ALL.map(Kubelet::name))
                .default_value(Kubelet::Ferrolet.name()),
        )
        .arg(option("focus", "RE", "Only tests of the list whose name matches; nothing is kept"))
        .arg(
            flag("any", "With --focus: any test of the suite, not only those of the list")
                .requires("focus"),
        )
        .arg(count("procs", "N", "Tests at a time").default_value("6"))
        .arg(flag("serial", "With --suite node: the tests that want the node for themselves"))
        .arg(flag("again", "Only what did not pass in the last full run, and lay it over that run"))
        .arg(flag(
            "write",
            "Keep the last runs as data in tests/conformance/results and write docs/conformance.md",
        ))
        .arg(
            flag("page", "Run nothing: only write the page from the last runs")
                .conflicts_with_all(["focus", "again"]),
        )
}

pub(crate) fn dispatch(args: &ArgMatches) -> Result<u8> {
    if args.get_flag("page") {
        store::write_page()?;
        return Ok(0);
    }
    let tools = parts::toolbox().required()?;
    let binaries = parts::control_plane().required()?;
    let suite = args
        .get_one::<String>("suite")
        .and_then(|name| Judge::parse(name))
        .context("the parser knows the names")?;
    let judge = match (suite, args.get_flag("serial")) {
        (judge, false) => judge,
        (Judge::Node, true) => Judge::Serial,
        (_, true) => bail!("--serial goes with --suite node"),
    };
    let logind = judge.is_serial().then(|| parts::logind().required()).transpose()?;
    let suite = parts::suite(judge.program()).required()?;
    let kubelet = args
        .get_one::<String>("kubelet")
        .and_then(|name| Kubelet::parse(name))
        .context("the parser knows the names")?;
    let plan = Plan {
        agent: match kubelet {
            Kubelet::Ferrolet => build::agent(args)?,
            Kubelet::Upstream => binaries.binary("kubelet"),
        },
        judge,
        kubelet,
        focus: args.get_one::<String>("focus").cloned(),
        is_any: args.get_flag("any"),
        n_procs: if judge.is_serial() { 1 } else { given(args, "procs") },
        is_again: args.get_flag("again"),
        is_page_wanted: args.get_flag("write"),
    };
    let scene = run::Scene { tools, binaries, suite, logind, plan };
    let view = match judge.is_serial() {
        // Its tests look for the node's cgroups where they are on a machine, and put the whole of it
        // short of memory.
        true => CgroupView::Corner,
        false => CgroupView::Machine,
    };
    isolation::run_seeing(view, Network::Private, |bench| run::run(bench, &scene))
}
