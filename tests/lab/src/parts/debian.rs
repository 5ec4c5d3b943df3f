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

/// Takes a package apart below `target`, whole at once, without installing it: its services must not start here.
pub(crate) fn unpack(package: &str, target: &Path) -> Result<()> {
    if target.exists() {
        return Ok(());
    }
    let apt = find_program("apt-get").context("no apt-get to fetch packages with")?;
    say(&format!("apt-get download {package}"));
    let draft = target.with_extension(format!("draft-{}", std::process::id()));
    std::fs::create_dir_all(&draft)?;
    let unpacked = unpack_into(&apt, package, &draft);
    if let Err(error) = unpacked {
        // A half-made directory is of no use to anyone.
        let _ = std::fs::remove_dir_all(&draft);
        return Err(error.context(format!("fetch {package}")));
    }
    std::fs::rename(&draft, target)?;
    Ok(())
}

fn unpack_into(apt: &Path, package: &str, directory: &Path) -> Result<()> {
    // The unprivileged user of apt-get may not write there, and need not.
    let fetch = ["-o", "APT::Sandbox::User=root", "download", package];
    output(Command::new(apt).current_dir(directory).args(fetch))?;
    for entry in std::fs::read_dir(directory)? {
        let archive = entry?.path();
        output(
            Command::new("dpkg-deb")
                .arg("--extract")
                .arg(&archive)
                .arg(directory),
        )?;
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
