//! End-to-end tests: the real agent on a real containerd, one line per test.
//!
//! A program of its own and not a set of `#[test]` functions, because all tests share one private
//! world ([`ferrolet_lab::isolation`]) and because a test can be skipped with a reason. Each test
//! has a containerd and an agent of its own; several run at a time, as most of their time is
//! waiting.
//!
//! The last line is always `N passed, N failed, N skipped`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the report of a test program goes to standard output")]

mod browser;
mod build;
mod cases;
mod cluster;
mod context;
mod curl;
mod driver;
mod guest;
mod look;
mod runner;
mod session;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use cases::{Case, Kind};
use ferrolet_lab::parts::ControlPlane;
use ferrolet_lab::{Machine, Network, Part, isolation, parts, vm};

const USAGE: &str = "\
usage: ferrolet-e2e --agent PATH [--jobs N] [--keep DIR] [--list] [NAME…]

  --agent PATH  the executable to test; upstream's kubelet works too, for comparison
  --jobs N      tests at a time (default 4)
  --keep DIR    where logs of failed tests are kept (default target/e2e-failures)
  --long        run the tests that take minutes too
  --list        print the names of all tests and end
  NAME…         run the tests whose name or group contains one of these words; a long one only under its full name

Tests of the guests run in one virtual machine each, one after the other, beside the others.";

/// What the command line asks for.
pub(crate) struct Options {
    pub(crate) agent: PathBuf,
    pub(crate) n_jobs: usize,
    pub(crate) keep: PathBuf,
    pub(crate) filters: Vec<String>,
    pub(crate) wants_long: bool,
    /// Upstream's programs, looked for only when a selected test needs them.
    pub(crate) control_plane: Part<ControlPlane>,
    /// A driver for volumes, likewise.
    pub(crate) csi_driver: Part<PathBuf>,
    /// The stand-in for logind.
    pub(crate) logind: Part<PathBuf>,
    /// A device plugin, likewise.
    pub(crate) device_plugin: Part<PathBuf>,
    /// A driver of dynamic resources, likewise.
    pub(crate) claim_driver: Part<PathBuf>,
    /// A client of a node's local services, likewise.
    pub(crate) local_client: Part<PathBuf>,
    /// A runc that maps the users of mounts, likewise.
    pub(crate) newer_runc: Part<PathBuf>,
    /// A server of NFS, likewise.
    pub(crate) nfs_server: Part<PathBuf>,
    /// What boots virtual machines, likewise.
    pub(crate) machine: Part<Machine>,
    /// The same with systemd as the guest's first process, likewise.
    pub(crate) machine_with_systemd: Part<Machine>,
    /// A browser, likewise.
    pub(crate) browser: Part<PathBuf>,
    wants_list: bool,
    /// For the bench's own tests: one pod in a run of its own, then `once` ends,
    /// `hold` waits to be interrupted, and `cluster` does so with a control plane.
    sample_run: Option<String>,
}

