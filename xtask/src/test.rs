//! `cargo xtask test`: everything that must hold, step by step, counted into one last line.
//!
//! ```text
//! steps ── output ──► lines::read ──► Report per step ──► verdict::faults ──► last lines, exit code
//! ```
//!
//! A failing step does not stop the next. Tests that failed beside others and passed alone are
//! named at the end and in a file that is kept ([`flaky`]).

mod deny;
mod flaky;
mod lines;
mod verdict;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use clap::ArgMatches;
use ferrolet_lab::parts::{self, Part};

use crate::build::{self, Profile, cargo};
use crate::tidy;
use lines::{Counts, Line};
use verdict::{Report, Terms};

/// One step; the first four count as one test each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Format,
    Clippy,
    Tidy,
    Deny,
    Unit,
    EndToEnd,
    Differential,
    Bench,
}

impl Step {
    pub(crate) const ALL: [Step; 8] = [
        Step::Format,
        Step::Clippy,
        Step::Tidy,
        Step::Deny,
        Step::Unit,
        Step::EndToEnd,
        Step::Differential,
        Step::Bench,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Step::Format => "fmt",
            Step::Clippy => "clippy",
            Step::Tidy => "tidy",
            Step::Deny => "deny",
            Step::Unit => "unit",
            Step::EndToEnd => "e2e",
            Step::Differential => "differential",
            Step::Bench => "bench",
        }
    }
}

/// Runs the chosen steps and judges what they said.
pub(crate) fn command(args: &ArgMatches) -> Result<u8> {
    let words = |name: &str| -> Vec<String> {
        args.get_many::<String>(name).into_iter().flatten().cloned().collect()
    };
    let (only, names) = (words("only"), words("name"));
    // Naming tests means these tests: the other steps have none of that name.
    let is_wanted = |step: Step| match (only.is_empty(), names.is_empty()) {
        (true, true) => true,
        (true, false) => step == Step::EndToEnd,
        (false, _) => only.iter().any(|name| name == step.name()),
    };
    let skips = build::root().join(".ci/skips");
    let skips = std::fs::read_to_string(&skips).with_context(|| skips.display().to_string())?;
    let may_skip = verdict::read_skips(&skips).map_err(|fault| anyhow!(fault))?;
    let mut steps = Vec::new();
    for step in Step::ALL.into_iter().filter(|step| is_wanted(*step)) {
        let began = Instant::now();
        let report = run(step, args, &names)?;
        let took = began.elapsed().as_secs();
        let Counts { passed, failed, skipped } = report.counts;
        println!(
            "-- {}: {passed} passed, {failed} failed, {skipped} skipped in {took} s",
            step.name()
        );
        steps.push((step.name(), report));
    }
    let terms = Terms {
        may_skip: &may_skip,
        is_whole: only.is_empty() && names.is_empty(),
        most_flaky: args.get_one::<usize>("most-flaky").copied(),
    };
    conclude(&steps, &terms)
}

/// Says what is wrong with the run as a whole, and the last line.
fn conclude(steps: &[(&str, Report)], terms: &Terms<'_>) -> Result<u8> {
    let mut total = Counts::default();
    steps.iter().for_each(|(_, report)| total.add(report.counts));
    let flaky: Vec<_> = steps.iter().flat_map(|(_, report)| report.flaky.clone()).collect();
    flaky::tell(&flaky)?;
    for fault in verdict::faults(steps, terms) {
        println!("NOT GREEN: {fault}");
        total.failed += 1;
    }
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    Ok(u8::from(total.failed > 0))
}

/// The tests beside the code. On a fresh machine the first ones need what only the end-to-end tests would install.
fn unit() -> Result<Report> {
    if let Part::Missing(reason) = parts::packages() {
        println!("tests that need Debian packages are skipped: {reason}");
    }
    counted(cargo().args(["test", "--workspace", "--no-fail-fast"]))
}

