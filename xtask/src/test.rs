//! `cargo xtask test`: everything that must hold, step by step, counted into one last line.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::ArgMatches;

use crate::build::{self, Profile, cargo};
use crate::tidy;

/// One step; the first three count as one test each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Format,
    Clippy,
    Tidy,
    Unit,
    EndToEnd,
    Differential,
    Bench,
}

impl Step {
    pub(crate) const ALL: [Step; 7] = [
        Step::Format,
        Step::Clippy,
        Step::Tidy,
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
            Step::Unit => "unit",
            Step::EndToEnd => "e2e",
            Step::Differential => "differential",
            Step::Bench => "bench",
        }
    }
}

/// How a unit test that cannot do its work here says so, with its name and the reason after it.
const SKIPPED: &str = "[skipped] ";

/// How many tests ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    fn one(is_fine: bool) -> Counts {
        Counts { passed: u64::from(is_fine), failed: u64::from(!is_fine), skipped: 0 }
    }

    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Runs the chosen steps; a failing one does not stop the next.
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
    let mut total = Counts::default();
    for step in Step::ALL.into_iter().filter(|step| is_wanted(*step)) {
        let counts = run(step, args, &names)?;
        if counts.failed > 0 {
            println!("-- {}: {} failed", step.name(), counts.failed);
        }
        total.add(counts);
    }
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    Ok(u8::from(total.failed > 0))
}

/// The end-to-end tests, with the agent that they are about built first.
fn end_to_end(args: &ArgMatches, names: &[String]) -> Result<Counts> {
    let Ok(agent) = build::build("ferrolet", Profile::Lab) else {
        return Ok(Counts::one(false));
    };
    let Ok(tests) = build::build("ferrolet-e2e", Profile::Dev) else {
        return Ok(Counts::one(false));
    };
    // They lie beside the tests' program, which takes them into virtual machines.
    let contracts = ["cgroup_contract", "account_contract"];
    let contracts = contracts.into_iter().flat_map(|it| ["--example", it]);
    let mut build = cargo();
    build.args(["build", "--package", "ferrolet-host"]);
    if succeeds(build.args(contracts))?.failed > 0 {
        return Ok(Counts::one(false));
    }
    let mut command = Command::new(tests);
    command.current_dir(build::root()).arg("--agent").arg(agent);
    if let Some(jobs) = args.get_one::<String>("jobs") {
        command.args(["--jobs", jobs]);
    }
    if args.get_flag("long") {
        command.arg("--long");
    }
    counted(command.args(names), total_line)
}

/// The short cases of the differential judge, against what upstream's kubelet once answered.
fn differential() -> Result<Counts> {
    let Ok(agent) = build::build("ferrolet", Profile::Lab) else {
        return Ok(Counts::one(false));
    };
    let Ok(judge) = build::build("ferrolet-differential", Profile::Dev) else {
        return Ok(Counts::one(false));
    };
    let mut command = Command::new(judge);
    command.current_dir(build::root()).args(["--recorded", "--quick", "--agent"]);
    counted(command.arg(agent), total_line)
}

/// The bench in its smallest size: whether the tool works, and nothing about time.
fn bench() -> Result<Counts> {
    let Ok(agent) = build::build("ferrolet", Profile::Lab) else {
        return Ok(Counts::one(false));
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "--smoke", "--agent"]).arg(agent);
    counted(&mut command, total_line)
}

fn run(step: Step, args: &ArgMatches, names: &[String]) -> Result<Counts> {
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
            Ok(Counts::one(tidy::command()? == 0))
        }
        Step::Unit => counted(cargo().args(["test", "--workspace", "--no-fail-fast"]), unit_line),
        Step::EndToEnd => end_to_end(args, names),
        Step::Differential => differential(),
        Step::Bench => bench(),
    }
}

fn succeeds(command: &mut Command) -> Result<Counts> {
    build::say(command);
    Ok(Counts::one(command.status().context("start cargo")?.success()))
}

/// Shows a command's output as it comes and adds up the counts in it.
fn counted(command: &mut Command, count: fn(&str) -> Option<Counts>) -> Result<Counts> {
    build::say(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("start {command:?}"))?;
    let pipe = child.stdout.take().context("standard output is piped")?;
    let mut total = Counts::default();
    let mut n_skipped = 0;
    for line in BufReader::new(pipe).lines() {
        let line = line?;
        match count(&line) {
            Some(counts) => total.add(counts),
            None if line.contains(SKIPPED) => {
                n_skipped += 1;
                println!("{line}");
            }
            // cargo's lists of empty test binaries would bury the rest.
            None if line.is_empty() || line == "running 0 tests" => {}
            None => println!("{line}"),
        }
    }
    // The harness has counted them as passed.
    total.passed = total.passed.saturating_sub(n_skipped);
    total.skipped += n_skipped;
    // A test program that does not build, or breaks off, has no counts.
    if !child.wait()?.success() && total.failed == 0 {
        total.failed = 1;
    }
    Ok(total)
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.04s`.
fn unit_line(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    counts_in(rest, ';', "ignored")
}

/// `12 passed, 0 failed, 1 skipped`.
fn total_line(line: &str) -> Option<Counts> {
    counts_in(line, ',', "skipped")
}

fn counts_in(text: &str, separator: char, third: &str) -> Option<Counts> {
    let mut parts = text.split(separator).map(str::trim);
    let mut number = |word: &str| parts.next()?.strip_suffix(word)?.trim_end().parse().ok();
    Some(Counts { passed: number("passed")?, failed: number("failed")?, skipped: number(third)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_both_kinds_of_lines() {
        let expected = Some(Counts { passed: 12, failed: 3, skipped: 1 });
        let unit = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.04s";
        assert_eq!(unit_line(unit), expected);
        assert_eq!(total_line("12 passed, 3 failed, 1 skipped"), expected);
        for other in ["", "running 3 tests", "ok      twelve passed, 3 failed", "12 passed"] {
            assert_eq!(unit_line(other), None, "{other}");
            assert_eq!(total_line(other), None, "{other}");
        }
    }
}
