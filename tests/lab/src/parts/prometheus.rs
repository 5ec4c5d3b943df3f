//! Prometheus' own tools out of Debian's package, without installing it: no service may start on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Part;
use super::go::cache_directory;
use crate::process::{call, output, say};

const PACKAGE: &str = "prometheus";

/// The directory with `prometheus` and `promtool`, downloaded once; found in the cache where there is no network.
pub fn prometheus() -> Part<PathBuf> {
    Part::from(find_or_download())
}

fn find_or_download() -> Result<PathBuf> {
    let target = cache_directory()?.join(PACKAGE);
    let programs = target.join("usr/bin");
    if !programs.join("promtool").exists() {
        download(&target).with_context(|| format!("download {PACKAGE}"))?;
    }
    ensure!(
        programs.join("promtool").exists(),
        "the package has no promtool"
    );
    Ok(programs)
}

fn download(target: &Path) -> Result<()> {
    let draft = target.with_extension(format!("draft.{}", std::process::id()));
    fs::create_dir_all(&draft)?;
    let taken = fetch(&draft);
    let placed = taken.and_then(|()| match fs::rename(draft.join("unpacked"), target) {
        // Somebody else was faster; theirs is as good.
        Err(_) if target.exists() => Ok(()),
        renamed => renamed.context("move it into the cache"),
    });
    fs::remove_dir_all(&draft)?;
    placed
}

fn fetch(draft: &Path) -> Result<()> {
    let get = || {
        output(Command::new("apt-get").current_dir(draft).args([
            "--option",
            "APT::Sandbox::User=root",
            "download",
            PACKAGE,
        ]))
    };
    say(&format!("apt-get download {PACKAGE} (once)"));
    if get().is_err() {
        call("apt-get", &["update"])?;
        get()?;
    }
    let mut files = fs::read_dir(draft)?.flatten().map(|entry| entry.path());
    let package = files.find(|path| path.extension().is_some_and(|kind| kind == "deb"));
    let package = package.context("apt-get downloaded no package")?;
    output(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(package)
            .arg(draft.join("unpacked")),
    )?;
    Ok(())
}
