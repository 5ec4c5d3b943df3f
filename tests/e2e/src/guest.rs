//! The tests that need another machine than this one, in one virtual machine for those that need
//! systemd and one for the others: a boot on an emulated processor takes longer than most tests.
//!
//! ```text
//! selected cases ─► phases ─► one script ─► Machine::run ─► this program in there, once a phase ─► lines ─► Told per case
//! ```
//!
//! A phase is what the guest has while its tests run: swap, for one, is in the way of every agent
//! that was not told of it. A test that fails in there is tried again alone in there, and told as
//! flaky like any other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrolet_lab::process::find_program;
use ferrolet_lab::vm::Job;
use ferrolet_lab::{Machine, Part, isolation};

use crate::cases::{Case, remote};
use crate::context::Shared;

/// Set for this program in the guest.
const INSIDE: &str = "FERROLET_E2E_GUEST";
/// For the boot and what is brought along, on a loaded machine.
const BOOT: Duration = Duration::from_secs(200);
/// For one test on an emulated processor on a loaded machine; two run at a time.
const EACH: Duration = Duration::from_secs(180);

/// What the guest said of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Passed,
    Flaky(String),
    Failed(String),
    Skipped(String),
}

/// What the guest has while some tests run.
struct Phase {
    /// For its shell, before the tests.
    prepare: String,
    names: Vec<&'static str>,
}

/// Whether this program runs in the guest.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs the cases in one guest; `heard` gets its lines as they come.
pub(crate) fn run(
    shared: &Shared<'_>,
    machine: &Machine,
    cases: &[Case],
    heard: &mut dyn FnMut(&str),
) -> Result<BTreeMap<&'static str, Told>> {
    let names: Vec<&'static str> = cases.iter().map(|case| case.name).collect();
    let mut output = String::new();
    let ended = machine.run(shared.bench, "guest", &job(shared, cases)?, &mut |line| {
        output.push_str(line);
        output.push('\n');
        heard(line);
    });
    // What was said before it broke off counts; what was not said is a failure by that reason.
    let silence = match &ended {
        Ok(ended) => format!("the guest ended with {} and said nothing of it", ended.code),
        Err(error) => format!("{error:#}"),
    };
    Ok(read(&output, &names, &silence))
}

fn job(shared: &Shared<'_>, cases: &[Case]) -> Result<Job> {
    let (mut files, mut environment) = shared.tools.luggage()?;
    let tests = std::env::current_exe().context("own executable")?;
    let agent = shared.options.agent.clone();
    let examples = tests.with_file_name("examples");
    files.extend(["cgroup_contract", "account_contract"].map(|name| examples.join(name)));
    // CRIU packs what stands in memory with tar, which has a shell call gzip.
    let programs = ["criu", "curl", "tar", "gzip", "mkfs.ext4", "mount"];
    files.extend(programs.into_iter().filter_map(find_program));
    let server = match &shared.options.nfs_server {
        Part::Available(server) => Some(server.clone()),
        Part::Missing(_) => None,
    };
    files.extend(server.clone());
    let with_systemd = cases.iter().any(Case::needs_systemd);
    let mut command = format!("{} --agent {}", tests.display(), agent.display());
    // The systemd of a machine makes one tree of pods.
    command.push_str(if with_systemd { " --jobs 1" } else { " --jobs 2" });
    let phases = if with_systemd { phases_of_systemd(cases) } else { phases(cases, server) };
    let script = script(&phases, &command);
    files.extend([tests, agent]);
    environment.extend(isolation::environment_of_guest(shared.bench));
    environment.push((INSIDE.to_owned(), "1".to_owned()));
    let n_cases = u32::try_from(cases.len()).unwrap_or(u32::MAX);
    Ok(Job {
        // A test may select a file that a fresh machine does not have; its own words say so there.
        files: files.into_iter().filter(|file| file.exists()).collect(),
        environment,
        command: ["sh", "-c", &script].map(str::to_owned).to_vec(),
        patience: BOOT + EACH * n_cases,
    })
}

/// Which tests run with what, in order: the one that takes all memory comes last.
fn phases(cases: &[Case], server: Option<PathBuf>) -> Vec<Phase> {
    let named = |wanted: fn(&str) -> bool| -> Vec<&'static str> {
        cases.iter().map(|case| case.name).filter(|name| wanted(name)).collect()
    };
    let swaps = |name: &str| name.contains("swap");
    let is_last = |name: &str| name.contains("without_memory");
    let mut prepare = "echo 16 >/proc/sys/vm/nr_hugepages; ln -sf /bin/busybox /bin/sh".to_owned();
    if let Some(server) = server {
        prepare.push_str("; ");
        prepare.push_str(&export(&server.display().to_string()));
    }
    let phases = [
        (prepare, named(|name| !name.contains("swap") && !name.contains("without_memory"))),
        ("mkswap /dev/ram0 && swapon /dev/ram0".to_owned(), named(swaps)),
        ("swapoff /dev/ram0; echo 0 >/proc/sys/vm/nr_hugepages".to_owned(), named(is_last)),
    ];
    let phases = phases.map(|(prepare, names)| Phase { prepare, names });
    phases.into_iter().filter(|phase| !phase.names.is_empty()).collect()
}

