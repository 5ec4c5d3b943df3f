//! Tests that failed beside others and passed alone: told at the end of a run, and kept.
//!
//! Each one is a fault of the test or of the agent. The file is `flaky.log` in the cache
//! directory, so that it outlives a clean build; one line a test, with commit and reason.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;

use anyhow::{Context, Result};
use ferrolet_lab::parts::cache_directory;
use ferrolet_lab::process::output;

use super::lines::Remark;
use crate::build;

pub(super) fn tell(flaky: &[Remark]) -> Result<()> {
    if flaky.is_empty() {
        return Ok(());
    }
    let path = cache_directory()?.join("flaky.log");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    let commit = output(Command::new("git").current_dir(build::root()).args([
        "rev-parse",
        "--short",
        "HEAD",
    ]))
    .unwrap_or_default();
    for Remark { test, reason } in flaky {
        writeln!(file, "{} {test}: {reason}", commit.trim())?;
        println!("FLAKY: {test}: {reason}");
    }
    println!("{} flaky: failed beside others and passed alone ({})", flaky.len(), path.display());
    Ok(())
}
