//! Cgroup v2, in a virtual machine, because the machines that we build on have v1: the contract of
//! the cgroup code, and tests of other files in which cgroups matter, on a containerd in there.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::process::find_program;
use ferrolet_lab::vm::Job;
use ferrolet_lab::{Part, isolation};

use super::{cases, remote};
use crate::context::Context;
use crate::runner::Outcome;

cases![
    a_pod_with_limits_lives_its_life_in_a_virtual_machine,
    the_contract_holds_in_a_virtual_machine,
    swap_and_huge_pages_are_bounded_in_a_virtual_machine,
    memory_is_reserved_in_a_virtual_machine,
    a_pod_of_the_api_swaps_in_a_virtual_machine,
    a_virtual_machine_without_memory_says_whom_it_cost,
    volumes_are_kept_account_of_in_a_virtual_machine,
    a_checkpoint_is_written_in_a_virtual_machine,
    a_directory_of_a_server_is_mounted_in_a_virtual_machine,
    ; long: every_test_of_cgroups_passes_in_a_virtual_machine,
];

/// How often the contract is checked in one machine.
const N_ROUNDS: &str = "10";
/// Long enough for an emulated processor on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);

fn the_contract_holds_in_a_virtual_machine(context: &mut Context<'_>) -> Result<Outcome> {
    let program = own_executable()?.with_file_name("examples").join("cgroup_contract");
    if !program.exists() {
        return Ok(Outcome::Skipped(format!(
            "{} is not built (cargo build -p ferrolet-host --example cgroup_contract)",
            program.display()
        )));
    }
    let ended = context.run_in_machine(&Job {
        command: vec![program.display().to_string(), N_ROUNDS.to_owned()],
        files: vec![program],
        patience: PATIENCE,
        ..Job::default()
    })?;
    ensure!(
        ended.code == 0 && ended.output.starts_with("cgroups: V2\n"),
        "it ended with {}:\n{}",
        ended.code,
        ended.output
    );
    Ok(Outcome::Passed)
}

/// Here, because this kernel may have no quotas: a disk in a file, and the contract of volumes on
/// it.
fn volumes_are_kept_account_of_in_a_virtual_machine(context: &mut Context<'_>) -> Result<Outcome> {
    let program = own_executable()?.with_file_name("examples").join("account_contract");
    let Some(make) = find_program("mkfs.ext4") else {
        return Ok(Outcome::Skipped("there is no mkfs.ext4".to_owned()));
    };
    if !program.exists() {
        return Ok(Outcome::Skipped(format!(
            "{} is not built (cargo build -p ferrolet-mounts --example account_contract)",
            program.display()
        )));
    }
    let script = format!(
        "set -e; cd /tmp; mkdir disk; dd if=/dev/zero of=image bs=1M count=64 2>/dev/null; {} -q -F -O quota,project -E quotatype=prjquota image; mount -t ext4 -o loop,prjquota image disk; {} disk",
        make.display(),
        program.display()
    );
    let ended = context.run_in_machine(&Job {
        command: vec!["/bin/busybox".to_owned(), "sh".to_owned(), "-c".to_owned(), script],
        files: vec![program, make],
        patience: PATIENCE,
        ..Job::default()
    })?;
    ensure!(
        ended.code == 0 && ended.output.contains("accounts of volumes: ok"),
        "it ended with {}:\n{}",
        ended.code,
        ended.output
    );
    Ok(Outcome::Passed)
}

fn a_pod_with_limits_lives_its_life_in_a_virtual_machine(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let names =
        ["limits_arrive_in_the_cgroups", "a_working_pod_is_seen_in_the_summary_and_by_dashboards"];
    run_tests(context, &names, Guest::default(), PATIENCE)
}

/// Debian's CRIU is too old for the kernels of the machines that we build on, and fits the guest's.
fn a_checkpoint_is_written_in_a_virtual_machine(context: &mut Context<'_>) -> Result<Outcome> {
    let mut files = Vec::new();
    // CRIU packs what stands in memory with tar, which has a shell call gzip.
    for name in ["criu", "curl", "tar", "gzip"] {
        match find_program(name) {
            Some(program) => files.push(program),
            None => return Ok(Outcome::Skipped(format!("{name} is not installed"))),
        }
    }
    let names = ["a_checkpoint_of_a_container_is_an_archive_of_it"];
    let guest = Guest { prepare: "ln -sf /bin/busybox /bin/sh".to_owned(), files };
    run_tests(context, &names, guest, PATIENCE)
}

/// The machines that we build on have neither, and what a whole machine has of them is not a test's
/// to change.
fn swap_and_huge_pages_are_bounded_in_a_virtual_machine(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let names =
        ["a_static_pod_does_not_swap_although_its_class_may", "huge_pages_are_given_and_bounded"];
    let prepare = "echo 16 >/proc/sys/vm/nr_hugepages && mkswap /dev/ram0 && swapon /dev/ram0";
    run_tests(context, &names, Guest::prepared(prepare), PATIENCE)
}

