//! Debian packages: what a run needs and how it is installed.

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
        .filter(|(_, file)| !std::path::Path::new(file).exists())
        .map(|(package, _)| *package)
        .filter(|package| !is_installed(package))
        .collect();
    install(&missing)
}

/// Installs `packages` with apt-get; without packages it does nothing.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let packages: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if packages.is_empty() {
        return Ok(());
    }
    let Some(apt) = find_program("apt-get") else {
        bail!(
            "not installed and no apt-get to install it: {}",
            packages.join(", ")
        );
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

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|done| done.status.success() && done.stdout == b"installed")
}
