//! `ferrolet config check|show|diff`: a configuration looked at without starting anything.
//!
//! Reads the files that are named, and for `diff` the record that a running agent leaves in its root
//! directory. What there is to say is decided in `ferrolet_config`; this prints it.

use std::{
    fmt::Display,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use ferrolet_config::{
    Change, CommandLine, Effect, Finding, Invocation, Loaded, NamedText, RawConfig, Severity,
    check, compare, load, shown_fields,
};

use crate::files::{read, read_configuration};

pub(crate) const HELP: &str = "\
ferrolet config: look at a configuration without starting anything

Usage:
  ferrolet config check [FILE…] [kubelet's flags]   every fault and warning, with its line; exit code 1 on a fault
  ferrolet config show [kubelet's flags]            the merged configuration, and where each value comes from
  ferrolet config diff [kubelet's flags]            what a reload of the running agent would change, and when

A FILE whose name ends in .conf is a drop-in and is laid over the others; each other FILE is checked as --config.
";

/// The record of what an agent runs with, in its root directory. It may hold the headers of the pod
/// source, so only root may read it.
pub(crate) const RECORD: &str = "ferrolet_running_config.json";

/// Runs the command that the words ask for.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let (files, flags): (Vec<String>, Vec<String>) =
        words.iter().skip(1).cloned().partition(|word| !word.starts_with('-'));
    let asked = |flags: Vec<String>| -> anyhow::Result<CommandLine> {
        match CommandLine::parse(flags)? {
            Invocation::Run(command_line) => Ok(*command_line),
            Invocation::Help | Invocation::Version(_) => bail!("give the flags that kubelet gets"),
        }
    };
    let result = match (words.first().map(String::as_str), files.as_slice()) {
        (Some("check"), files) => asked(flags).and_then(|it| check_all(&it, files)),
        (Some("show"), []) => asked(flags).and_then(|it| show(&it)),
        (Some("diff"), []) => asked(flags).and_then(|it| diff(&it)),
        (Some("show" | "diff"), [word, ..]) => Err(anyhow::anyhow!(
            "unknown word {word:?}; give --config={word}, and flags as --name=value"
        )),
        (Some("--help" | "-h" | "help"), _) => Ok(say(HELP.trim_end())),
        (Some(word), _) => Err(anyhow::anyhow!(
            "unknown command {word:?}; `ferrolet config help` lists what there is"
        )),
        (None, _) => Err(anyhow::anyhow!("{}", HELP.trim_end())),
    };
    result.unwrap_or_else(|error| {
        writeln!(io::stderr(), "Error: {error:#}").ok();
        ExitCode::FAILURE
    })
}

/// Checks the files that are named, or those of the flags.
fn check_all(command_line: &CommandLine, files: &[String]) -> anyhow::Result<ExitCode> {
    let mut findings: Vec<Finding> = Vec::new();
    if files.is_empty() {
        let (main, dropins) = read_configuration(command_line)?;
        findings.extend(check(command_line, main, &dropins));
    } else {
        let texts = files.iter().map(|file| read(Path::new(file)));
        let texts: Vec<NamedText> = texts.collect::<anyhow::Result<_>>()?;
        let (dropins, mut mains): (Vec<_>, Vec<_>) =
            texts.into_iter().partition(|text| text.name.ends_with(".conf"));
        if mains.is_empty() {
            mains.push(NamedText {
                name: "(defaults)".to_owned(),
                text: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
                    .to_owned(),
            });
        }
        for main in mains {
            findings.extend(check(command_line, Some(main), &dropins));
        }
    }
    findings.iter().for_each(|finding| {
        say(finding);
    });
    let n_faults = findings.iter().filter(|it| it.severity == Severity::Fault).count();
    if n_faults == 0 {
        say("the configuration can be used");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

fn show(command_line: &CommandLine) -> anyhow::Result<ExitCode> {
    for field in shown_fields(&loaded(command_line)?) {
        say(field);
    }
    Ok(ExitCode::SUCCESS)
}

fn diff(command_line: &CommandLine) -> anyhow::Result<ExitCode> {
    let record = record_path(&command_line.flags.root_dir);
    let running = read(&record)
        .context("read what the agent runs with; does one run with this --root-dir?")?;
    let running = RawConfig::decode(&running)
        .map_err(|faults| anyhow::anyhow!("{} cannot be read: {faults:?}", record.display()))?;
    let changes = compare(&running, &loaded(command_line)?.raw);
    if changes.is_empty() {
        say("a reload would change nothing");
    }
    for change in changes {
        say(told(&change));
    }
    Ok(ExitCode::SUCCESS)
}

fn told(change: &Change) -> String {
    let shown = |value: &Option<serde_json::Value>| {
        value.as_ref().map_or_else(|| "(unset)".to_owned(), ToString::to_string)
    };
    let when = match change.effect {
        Effect::Now => "at once",
        Effect::AfterRestart => "after a restart",
    };
    format!("{}: {} -> {} ({when})", change.path, shown(&change.old), shown(&change.new))
}

fn loaded(command_line: &CommandLine) -> anyhow::Result<Loaded> {
    let (main, dropins) = read_configuration(command_line)?;
    Ok(load(command_line, main, &dropins)?)
}

/// Where an agent with this root directory leaves its record.
pub(crate) fn record_path(root_dir: &Path) -> PathBuf {
    root_dir.join(RECORD)
}

fn say(line: impl Display) -> ExitCode {
    // A reader that went away has read enough.
    writeln!(io::stdout(), "{line}").map_or(ExitCode::SUCCESS, |()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

    fn words(all: &[&str]) -> Vec<String> {
        all.iter().map(|it| (*it).to_owned()).collect()
    }

    fn is_success(code: ExitCode) -> bool {
        format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS)
    }

    #[test]
    fn the_exit_code_says_whether_a_configuration_can_be_used() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, fields: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, format!("{HEAD}{fields}\n")).unwrap();
            path.display().to_string()
        };
        let (good, bad) = (put("good.yaml", "maxPods: 5"), put("bad.yaml", "maxPod: 5"));
        let (dropin, worse) = (put("a.conf", "port: 1"), put("b.conf", "port: -1"));
        let none = directory.path().join("none.yaml").display().to_string();
        for (all, expected) in [
            (vec!["check", &good], true),
            (vec!["check", &good, &dropin], true),
            (vec!["check", &dropin], true),
            (vec!["check", &bad], false),
            (vec!["check", &good, &bad], false),
            (vec!["check", &good, &worse], false),
            (vec!["check", &none], false),
            (vec!["check", &good, "--no-such-flag"], false),
            (vec!["show", &good], false),
            (vec!["polish"], false),
            (vec![], false),
        ] {
            assert_eq!(is_success(run(&words(&all))), expected, "{all:?}");
        }
        let flag = format!("--config={good}");
        assert!(is_success(run(&words(&["check", &flag]))));
        assert!(is_success(run(&words(&["show", &flag]))));
    }

    #[test]
    fn a_difference_is_told_with_both_values_and_when() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubelet.yaml");
        let put = |fields: &str| std::fs::write(&path, format!("{HEAD}{fields}\n")).unwrap();
        let flags = words(&[
            "diff",
            &format!("--config={}", path.display()),
            &format!("--root-dir={}", directory.path().display()),
        ]);
        put("maxPods: 5");
        assert!(!is_success(run(&flags)), "nobody runs");
        let Ok(Invocation::Run(command_line)) = CommandLine::parse(flags[1..].to_vec()) else {
            panic!("these are flags");
        };
        let before = loaded(&command_line).unwrap();
        std::fs::write(record_path(directory.path()), before.raw.to_json().to_string()).unwrap();
        put("maxPods: 7\nport: 1234");
        assert!(is_success(run(&flags)));
        let changes = compare(&before.raw, &loaded(&command_line).unwrap().raw);
        let told: Vec<String> = changes.iter().map(told).collect();
        assert_eq!(told, ["port: 10250 -> 1234 (after a restart)", "maxPods: 5 -> 7 (at once)"]);
    }
}