fn memory_is_reserved_in_a_virtual_machine(context: &mut Context<'_>) -> Result<Outcome> {
    let names = ["memory_is_reserved_and_throttled_as_the_policy_says"];
    run_tests(context, &names, Guest::default(), PATIENCE)
}

fn a_pod_of_the_api_swaps_in_a_virtual_machine(context: &mut Context<'_>) -> Result<Outcome> {
    let names = ["a_burstable_pod_of_the_api_swaps_by_its_share_of_the_memory"];
    let guest =
        Guest { prepare: "mkswap /dev/ram0 && swapon /dev/ram0".to_owned(), ..Guest::default() };
    run_tests(context, &names, guest, PATIENCE)
}

fn a_virtual_machine_without_memory_says_whom_it_cost(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let names = ["a_machine_without_memory_says_whom_it_cost"];
    run_tests(context, &names, Guest::default(), PATIENCE)
}

fn every_test_of_cgroups_passes_in_a_virtual_machine(context: &mut Context<'_>) -> Result<Outcome> {
    let names = [
        "limits_arrive_in_the_cgroups",
        "quality_of_service_chooses_the_cgroup",
        "a_removed_manifest_leaves_nothing",
        "an_edited_manifest_gives_a_new_pod",
    ];
    run_tests(context, &names, Guest::default(), PATIENCE * 3)
}

/// NFS from a server on loopback: the machines that we build on have kernels without it. The
/// program that `mount` calls for help says what its fellow of nfs-common would ask the server for.
fn a_directory_of_a_server_is_mounted_in_a_virtual_machine(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let server = match &context.options.nfs_server {
        Part::Available(server) => server.clone(),
        Part::Missing(reason) => return Ok(Outcome::Skipped(format!("no server: {reason}"))),
    };
    let mount = find_program("mount").context("there is no mount")?;
    let port = remote::PORT;
    let helper = format!(
        r#"exec {} -i -t nfs -o "addr=127.0.0.1,vers=3,nolock,proto=tcp,port={port},mountport={port},mountproto=tcp,${{4:-rw}}" "$1" "$2""#,
        mount.display()
    );
    let prepare = format!(
        "mkdir -p /sbin {exported} && printf '%s\n' '#!/bin/busybox sh' '{helper}' >/sbin/mount.nfs && chmod 755 /sbin/mount.nfs && {{ {server} {exported} {port} >/tmp/server.log 2>&1 & }}",
        exported = remote::EXPORTED,
        server = server.display(),
    );
    let guest = Guest { prepare, files: vec![server, mount] };
    let names = ["what_a_server_exports_is_mounted_written_and_let_go"];
    run_tests(context, &names, guest, PATIENCE)
}

/// What a virtual machine has besides the tests.
struct Guest {
    /// For its shell, before the tests.
    prepare: String,
    files: Vec<PathBuf>,
}

impl Default for Guest {
    fn default() -> Self {
        Self::prepared("true")
    }
}

impl Guest {
    fn prepared(words: &str) -> Self {
        Self { prepare: words.to_owned(), files: Vec::new() }
    }
}

/// Runs tests of this program in a virtual machine, under the names that they have here, after a
/// shell has prepared it.
fn run_tests(
    context: &mut Context<'_>,
    names: &[&str],
    guest: Guest,
    patience: Duration,
) -> Result<Outcome> {
    let (mut files, mut environment) = context.tools.luggage()?;
    let (tests, agent) = (own_executable()?, context.options.agent.clone());
    let mut command = ["sh", "-c"].map(str::to_owned).to_vec();
    let words = format!("{} && exec \"$@\"", guest.prepare);
    command.extend([words, "sh".to_owned()]);
    command.push(tests.display().to_string());
    command.extend(["--agent".to_owned(), agent.display().to_string()]);
    command.extend(["--jobs", "2", "--keep", "/tmp/failures"].map(str::to_owned));
    command.extend(names.iter().map(|name| (*name).to_owned()));
    files.extend([tests, agent]);
    files.extend(guest.files);
    environment.extend(isolation::environment_of_guest(context.bench));
    let ended = context.run_in_machine(&Job { files, environment, command, patience })?;
    let expected = format!("{} passed, 0 failed, 0 skipped", names.len());
    ensure!(
        ended.code == 0 && ended.output.lines().last() == Some(&expected),
        "in the virtual machine:\n{}",
        ended.output
    );
    Ok(Outcome::Passed)
}

fn own_executable() -> Result<PathBuf> {
    std::env::current_exe().context("own executable")
}
