//! `cargo xtask dist`: what is handed to people who do not build, in `target/dist`.
//!
//! ```text
//! cargo build, all of the C library inside ─► ferrolet ─┬─ `completion`, `man` ─► texts ─┐
//! git (when, which), cargo metadata, Cargo.lock ────────┴───────────────────────────────┴─► .deb, .tar.gz, SBOM, SHA256SUMS
//! ```
//!
//! The executable is linked with glibc inside (`crt-static`): it runs on any Linux of its
//! architecture, whatever libraries that has. Names of hosts are then looked up in `/etc/hosts` and
//! by DNS only, as upstream's kubelet does it. A build for another architecture needs Rust's library
//! for it and Debian's cross compiler; where one is missing, it is named. The program's texts come
//! from a build for this machine, because the other one does not run here.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::{Arg, ArgMatches};
use ferrolet_dist::debian::Squeeze;
use ferrolet_dist::{Linking, Release, Texts, debian, linking, sbom, sums};
use ferrolet_lab::process::{find_program, output};

use crate::build;

/// An architecture in everybody's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    /// Debian's.
    debian: &'static str,
    /// The kernel's.
    arch: &'static str,
    /// Rust's.
    triple: &'static str,
    /// The C compiler that links for it.
    linker: &'static str,
}

const TARGETS: [Target; 2] = [
    Target {
        debian: "amd64",
        arch: "x86_64",
        triple: "x86_64-unknown-linux-gnu",
        linker: "x86_64-linux-gnu-gcc",
    },
    Target {
        debian: "arm64",
        arch: "aarch64",
        triple: "aarch64-unknown-linux-gnu",
        linker: "aarch64-linux-gnu-gcc",
    },
];

pub(crate) fn command(fast: Arg) -> clap::Command {
    clap::Command::new("dist")
        .about("A static executable, a Debian package, completions, manual pages, SBOM and checksums in target/dist")
        .arg(fast)
        .arg(
            Arg::new("arch")
                .long("arch")
                .value_name("ARCH")
                .value_parser(TARGETS.map(|target| target.debian))
                .help("Debian's word for the architecture; this machine's without it"),
        )
}

pub(crate) fn dispatch(args: &ArgMatches) -> Result<u8> {
    let own = TARGETS.into_iter().find(|target| target.arch == ARCH);
    let own = own.with_context(|| format!("packages are not made on {ARCH}"))?;
    let asked = args.get_one::<String>("arch");
    let target = asked
        .and_then(|asked| TARGETS.into_iter().find(|target| target.debian == asked))
        .unwrap_or(own);
    let profile = if args.get_flag("fast") { "lab" } else { "release" };
    let program = build_static(target, profile)?;
    let native = if target == own { program.clone() } else { build_static(own, profile)? };
    let release = release(target, &program, &native)?;
    let files = write(&release, &build::target_directory()?.join("dist"))?;
    for file in files {
        println!("{}", file.display());
    }
    Ok(0)
}

/// Builds the agent without a need for libraries, and checks that it has none.
fn build_static(target: Target, profile: &str) -> Result<PathBuf> {
    can_build(target)?;
    let variable = |name: &str| {
        format!("CARGO_TARGET_{}_{name}", target.triple.to_uppercase().replace('-', "_"))
    };
    let mut command = build::cargo();
    command
        .args(["build", "--package", "ferrolet", "--bin", "ferrolet"])
        .args(["--profile", profile, "--target", target.triple])
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env(variable("RUSTFLAGS"), "-C target-feature=+crt-static");
    if target.arch != ARCH {
        command.env(variable("LINKER"), target.linker);
    }
    build::say(&command);
    ensure!(command.status().context("start cargo")?.success(), "ferrolet does not build");
    let path = build::target_directory()?.join(target.triple).join(profile).join("ferrolet");
    let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    ensure!(linking(&bytes)? == Linking::Static, "{} asks for a dynamic linker", path.display());
    Ok(path)
}

