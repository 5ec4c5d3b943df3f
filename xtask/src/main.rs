//! The project's chores: `cargo xtask <command>`.
//!
//! One module per command; what they share with the end-to-end tests lives in `ferrolet-lab`. A new
//! command is a module here and one line in [`command`] and [`dispatch`].
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line tool talks on standard output")]

mod bench;
mod build;
mod cluster;
mod conformance;
mod critest;
mod differential;
mod dist;
mod run;
mod span;
mod test;
mod tidy;

use std::{num::NonZeroUsize, process::ExitCode};

use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

fn main() -> ExitCode {
    match dispatch(&command().get_matches()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let fast = Arg::new("fast")
        .long("fast")
        .action(ArgAction::SetTrue)
        .help("Build in the lab profile: without minutes of link-time optimisation");
    let agent = option(
        "agent",
        "PATH",
        "Take this executable, such as upstream's kubelet, instead of building ours",
    );
    Command::new("cargo xtask")
        .about("Chores of the Ferrolet workspace; each installs or builds what it needs")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(about_the_tree())
        .subcommand(
            Command::new("test")
                .about("Everything that must hold; ends with `N passed, N failed, N skipped`")
                .arg(
                    Arg::new("only")
                        .long("only")
                        .value_name("STEP")
                        .action(ArgAction::Append)
                        .value_parser(test::Step::ALL.map(test::Step::name))
                        .help("Run only this step; may be given several times"),
                )
                .arg(option("jobs", "N", "End-to-end tests at a time"))
                .arg(number(
                    "most-flaky",
                    "N",
                    "Fail when more tests than this failed beside others and passed alone",
                ))
                .arg(
                    Arg::new("long")
                        .long("long")
                        .action(ArgAction::SetTrue)
                        .help("Run the end-to-end tests that take minutes too"),
                )
                .arg(
                    Arg::new("name")
                        .value_name("NAME")
                        .num_args(0..)
                        .help("Run the end-to-end tests whose name or group contains NAME"),
                ),
        )
        .subcommand(
            Command::new("run")
                .about("A node that is its own runtime with the pods of examples/pods, as a table")
                .arg(
                    option("runtime", "NAME", "The node's container runtime")
                        .value_parser(run::RUNTIMES)
                        .default_value(run::RUNTIMES[0]),
                )
                .arg(
                    Arg::new("release")
                        .long("release")
                        .action(ArgAction::SetTrue)
                        .help("Build as for a release: minutes of link-time optimisation"),
                )
                // What is the default here is an option of the other commands.
                .arg(fast.clone().hide(true))
                .arg(agent.clone())
                .arg(
                    Arg::new("for")
                        .long("for")
                        .value_name("TIME")
                        .value_parser(span::parse)
                        .help("End after this time; success if each example reached its state"),
                ),
        )
        .subcommand(cluster::command(fast.clone(), agent.clone()))
        .subcommand(conformance::command(fast.clone(), agent.clone()))
        .subcommand(critest::command(fast.clone(), agent.clone()))
        .subcommand(differential::command(fast.clone(), agent.clone()))
        .subcommand(dist::command(fast.clone()))
        .subcommand(bench::command(fast, agent))
}

/// Commands without arguments, about the files of this tree.
fn about_the_tree() -> [Command; 3] {
    [
        Command::new("tidy")
            .about("Check the house rules: crate edges, I/O in core, unsafe, leftovers, sizes"),
        Command::new("map")
            .about("Draw crates and edges into ARCHITECTURE.md, as the workspace has them"),
        Command::new("metrics")
            .about("Write docs/metrics.md anew, from the tables of figures that the agent serves"),
    ]
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// An option for a number of things that may be none.
fn number(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    option(name, value, help).value_parser(value_parser!(usize))
}

/// An option for a number of things, at least one.
fn count(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    let at_least_one = |text: &str| match text.parse::<NonZeroUsize>() {
        Ok(n) => Ok(n.get()),
        Err(error) => Err(error.to_string()),
    };
    option(name, value, help).value_parser(at_least_one)
}

/// What was given for an option that has a default.
fn given<T: Copy + Send + Sync + 'static>(args: &ArgMatches, name: &str) -> T {
    *args.get_one(name).expect("the option has a default of this type")
}

fn dispatch(matches: &ArgMatches) -> Result<u8> {
    match matches.subcommand() {
        Some(("tidy", _)) => tidy::command(),
        Some(("map", _)) => tidy::map::command(),
        Some(("metrics", _)) => build::write_metrics_page(),
        Some(("test", args)) => test::command(args),
        Some(("run", args)) => run::command(args),
        Some(("cluster", args)) => cluster::dispatch(args),
        Some(("critest", args)) => critest::dispatch(args),
        Some(("differential", args)) => differential::dispatch(args),
        Some(("dist", args)) => dist::dispatch(args),
        Some(("bench", args)) => bench::dispatch(args),
        Some(("conformance", args)) => conformance::dispatch(args),
        _ => bail!("no such command"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command().debug_assert();
    }

    #[test]
    fn sizes_are_numbers_and_where_it_matters_above_zero() {
        let check = |line: &str, is_good: bool| {
            let words = line.split(' ');
            let read = super::command().try_get_matches_from(words);
            assert_eq!(read.is_ok(), is_good, "{line}");
        };
        check("xtask bench --burst 50,100 --rounds 1", true);
        check("xtask bench --burst 50,0", false);
        check("xtask bench --rounds many", false);
        check("xtask bench volumes --pods 0", true);
        check("xtask bench volumes --pods -1", false);
        check("xtask conformance --procs 0", false);
    }
}