/// The end-to-end tests, with the agent that they are about built first.
fn end_to_end(args: &ArgMatches, names: &[String]) -> Result<Report> {
    let Ok(agent) = build::build("ferrolet", Profile::Lab) else {
        return Ok(one(false));
    };
    let Ok(tests) = build::build("ferrolet-e2e", Profile::Dev) else {
        return Ok(one(false));
    };
    // They lie beside the tests' program, which takes them into virtual machines.
    let contracts = ["cgroup_contract", "account_contract"];
    let contracts = contracts.into_iter().flat_map(|it| ["--example", it]);
    let mut build = cargo();
    build.args(["build", "--package", "ferrolet-host", "--package", "ferrolet-mounts"]);
    if succeeds(build.args(contracts))?.counts.failed > 0 {
        return Ok(one(false));
    }
    let mut command = Command::new(tests);
    command.current_dir(build::root()).arg("--agent").arg(agent);
    if let Some(jobs) = args.get_one::<String>("jobs") {
        command.args(["--jobs", jobs]);
    }
    if args.get_flag("long") {
        command.arg("--long");
    }
    counted(command.args(names))
}

/// The short cases of the differential judge, against what upstream's kubelet once answered.
fn differential() -> Result<Report> {
    let Ok(agent) = build::build("ferrolet", Profile::Lab) else {
        return Ok(one(false));
    };
    let Ok(judge) = build::build("ferrolet-differential", Profile::Dev) else {
        return Ok(one(false));
    };
    let mut command = Command::new(judge);
    command.current_dir(build::root()).args(["--recorded", "--quick", "--agent"]);
    counted(command.arg(agent))
}

/// The bench in its smallest size: whether the tool works, and nothing about time.
fn bench() -> Result<Report> {
    let Ok(agent) = build::build("ferrolet", Profile::Lab) else {
        return Ok(one(false));
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "--smoke", "--agent"]).arg(agent);
    counted(&mut command)
}

fn run(step: Step, args: &ArgMatches, names: &[String]) -> Result<Report> {
    match step {
        Step::Format => succeeds(cargo().args(["fmt", "--all", "--check"])),
        Step::Clippy => succeeds(cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "--deny",
            "warnings",
        ])),
        Step::Tidy => {
            println!("== tidy");
            Ok(one(tidy::command()? == 0))
        }
        Step::Deny => deny::check(),
        Step::Unit => unit(),
        Step::EndToEnd => end_to_end(args, names),
        Step::Differential => differential(),
        Step::Bench => bench(),
    }
}

fn one(is_fine: bool) -> Report {
    Report { counts: Counts::one(is_fine), ..Report::default() }
}

fn succeeds(command: &mut Command) -> Result<Report> {
    build::say(command);
    Ok(one(command.status().context("start cargo")?.success()))
}

/// Shows a command's output as it comes and adds up what it says.
fn counted(command: &mut Command) -> Result<Report> {
    build::say(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("start {command:?}"))?;
    let pipe = child.stdout.take().context("standard output is piped")?;
    let mut report = Report::default();
    let mut n_passing = 0;
    for line in BufReader::new(pipe).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        match lines::read(&line) {
            Line::Counts(counts) => report.counts.add(counts),
            Line::Noise => {}
            Line::Other => println!("{line}"),
            Line::Skipped(remark) => {
                println!("{line}");
                report.skipped.push(remark);
            }
            Line::SkippedPassing(remark) => {
                println!("{line}");
                n_passing += 1;
                report.skipped.push(remark);
            }
            Line::Flaky(remark) => {
                println!("{line}");
                report.flaky.push(remark);
            }
        }
    }
    report.counts.passed = report.counts.passed.saturating_sub(n_passing);
    report.counts.skipped += n_passing;
    // A test program that does not build, or breaks off, has no counts.
    if !child.wait()?.success() && report.counts.failed == 0 {
        report.counts.failed = 1;
    }
    Ok(report)
}