fn main() -> ExitCode {
    match drive() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("ferrolet-e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn drive() -> Result<u8> {
    let mut options = parse(std::env::args().skip(1))?;
    if options.wants_list {
        for case in cases::all() {
            let remark = match case.kind {
                Kind::Ordinary => "",
                Kind::Long => " (long)",
                Kind::Guest => " (guest)",
                Kind::Systemd => " (guest with systemd)",
                Kind::Both => " (here and in the guest)",
            };
            println!("{} {}{remark}", case.group, case.name);
        }
        return Ok(0);
    }
    let tools = match parts::toolbox() {
        parts::Part::Available(tools) => tools,
        parts::Part::Missing(reason) => return Ok(runner::skip_all(&options, &reason)),
    };
    let needs_control_plane = match &options.sample_run {
        Some(kind) => kind == cases::bench::CLUSTER,
        None => runner::select(&options).iter().any(|case| case.needs_control_plane()),
    };
    if needs_control_plane {
        options.control_plane = parts::control_plane();
    }
    let needs_driver = |case: &Case| case.group.starts_with("cluster_csi");
    if options.sample_run.is_none() && runner::select(&options).iter().any(needs_driver) {
        options.csi_driver = parts::csi_driver();
    }
    let needs_devices = |case: &Case| case.group == "cluster_devices";
    if options.sample_run.is_none() && runner::select(&options).iter().any(needs_devices) {
        options.device_plugin = parts::device_plugin();
    }
    let needs_claims = |case: &Case| case.group == "cluster_claims";
    if options.sample_run.is_none() && runner::select(&options).iter().any(needs_claims) {
        options.claim_driver = parts::claim_driver();
    }
    let needs_client = |case: &Case| case.group == "local_services";
    if options.sample_run.is_none() && runner::select(&options).iter().any(needs_client) {
        options.local_client = parts::local_client();
    }
    let needs_logind = |case: &Case| case.group == "shutdown";
    if options.sample_run.is_none() && runner::select(&options).iter().any(needs_logind) {
        options.logind = parts::logind();
    }
    if options.sample_run.is_none() && runner::select(&options).iter().any(Case::needs_machine) {
        options.machine = vm::machine();
    }
    if options.sample_run.is_none() && runner::select(&options).iter().any(Case::needs_systemd) {
        options.machine_with_systemd = vm::machine_with_systemd();
    }
    if options.sample_run.is_none() && runner::select(&options).iter().any(Case::needs_nfs_server) {
        options.nfs_server = parts::nfs_server();
    }
    if options.sample_run.is_none() && runner::select(&options).iter().any(Case::needs_browser) {
        options.browser = parts::browser();
    }
    if options.sample_run.is_none() && runner::select(&options).iter().any(Case::needs_newer_runc) {
        options.newer_runc = parts::newer_runc();
    }
    if options.sample_run.is_none() && runner::select(&options).iter().any(Case::needs_prometheus) {
        // Into the cache, where the test finds it or says why not.
        let _ = parts::prometheus();
    }
    if options.sample_run.is_none() && runner::select(&options).iter().any(Case::needs_journal) {
        let _ = parts::journal_writer();
    }
    if options.sample_run.is_none() && runner::select(&options).iter().any(Case::needs_criu) {
        let _ = parts::criu();
    }
    isolation::run(Network::Private, |bench| match &options.sample_run {
        Some(kind) => cases::bench::sample_run(bench, &tools, &options, kind),
        None => runner::run(bench, &tools, &options),
    })
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut agent = None;
    let mut options = Options {
        agent: PathBuf::new(),
        n_jobs: 4,
        keep: PathBuf::from("target/e2e-failures"),
        filters: Vec::new(),
        wants_long: false,
        control_plane: Part::Missing("no selected test needs it".to_owned()),
        csi_driver: Part::Missing("no selected test needs it".to_owned()),
        device_plugin: Part::Missing("no selected test needs it".to_owned()),
        claim_driver: Part::Missing("no selected test needs it".to_owned()),
        local_client: Part::Missing("no selected test needs it".to_owned()),
        logind: Part::Missing("no selected test needs it".to_owned()),
        newer_runc: Part::Missing("no selected test needs it".to_owned()),
        nfs_server: Part::Missing("no selected test needs it".to_owned()),
        machine: Part::Missing("no selected test needs it".to_owned()),
        machine_with_systemd: Part::Missing("no selected test needs it".to_owned()),
        browser: Part::Missing("no selected test needs it".to_owned()),
        wants_list: false,
        sample_run: None,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value\n{USAGE}"));
        match arg.as_str() {
            "--agent" => agent = Some(PathBuf::from(value()?)),
            "--jobs" => options.n_jobs = value()?.parse().context("--jobs wants a number")?,
            "--keep" => options.keep = PathBuf::from(value()?),
            "--sample-run" => options.sample_run = Some(value()?),
            "--long" => options.wants_long = true,
            "--list" => options.wants_list = true,
            "--help" | "-h" => bail!(USAGE),
            flag if flag.starts_with('-') => bail!("unknown option {flag}\n{USAGE}"),
            name => options.filters.push(name.to_owned()),
        }
    }
    if !options.wants_list {
        let given = agent.with_context(|| format!("--agent is missing\n{USAGE}"))?;
        options.agent =
            given.canonicalize().with_context(|| format!("agent {}", given.display()))?;
        options.keep = std::path::absolute(&options.keep)?;
    }
    Ok(options)
}
