//! A Debian whose first process is systemd, with D-Bus and logind, as a disk for the guest.
//!
//! The packages are taken apart and not installed: no script of theirs runs, and nothing of this
//! machine changes. What their scripts would have made (users, links, the machine's id) is in
//! [`FILES`]. Kept in `~/.cache/ferrolet/vm-<hash>`, keyed by everything that goes into it. The
//! emulator writes to a copy that ends with it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::image::hex_digest;
use crate::parts::{cache_directory, debian};
use crate::process::{find_program, output, say};

/// apt finds what they need.
const PACKAGES: [&str; 3] = ["systemd-sysv", "dbus", "systemd"];
/// Room for the system and for what a job writes.
const DISK_SIZE: &str = "3G";
/// Where the system lies on the disk; what is written later lies beside it.
const TOP: &str = "debian";

const FILES: [(&str, &str); 8] = [
    ("etc/hostname", "guest\n"),
    ("etc/machine-id", "6665727266f24f6c8574000000000018\n"),
    (
        "etc/passwd",
        "root:x:0:0::/root:/bin/busybox\nmessagebus:x:100:100::/:/usr/sbin/nologin\nnobody:x:65534:65534::/:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\ntty:x:5:\nmessagebus:x:100:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost\n"),
    ("etc/systemd/journald.conf.d/guest.conf", "[Journal]\nStorage=volatile\n"),
    ("guest/serve", include_str!("../../assets/guest-serve.sh")),
    ("etc/systemd/system/ferrolet-guest.service", include_str!("../../assets/guest.service")),
];

const LINKS: [(&str, &str); 4] = [
    ("etc/systemd/system/default.target", "/lib/systemd/system/multi-user.target"),
    (
        "etc/systemd/system/multi-user.target.wants/ferrolet-guest.service",
        "/etc/systemd/system/ferrolet-guest.service",
    ),
    // Nobody logs in.
    ("etc/systemd/system/getty.target", "/dev/null"),
    ("etc/systemd/system/systemd-firstboot.service", "/dev/null"),
];

/// The disk in the cache, made first if it is not there; half a minute and 30 MB the first time.
pub(super) fn find_or_make() -> Result<PathBuf> {
    let key = hex_digest(format!("{PACKAGES:?} {DISK_SIZE} {FILES:?} {LINKS:?}").as_bytes());
    let target = cache_directory()?.join(format!("vm-{}", &key[..12]));
    let disk = target.join("disk");
    if !disk.exists() {
        make(&target).context("make a system with systemd")?;
    }
    Ok(disk)
}

/// Puts the disk into `target`, whole or not at all.
fn make(target: &Path) -> Result<()> {
    let cache = target.parent().context("cache path has no parent")?;
    let draft = cache.join(format!(".system.{}", std::process::id()));
    let (packages, tree, made) = (draft.join("packages"), draft.join("tree"), draft.join("made"));
    for directory in [&packages, &tree, &made] {
        fs::create_dir_all(directory)?;
    }
    let taken = fetch(&packages)
        .and_then(|()| unpack(&packages, &tree.join(TOP)))
        .and_then(|()| fill(&tree.join(TOP)))
        .and_then(|()| write_disk(&tree, &made.join("disk")));
    let placed = taken.and_then(|()| match fs::rename(&made, target) {
        // Somebody else was faster; theirs is as good.
        Err(_) if target.exists() => Ok(()),
        renamed => renamed.context("move the system into the cache"),
    });
    fs::remove_dir_all(&draft)?;
    placed
}

/// Downloads the packages and all that they need, as for a machine that has nothing.
fn fetch(directory: &Path) -> Result<()> {
    let apt = find_program("apt-get").context("no apt-get to fetch packages with")?;
    say(&format!("apt-get download {} and what they need (once)", PACKAGES.join(" ")));
    fs::create_dir_all(directory.join("partial"))?;
    let nothing = directory.join("installed");
    fs::write(&nothing, "")?;
    let fetch = || {
        output(
            Command::new(&apt)
                .env("DEBIAN_FRONTEND", "noninteractive")
                .arg("--option")
                .arg(format!("Dir::State::status={}", nothing.display()))
                .arg("--option")
                .arg(format!("Dir::Cache::archives={}", directory.display()))
                .args(["--option", "APT::Sandbox::User=root"])
                .args(["--option", "Debug::NoLocking=true"])
                .args(["install", "--yes", "--no-install-recommends", "--download-only"])
                .args(PACKAGES),
        )
    };
    // Package lists may be missing or stale: fetch them once and try again.
    if fetch().is_err() {
        output(Command::new(&apt).arg("update"))?;
        fetch()?;
    }
    Ok(())
}

/// Takes every package apart into one tree.
fn unpack(packages: &Path, tree: &Path) -> Result<()> {
    // Packages name both forms of a path.
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(tree.join("usr").join(name))?;
        symlink(format!("usr/{name}"), tree.join(name))?;
    }
    let mut archives: Vec<PathBuf> =
        fs::read_dir(packages)?.flatten().map(|entry| entry.path()).collect();
    archives.retain(|path| path.extension().is_some_and(|kind| kind == "deb"));
    ensure!(!archives.is_empty(), "apt-get downloaded no package");
    for archive in archives {
        let attempt = || format!("unpack {}", archive.display());
        let mut reader = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(&archive)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(attempt)?;
        let files = reader.stdout.take().context("no pipe from dpkg-deb")?;
        let written = Command::new("tar")
            .args(["--extract", "--keep-directory-symlink", "--file=-", "--directory"])
            .arg(tree)
            .stdin(files)
            .status()
            .with_context(attempt)?;
        let read = reader.wait().with_context(attempt)?;
        ensure!(read.success() && written.success(), "{}: {read}, {written}", attempt());
    }
    Ok(())
}

/// What scripts of the packages would have made, and the job's service.
fn fill(tree: &Path) -> Result<()> {
    let place = |path: &str| -> Result<PathBuf> {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().context("a path without a directory")?)?;
        Ok(path)
    };
    for (path, text) in FILES {
        fs::write(place(path)?, text)?;
    }
    for (path, text) in LINKS {
        symlink(text, place(path)?)?;
    }
    for directory in ["dev", "proc", "sys", "run", "tmp", "root"] {
        fs::create_dir_all(tree.join(directory))?;
    }
    // Nobody reads in there, and each run copies the disk's blocks.
    for directory in ["doc", "locale", "man"] {
        fs::remove_dir_all(tree.join("usr/share").join(directory))?;
    }
    Ok(())
}

fn write_disk(tree: &Path, disk: &Path) -> Result<()> {
    debian::install(&["e2fsprogs"])?;
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-F", "-E", "root_owner=0:0", "-d"]).arg(tree).arg(disk).arg(DISK_SIZE);
    output(&mut make)?;
    Ok(())
}
