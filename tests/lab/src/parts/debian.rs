//! Debian packages: what a run needs and how it is installed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::{find_program, output, say};

/// Package, and a file by which it is recognised on machines that got it some other way.
const NEEDED: [(&str, &str); 6] = [
    ("runc", "/usr/sbin/runc"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("busybox-static", "/usr/share/doc/busybox-static/copyright"),
    ("iptables", "/usr/sbin/iptables"),
    ("iproute2", "/usr/sbin/ip"),
    ("util-linux", "/usr/bin/unshare"),
];

/// The files by which a run recognises its packages.
pub(super) fn signs() -> impl Iterator<Item = &'static str> {
    NEEDED.iter().map(|(_, file)| *file)
}

/// Installs the packages of a run that are not there.
pub(super) fn install_missing() -> Result<()> {
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(_, file)| !Path::new(file).exists())
        .map(|(package, _)| *package)
        .filter(|package| !is_installed(package))
        .collect();
    install(&missing)
}

/// Installs `packages` with apt-get; without packages it does nothing.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let packages: Vec<&str> =
        packages.iter().copied().filter(|package| !is_installed(package)).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let Some(apt) = find_program("apt-get") else {
        bail!("not installed and no apt-get to install it: {}", packages.join(", "));
    };
    say(&format!("apt-get install {}", packages.join(" ")));
    let install = || {
        output(
            Command::new(&apt)
                .env("DEBIAN_FRONTEND", "noninteractive")
                .args(["install", "--yes", "--no-install-recommends"])
                .args(&packages),
        )
    };
    // Package lists may be missing or stale: fetch them once and try again.
    if install().is_err() {
        say("apt-get update");
        output(Command::new(&apt).arg("update"))?;
        install().with_context(|| format!("install {}", packages.join(", ")))?;
    }
    Ok(())
}

/// Takes packages apart below `target`, whole at once, without installing them: their services must
/// not start here.
pub(crate) fn unpack(packages: &[&str], target: &Path) -> Result<()> {
    if target.exists() {
        return Ok(());
    }
    let apt = find_program("apt-get").context("no apt-get to fetch packages with")?;
    let draft = target.with_extension(format!("draft-{}", std::process::id()));
    std::fs::create_dir_all(&draft)?;
    let placed = unpack_into(&apt, packages, &draft)
        .with_context(|| format!("fetch {}", packages.join(", ")))
        .and_then(|()| Ok(std::fs::rename(&draft, target)?));
    if placed.is_err() {
        // A half-made directory is of no use to anyone.
        let _ = std::fs::remove_dir_all(&draft);
    }
    match placed {
        // Somebody else was faster; theirs is as good.
        Err(_) if target.exists() => Ok(()),
        placed => placed,
    }
}

fn unpack_into(apt: &Path, packages: &[&str], directory: &Path) -> Result<()> {
    say(&format!("apt-get download {} (once)", packages.join(" ")));
    // The unprivileged user of apt-get may not write there, and need not.
    let fetch = || {
        output(
            Command::new(apt)
                .current_dir(directory)
                .args(["-o", "APT::Sandbox::User=root", "download"])
                .args(packages),
        )
    };
    // Package lists may be missing or stale: fetch them once and try again.
    if fetch().is_err() {
        output(Command::new(apt).arg("update"))?;
        fetch()?;
    }
    for entry in std::fs::read_dir(directory)? {
        let archive = entry?.path();
        if archive.extension().is_none_or(|kind| kind != "deb") {
            continue;
        }
        output(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(directory))?;
        std::fs::remove_file(archive)?;
    }
    Ok(())
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|done| done.status.success() && done.stdout == b"installed")
}