/// The test that switches the machine off comes last.
fn phases_of_systemd(cases: &[Case]) -> Vec<Phase> {
    let (last, first): (Vec<&'static str>, Vec<&'static str>) =
        cases.iter().map(|case| case.name).partition(|name| name.contains("machine_goes_down"));
    let phases = [first, last].map(|names| Phase { prepare: "true".to_owned(), names });
    phases.into_iter().filter(|phase| !phase.names.is_empty()).collect()
}

/// Starts the server of directories. The program that `mount` calls for help says what its fellow of
/// nfs-common would ask the server for.
fn export(server: &str) -> String {
    let (exported, port) = (remote::EXPORTED, remote::PORT);
    let helper = format!(
        r#"exec mount -i -t nfs -o "addr=127.0.0.1,vers=3,nolock,proto=tcp,port={port},mountport={port},mountproto=tcp,${{4:-rw}}" "$1" "$2""#
    );
    format!(
        "mkdir -p /sbin {exported} && printf '%s\n' '#!/bin/busybox sh' '{helper}' >/sbin/mount.nfs && chmod 755 /sbin/mount.nfs && {{ {server} {exported} {port} >/tmp/server.log 2>&1 & }}"
    )
}

/// Everything in one shell, which ends with 1 when a phase did.
fn script(phases: &[Phase], command: &str) -> String {
    let mut text = String::from("code=0\n");
    for Phase { prepare, names } in phases {
        let names = names.join(" ");
        text.push_str(&format!("{prepare}\n{command} --keep /tmp/failures {names} || code=1\n"));
        // The bridge of a run goes with its network, and the guest has one network for all.
        text.push_str("ip link del node0\n");
    }
    text.push_str("exit $code");
    text
}

/// What the lines of this program, run in the guest, say of each test.
fn read(output: &str, names: &[&'static str], silence: &str) -> BTreeMap<&'static str, Told> {
    let mut told: BTreeMap<&'static str, Told> = BTreeMap::new();
    let mut failing: Option<&'static str> = None;
    for line in output.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim_start();
        let name = rest.split([' ', ':']).next().unwrap_or_default();
        let known = names.iter().copied().find(|it| *it == name);
        let reason = || rest.split_once(": ").map_or("", |it| it.1).to_owned();
        match (word, known) {
            ("ok", Some(name)) => told.insert(name, Told::Passed),
            ("skipped", Some(name)) => told.insert(name, Told::Skipped(reason())),
            ("flaky", Some(name)) => told.insert(name, Told::Flaky(reason())),
            ("FAILED", Some(name)) => {
                failing = Some(name);
                told.insert(name, Told::Failed(String::new()));
                continue;
            }
            // What follows a failure, indented, is about it.
            _ => {
                if let Some(Told::Failed(text)) = failing.and_then(|name| told.get_mut(name))
                    && line.starts_with(' ')
                {
                    text.push_str(line);
                    text.push('\n');
                    continue;
                }
                None
            }
        };
        failing = None;
    }
    for name in names {
        told.entry(name).or_insert_with(|| Told::Failed(format!("    {silence}\n")));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_each_test_counts() {
        let output = "\
3 end-to-end tests on containerd 2.4.2
ok      one                                  2.5 s
FAILED  two                                 60.0 s
    waited 60s for a thing
    logs kept in /tmp
again   two, alone: it failed beside others
ok      two                                  9.0 s
skipped three: no such kernel: none
FAILED  four                                 1.0 s
    it broke
flaky   two: waited 60s for a thing
2 passed, 1 failed, 1 skipped
";
        let told = read(output, &["one", "two", "three", "four", "five"], "the machine stopped");
        assert_eq!(told["one"], Told::Passed);
        assert_eq!(told["two"], Told::Flaky("waited 60s for a thing".to_owned()));
        assert_eq!(told["three"], Told::Skipped("no such kernel: none".to_owned()));
        assert_eq!(told["four"], Told::Failed("    it broke\n".to_owned()));
        assert_eq!(told["five"], Told::Failed("    the machine stopped\n".to_owned()));
    }

    #[test]
    fn a_phase_that_fails_does_not_end_the_next() {
        let phase = |prepare: &str, names: &[&'static str]| Phase {
            prepare: prepare.to_owned(),
            names: names.to_vec(),
        };
        let text = script(&[phase("true", &["a", "b"]), phase("swapon", &["c"])], "e2e --agent x");
        assert_eq!(
            text,
            "code=0\n\
             true\ne2e --agent x --keep /tmp/failures a b || code=1\nip link del node0\n\
             swapon\ne2e --agent x --keep /tmp/failures c || code=1\nip link del node0\n\
             exit $code"
        );
    }
}
