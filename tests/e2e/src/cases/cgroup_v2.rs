//! Contracts of our own code with kernels that the machines that we build on do not have: cgroup v2
//! with every controller, and file systems with quotas. Each is a program of the crate it is about,
//! which lies beside this one.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::cases;
use crate::context::Context;
use crate::runner::{Outcome, without};

cases![
    ; guest:
    the_contract_of_cgroups_holds,
    volumes_are_kept_account_of,
];

/// How often the contract is checked.
const N_ROUNDS: &str = "10";

fn the_contract_of_cgroups_holds(_: &mut Context<'_>) -> Result<Outcome> {
    let said = output(Command::new(program("cgroup_contract")?).arg(N_ROUNDS))?;
    ensure!(said.starts_with("cgroups: V2\n"), "{said}");
    Ok(Outcome::Passed)
}

/// A disk in a file, and the contract of volumes on it.
fn volumes_are_kept_account_of(context: &mut Context<'_>) -> Result<Outcome> {
    if let Some(skipped) = without("mkfs.ext4") {
        return Ok(skipped);
    }
    let directory = context.bench.directory("account")?;
    let (image, disk) = (directory.join("image"), directory.join("disk"));
    std::fs::create_dir_all(&disk)?;
    std::fs::File::create(&image)?.set_len(64 << 20)?;
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota"]);
    output(make.arg(&image))?;
    let mut mount = Command::new("mount");
    output(mount.args(["-t", "ext4", "-o", "loop,prjquota"]).args([&image, &disk]))?;
    let said = output(Command::new(program("account_contract")?).arg(&disk));
    output(Command::new("umount").arg(&disk))?;
    let said = said?;
    ensure!(said.contains("accounts of volumes: ok"), "{said}");
    Ok(Outcome::Passed)
}

/// A program that was built beside this one.
fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("own executable")?;
    let path = own.with_file_name("examples").join(name);
    ensure!(path.exists(), "{} is not built (cargo xtask test does)", path.display());
    Ok(path)
}

fn output(command: &mut Command) -> Result<String> {
    let ended = command.output().with_context(|| format!("{command:?}"))?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr)
    );
    ensure!(ended.status.success(), "{command:?} ended with {}: {said}", ended.status);
    Ok(said)
}
