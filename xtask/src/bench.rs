//! `cargo xtask bench`: what this node costs and how fast it is.
//!
//! * `bench` races this agent against upstream's kubelet on a real control plane ([`race`]);
//! * `bench server` measures what the agent's server costs those who ask it and the node, both
//!   kubelets in turn ([`server`]);
//! * `bench start` looks closely at the start of static pods, with no control plane and no opponent
//!   ([`start`]);
//! * `bench life` at restarts, deletions and probes of running pods ([`life`]);
//! * `bench volumes` looks at volumes: how soon they are ready, and what a group costs
//!   ([`volumes`]);
//! * `bench runtime` races the embedded runtime against containerd, over CRI ([`runtime`]).
//!
//! ```text
//! race ── rounds, kubelets in turn ──► leg ── lab's Watch and Api ──► control plane
//!   │                                   └─ cost ──► /proc of the agent
//!   └─ score (pure: medians, spread, goals) ──► table, page, chart (pure: text)
//! ```

mod chart;
mod cost;
mod figures;
mod leg;
mod life;
pub(crate) mod machine;
mod page;
mod pods;
mod race;
mod runtime;
mod score;
mod server;
mod start;
mod table;
mod trace;
mod volumes;

use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::{count, number, option, span};

/// The command line of `bench`.
// tidy: a table, one argument after another
pub(crate) fn command(fast: Arg, agent: Arg) -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let quiet = option("quiet", "TIME", "How long to watch the idle agent")
        .value_parser(span::parse)
        .default_value("60s");
    Command::new("bench")
        .about("Race this agent against upstream's kubelet: one control plane, one table")
        .args_conflicts_with_subcommands(true)
        .arg(fast.clone())
        .arg(agent.clone())
        .arg(count("rounds", "N", "Rounds of both kubelets; medians count").default_value("3"))
        .arg(
            count("burst", "N,N", "Pods created at once, for each burst")
                .value_delimiter(',')
                .default_value("50,100"),
        )
        .arg(count("rate-pods", "N", "Pods created one a second").default_value("10"))
        .arg(quiet.clone())
        .arg(option(
            "json",
            "FILE",
            "Write every figure of every round here",
        ))
        .arg(flag(
            "write",
            "Write docs/benchmarks.md and docs/benchmarks.svg",
        ))
        .arg(
            flag(
                "smoke",
                "Tiny sizes, and only a check that every figure comes out",
            )
            .conflicts_with("write"),
        )
        .subcommand(
            Command::new("server")
                .about("What scrapes, followed logs, forwarded ports and floods of requests cost, beside upstream's kubelet")
                .arg(fast.clone())
                .arg(agent.clone())
                .arg(count("pods", "N", "Pods on the node").default_value("100"))
                .arg(
                    option("part", "NAME", "Only this part")
                        .value_parser(["scrapes", "starts", "logs", "port"]),
                )
                .arg(flag("only-ours", "Measure this agent alone")),
        )
        .subcommand(
            Command::new("start")
                .about("How long static pods take to start, and what the agent costs")
                .arg(fast.clone())
                .arg(number("singles", "N", "Pods one at a time").default_value("30"))
                .arg(number("burst", "N", "Pods started at once").default_value("50"))
                .arg(quiet.clone())
                .arg(agent.clone()),
        )
        .subcommand(
            Command::new("life")
                .about("How fast containers restart and pods go, and what probes cost")
                .arg(fast.clone())
                .arg(number("restarts", "N", "Containers that exit once").default_value("20"))
                .arg(number("deletions", "N", "Pods that are deleted").default_value("20"))
                .arg(number("probes", "N", "HTTP probes a second").default_value("400"))
                .arg(quiet.clone())
                .arg(agent.clone()),
        )
        .subcommand(
            Command::new("runtime")
                .about("Race the embedded runtime against containerd and an OCI runtime, over CRI")
                .arg(fast.clone())
                .arg(agent.clone())
                .arg(count("rounds", "N", "Rounds of both runtimes; medians count").default_value("3"))
                .arg(count("singles", "N", "Pods one after the other").default_value("20"))
                .arg(count("pods", "N", "Pods at once").default_value("100"))
                .arg(count("log", "MEGABYTES", "What one container writes").default_value("500"))
                .arg(count("image", "MEGABYTES", "The image that is pulled").default_value("300"))
                .arg(option("runc", "PATH", "containerd's OCI runtime, instead of the runc of the bench"))
                .arg(flag("write", "Write docs/benchmarks-runtime.md")),
        )
        .subcommand(
            Command::new("volumes")
                .about(
                    "How soon volumes are ready, what they cost at rest, and fsGroup on many files",
                )
                .arg(fast)
                .arg(number("files", "N", "Files for fsGroup").default_value("100000"))
                .arg(count("rounds", "N", "Rounds of fsGroup; medians count").default_value("3"))
                .arg(
                    number("pods", "N", "Pods with volumes; 0 leaves them out")
                        .default_value("100"),
                )
                .arg(quiet)
                .arg(agent),
        )
}

pub(crate) fn dispatch(args: &ArgMatches) -> Result<u8> {
    match args.subcommand() {
        None => race::command(args),
        Some(("start", args)) => start::command(args),
        Some(("life", args)) => life::command(args),
        Some(("volumes", args)) => volumes::command(args),
        Some(("runtime", args)) => runtime::command(args),
        Some(("server", args)) => server::command(args),
        Some(_) => bail!("no such benchmark"),
    }
}
