//! `cargo deny`: licences, bans and sources of everything that is built in.
//!
//! The program is built once, into the cache, where the machine has none. Advisories are checked
//! where their database is on the machine; it comes from a place that not every machine reaches.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use ferrolet_lab::parts::cache_directory;
use ferrolet_lab::process::find_program;

use super::verdict::Report;
use super::{one, succeeds};
use crate::build::{self, cargo};

/// Pinned, because a newer one may know more and refuse more.
const VERSION: &str = "0.20.2";

pub(super) fn check() -> Result<Report> {
    let Some(program) = program()? else {
        return Ok(one(false));
    };
    let mut command = Command::new(program);
    command.current_dir(build::root()).args(["check", "--hide-inclusion-graph"]);
    if has_advisories() {
        command.args(["--disable-fetch", "advisories"]);
    } else {
        println!("deny: no advisory database on this machine; advisories are not checked");
    }
    succeeds(command.args(["bans", "licenses", "sources"]))
}

/// The program, built if need be; none if it does not build.
fn program() -> Result<Option<PathBuf>> {
    if let Some(found) = find_program("cargo-deny") {
        return Ok(Some(found));
    }
    let home = cache_directory()?.join(format!("cargo-deny-{VERSION}"));
    let built = home.join("bin/cargo-deny");
    if built.exists() {
        return Ok(Some(built));
    }
    println!("cargo deny is built once, into {}", home.display());
    let mut install = cargo();
    install.args(["install", "cargo-deny", "--locked", "--debug", "--quiet", "--version", VERSION]);
    let report = succeeds(install.arg("--root").arg(&home))?;
    Ok((report.counts.failed == 0).then_some(built))
}

fn has_advisories() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    home.is_some_and(|home| home.join("advisory-dbs").is_dir())
}
