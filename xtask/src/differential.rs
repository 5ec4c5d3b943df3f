//! `cargo xtask differential`: the same cases on this agent and on upstream's kubelet; a program of
//! its own (`tests/differential`) does the work. Here it is built, with the agent, and started.

use std::process::Command;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches};

use crate::build::{self, Profile};
use crate::option;

/// Flags that are handed on as they are.
const FLAGS: [(&str, &str); 5] = [
    ("recorded", "Compare with the recorded answers only; upstream's kubelet is not started"),
    (
        "record",
        "Record upstream's answers, twice, to the named cases or to those that have none; ours is not started",
    ),
    ("quick", "Only the cases that are part of `cargo xtask test`, all at the same time"),
    ("write", "Write docs/differences.md and end"),
    ("list", "Print the cases and end"),
];

/// The command line of `differential`.
pub(crate) fn command(fast: Arg, agent: Arg) -> clap::Command {
    let command = clap::Command::new("differential")
        .about("Play cases on this agent and on upstream's kubelet and show every difference")
        .arg(fast)
        .arg(agent)
        .arg(option("at-once", "N", "Cases at a time"))
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .num_args(0..)
                .help("Only the cases whose name or group contains NAME"),
        );
    FLAGS.iter().fold(command, |command, (name, help)| {
        let flag = Arg::new(*name).long(*name).action(ArgAction::SetTrue);
        command.arg(flag.help(*help))
    })
}

pub(crate) fn dispatch(args: &ArgMatches) -> Result<u8> {
    let mut command = Command::new(build::build("ferrolet-differential", Profile::Dev)?);
    command.current_dir(build::root());
    // Nothing of ours runs while upstream is recorded or a list is printed.
    if !["record", "write", "list"].iter().any(|it| args.get_flag(it)) {
        command.arg("--agent").arg(build::agent(args)?);
    }
    for (flag, _) in FLAGS.iter().filter(|(flag, _)| args.get_flag(flag)) {
        command.arg(format!("--{flag}"));
    }
    if let Some(n) = args.get_one::<String>("at-once") {
        command.args(["--at-once", n]);
    }
    command.args(args.get_many::<String>("name").into_iter().flatten());
    build::say(&command);
    let status = command.status().context("start ferrolet-differential")?;
    Ok(u8::from(!status.success()))
}
