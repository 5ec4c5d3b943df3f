//! Prometheus' own tools out of Debian's package, without installing it: no service may start on
//! this machine.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::go::cache_directory;
use super::{Part, debian};

const PACKAGE: &str = "prometheus";

/// The directory with `prometheus` and `promtool`, downloaded once; found in the cache where there
/// is no network.
pub fn prometheus() -> Part<PathBuf> {
    Part::from(find_or_download())
}

fn find_or_download() -> Result<PathBuf> {
    let target = cache_directory()?.join(PACKAGE);
    debian::unpack(&[PACKAGE], &target)?;
    let programs = target.join("usr/bin");
    ensure!(programs.join("promtool").exists(), "the package has no promtool");
    Ok(programs)
}
