//! Calling cargo: building the agent and finding what was built.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use ferrolet_lab::isolation;
use ferrolet_lab::process::output;

/// How much time to spend on optimising.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Release,
    Lab,
    Dev,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Lab => "lab",
            Profile::Dev => "dev",
        }
    }

    fn directory(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Lab => "lab",
            Profile::Dev => "debug",
        }
    }
}

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies in the checkout").to_owned()
}

/// A cargo command in the checkout.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// `cargo metadata` without third parties.
pub(crate) fn metadata() -> Result<serde_json::Value> {
    let text = output(cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    serde_json::from_str(&text).context("cargo metadata")
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let metadata = metadata()?;
    let target = metadata["target_directory"]
        .as_str()
        .context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(target))
}

/// Where a package's executable is, without building it.
pub(crate) fn executable(package: &str, profile: Profile) -> Result<PathBuf> {
    Ok(target_directory()?.join(profile.directory()).join(package))
}

/// Builds a package's executable and gives its path; cargo's own messages go to the terminal.
pub(crate) fn build(package: &str, profile: Profile) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--package", package, "--profile", profile.name()]);
    say(&command);
    let status = command.status().context("start cargo")?;
    if !status.success() {
        bail!("{package} does not build");
    }
    executable(package, profile)
}

/// Has the test that holds `docs/metrics.md` against its tables write the page.
pub(crate) fn write_metrics_page() -> Result<u8> {
    let mut command = cargo();
    command
        .args(["test", "--package", "ferrolet-server", "--lib"])
        .arg("the_page_of_figures_is_of_these_tables")
        .env("FERROLET_WRITE_PAGES", "1");
    say(&command);
    let status = command.status().context("start cargo")?;
    if !status.success() {
        bail!("the page could not be written");
    }
    Ok(0)
}

/// The agent that a command's arguments ask for: `--agent PATH`, or ours, with `--fast` in the lab
/// profile.
///
/// Commands run again inside the private world, where everything is built already and only has to
/// be found.
pub(crate) fn agent(args: &ArgMatches) -> Result<PathBuf> {
    if let Some(path) = args.get_one::<String>("agent") {
        return Path::new(path).canonicalize().with_context(|| format!("agent {path}"));
    }
    let profile = if args.get_flag("fast") { Profile::Lab } else { Profile::Release };
    own_agent(profile)
}

/// The agent for somebody who wants to see it: `--agent PATH`, or ours in the lab profile, with
/// `--release` as it is released.
pub(crate) fn agent_to_look_at(args: &ArgMatches) -> Result<PathBuf> {
    if args.contains_id("agent") {
        return agent(args);
    }
    own_agent_to_look_at(args)
}

/// Ours even where `--agent` names another one, for what only ours can do.
pub(crate) fn own_agent_to_look_at(args: &ArgMatches) -> Result<PathBuf> {
    own_agent(if args.get_flag("release") { Profile::Release } else { Profile::Lab })
}

fn own_agent(profile: Profile) -> Result<PathBuf> {
    if isolation::is_outer() { build("ferrolet", profile) } else { executable("ferrolet", profile) }
}

/// An example program of a package, in the profile that a command's arguments ask for.
pub(crate) fn example(package: &str, name: &str, args: &ArgMatches) -> Result<PathBuf> {
    let profile = if args.get_flag("fast") { Profile::Lab } else { Profile::Release };
    if isolation::is_outer() {
        let mut command = cargo();
        command.args(["build", "--package", package, "--example", name]);
        command.args(["--profile", profile.name()]);
        say(&command);
        let status = command.status().context("start cargo")?;
        if !status.success() {
            bail!("{name} does not build");
        }
    }
    let beside = executable(package, profile)?;
    Ok(beside.with_file_name("examples").join(name))
}

/// Shows a command before it runs.
pub(crate) fn say(command: &Command) {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    let name = Path::new(words[0].as_ref()).file_name().unwrap_or_default().to_string_lossy();
    println!("== {name} {}", words[1..].join(" "));
}