/// Says what is missing for another architecture before cargo fails somewhere inside.
fn can_build(target: Target) -> Result<()> {
    if target.arch == ARCH {
        return Ok(());
    }
    let mut missing = Vec::new();
    let library = output(Command::new("rustc").args([
        "--print",
        "target-libdir",
        "--target",
        target.triple,
    ]))?;
    if !Path::new(library.trim()).is_dir() {
        missing.push(format!("Rust's library for it (rustup target add {})", target.triple));
    }
    if find_program(target.linker).is_none() {
        let package = target.linker.replace("-gcc", "").replace('_', "-");
        missing.push(format!("the cross compiler (apt-get install gcc-{package})"));
    }
    if !missing.is_empty() {
        bail!("{} cannot be built here; missing: {}", target.debian, missing.join(", "));
    }
    Ok(())
}

fn release(target: Target, program: &Path, native: &Path) -> Result<Release> {
    let said = |words: &[&str]| output(Command::new(native).args(words));
    let git = |words: &[&str]| output(Command::new("git").current_dir(build::root()).args(words));
    let metadata = output(
        build::cargo()
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(["--filter-platform", target.triple]),
    )?;
    let metadata = serde_json::from_str(&metadata).context("cargo metadata")?;
    let read = |name: &str| fs::read_to_string(build::root().join(name));
    let version = said(&["--version"])?;
    let (kubernetes, own) = versions(&version)?;
    let time = git(&["log", "-1", "--format=%ct"])?.trim().parse().context("time of the commit")?;
    let tag = git(&["tag", "--points-at", "HEAD"])?;
    let commit = git(&["log", "-1", "--format=%cd.%h", "--date=format:%Y%m%d%H%M"])?;
    Ok(Release {
        version: debian_version(own, &tag, commit.trim()),
        kubernetes: kubernetes.to_owned(),
        architecture: target.debian.to_owned(),
        time,
        program: fs::read(program)?,
        texts: Texts {
            bash: said(&["completion", "bash"])?,
            zsh: said(&["completion", "zsh"])?,
            fish: said(&["completion", "fish"])?,
            ferrolet_page: said(&["man"])?,
            kubelet_page: said(&["man", "kubelet"])?,
        },
        bill: sbom::bill(&metadata, &read("Cargo.lock")?, "ferrolet")?,
        changelog: read("CHANGELOG.md")?,
    })
}

/// Kubernetes' version and ours, from `Kubernetes v1.37.1 (ferrolet 0.1.0)`.
fn versions(text: &str) -> Result<(&str, &str)> {
    let parts =
        text.trim().strip_prefix("Kubernetes v").and_then(|it| it.split_once(" (ferrolet "));
    let (kubernetes, own) = parts.with_context(|| format!("no version in {text:?}"))?;
    Ok((kubernetes, own.trim_end_matches(')')))
}

/// A commit without a tag comes before the version that it will become.
fn debian_version(version: &str, tags: &str, commit: &str) -> String {
    let is_released = tags.lines().any(|tag| tag.trim_start_matches('v') == version);
    if is_released { version.to_owned() } else { format!("{version}~{commit}") }
}

fn write(release: &Release, directory: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(directory)?;
    let stem = format!("ferrolet_{}_{}", release.version, release.architecture);
    let put = |name: String, bytes: &[u8]| -> Result<PathBuf> {
        let path = directory.join(name);
        fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    };
    let package = debian::package(release, Squeeze::Well)?;
    let mut files = vec![
        put(debian::file_name(release), &package)?,
        put(format!("{stem}.tar.gz"), &debian::data(release, Squeeze::Well)?)?,
        put(format!("{stem}.cdx.json"), release.bill.as_bytes())?,
    ];
    let names: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let sums = sums(&names)?;
    files.push(put(format!("{stem}.sha256"), sums.as_bytes())?);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_program_says() {
        assert_eq!(versions("Kubernetes v1.37.1 (ferrolet 0.1.0)\n").unwrap(), ("1.37.1", "0.1.0"));
        assert!(versions("Kubernetes v1.37.1").is_err());
    }

    #[test]
    fn a_commit_without_a_tag_comes_before_the_release() {
        assert_eq!(debian_version("0.1.0", "v0.1.0\n", "1.a"), "0.1.0");
        assert_eq!(debian_version("0.1.0", "v0.0.9\n", "1.a"), "0.1.0~1.a");
        assert_eq!(debian_version("0.1.0", "", "1.a"), "0.1.0~1.a");
    }
}
