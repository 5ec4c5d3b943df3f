//! `cargo xtask critest`: upstream's critest judges the embedded runtime, behind its socket.
//!
//! ```text
//! lab ── registry on loopback with stand-ins for critest's images ── `ferrolet runtime`, network and streams of its own
//!   └─► critest, streams over SPDY; then its cases of streams again, over WebSocket ── JSON reports ──► verdict (pure)
//! ```
//!
//! `tests/critest/expected.txt` has the cases that may fail, each with a reason. A failure that is not there fails the
//! command, and so does a case of the list that passes. Everything runs in a world of its own and goes with it; logs of
//! a run that failed are kept, and their place is told.

mod verdict;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgMatches};
use ferrolet_lab::parts::{self, Critest};
use ferrolet_lab::process::{Daemon, call, keep};
use ferrolet_lab::{Bench, Network, Registry, critest, isolation, wait_until};

use crate::conformance::report;
use crate::span::brief;
use crate::{build, option};
use verdict::{Expected, Verdict};

/// Which cases may fail, and why.
const EXPECTED: &str = include_str!("../../tests/critest/expected.txt");

/// Longer than any full run.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// How often critest is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// One run of critest.
struct Pass {
    name: &'static str,
    /// What the names of its cases begin with in the list and in the table.
    prefix: &'static str,
    focus: Option<&'static str>,
    flags: &'static [&'static str],
}

const PASSES: [Pass; 2] = [
    Pass { name: "spdy", prefix: "", focus: None, flags: &[] },
    Pass {
        name: "websocket",
        prefix: "[WebSocket] ",
        focus: Some("Streaming"),
        flags: &["-websocket-exec", "-websocket-attach", "-websocket-portforward"],
    },
];

/// The command line of `critest`.
pub(crate) fn command(fast: Arg, agent: Arg) -> clap::Command {
    clap::Command::new("critest")
        .about("Let upstream's critest judge the embedded runtime")
        .arg(fast)
        .arg(agent)
        .arg(option("focus", "RE", "Only cases whose name matches"))
        .arg(option("logs", "DIR", "Keep the logs there, whatever comes of the run"))
}

pub(crate) fn dispatch(args: &ArgMatches) -> Result<u8> {
    let parts = parts::critest().required()?;
    let agent = build::agent(args)?;
    let focus = args.get_one::<String>("focus").cloned();
    let logs = args.get_one::<String>("logs").map(PathBuf::from);
    let expected = verdict::parse(EXPECTED)?;
    isolation::run(Network::Private, |bench| {
        let scene = Scene { bench, parts: &parts, agent: &agent };
        judge(&scene, focus.as_deref(), logs.as_deref(), &expected)
    })
}

struct Scene<'a> {
    bench: &'a Bench,
    parts: &'a Critest,
    agent: &'a Path,
}

fn judge(
    scene: &Scene<'_>,
    focus: Option<&str>,
    logs: Option<&Path>,
    expected: &Expected,
) -> Result<u8> {
    let directory = scene.bench.directory("critest")?;
    let judged = run(scene, focus, &directory, expected);
    let is_well = matches!(judged, Ok(true));
    let usual = || (!is_well).then(|| build::root().join("target/critest"));
    if let Some(place) = logs.map(Path::to_owned).or_else(usual) {
        keep_logs(&directory, &place)?;
        println!("logs: {}", place.display());
    }
    Ok(u8::from(!judged?))
}

/// Runs all passes and prints what they came to; whether it is as the list says.
fn run(
    scene: &Scene<'_>,
    focus: Option<&str>,
    directory: &Path,
    expected: &Expected,
) -> Result<bool> {
    let registry = Registry::start(&critest::images(scene.parts)?)?;
    // critest tries there whether mounts can map users; the bench's `/var` is an overlay, which cannot.
    call("mount", &["-t", "tmpfs", "tmpfs", "/var/lib"])?;
    let mut runtime = start_runtime(scene, &registry, directory)?;
    let (mut specs, mut failures) = (Vec::new(), Vec::new());
    for pass in PASSES {
        // A later pass is about its own cases: where others are asked for, it has nothing to run.
        if let (Some(own), Some(asked)) = (pass.focus, focus)
            && !asked.contains(own)
        {
            continue;
        }
        let text = run_pass(scene, &pass, focus.or(pass.focus), directory)?;
        specs.extend(report::specs(&text)?.into_iter().map(|mut spec| {
            spec.name = format!("{}{}", pass.prefix, spec.name);
            spec
        }));
        failures.extend(report::suite_failures(&text)?);
        runtime.expect_running().context("the runtime ended under critest")?;
    }
    let verdict = Verdict::of(&specs, expected);
    print!("{}", verdict.table());
    for failure in &failures {
        println!("critest itself: {failure}");
    }
    Ok(verdict.is_well() && failures.is_empty())
}

fn start_runtime(scene: &Scene<'_>, registry: &Registry, directory: &Path) -> Result<Daemon> {
    let hosts = directory.join("registries");
    for name in critest::REGISTRIES {
        let (place, url) = (hosts.join(name), registry.url());
        fs::create_dir_all(&place)?;
        fs::write(place.join("hosts.toml"), format!("server = '{url}'\n[host.'{url}']\n"))?;
    }
    let empty = directory.join("cni");
    fs::create_dir_all(&empty)?;
    let (_, subnet) = scene.bench.next_subnet();
    let socket = directory.join("runtime.sock");
    let mut command = Command::new(scene.agent);
    command
        .arg("runtime")
        .arg("--root")
        .arg(directory.join("root"))
        .arg("--run")
        .arg(directory.join("run"))
        .arg(format!("--listen=unix://{}", socket.display()))
        .arg(format!("--cgroup-parent={}/pods", scene.bench.run_id().cgroup()))
        .arg(format!("--pod-cidr={subnet}.0/24"))
        .arg("--cni-conf-dir")
        .arg(&empty)
        .arg("--registry-hosts")
        .arg(&hosts)
        .args(["-v", "2"]);
    let mut runtime = Daemon::spawn("ferrolet runtime", command, &directory.join("runtime.log"))?;
    wait_until("the runtime's socket", Duration::from_secs(30), || {
        runtime.expect_running()?;
        Ok(std::os::unix::net::UnixStream::connect(&socket).ok().map(drop))
    })?;
    Ok(runtime)
}

/// Runs critest to its end and gives its report. Failing cases are no error here.
fn run_pass(
    scene: &Scene<'_>,
    pass: &Pass,
    focus: Option<&str>,
    directory: &Path,
) -> Result<String> {
    let (log, text) = (
        directory.join(format!("{}.log", pass.name)),
        directory.join(format!("{}.json", pass.name)),
    );
    let endpoint = format!("unix://{}", directory.join("runtime.sock").display());
    let mut command = Command::new(&scene.parts.program);
    command
        .current_dir(directory)
        .arg(format!("-runtime-endpoint={endpoint}"))
        .arg(format!("-image-endpoint={endpoint}"))
        .args(pass.flags)
        .args(["--ginkgo.no-color", "--ginkgo.seed=1", "--test.timeout=1h"])
        .arg(format!("--ginkgo.json-report={}", text.display()));
    if let Some(focus) = focus {
        command.arg(format!("--ginkgo.focus={focus}"));
    }
    build::say(&command);
    let began = Instant::now();
    let mut critest = Daemon::spawn("critest", command, &log)?;
    while critest.ended()?.is_none() {
        if scene.bench.is_interrupted() {
            bail!("interrupted");
        }
        if began.elapsed() > PATIENCE {
            bail!("critest did not end within {}\n{}", brief(PATIENCE), critest.log_tail(30));
        }
        thread::sleep(LOOK);
    }
    println!("{} took {}", pass.name, brief(began.elapsed()));
    fs::read_to_string(&text)
        .with_context(|| format!("critest wrote no report\n{}", critest.log_tail(30)))
}

fn keep_logs(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for name in ["runtime.log", "spdy.log", "spdy.json", "websocket.log", "websocket.json"] {
        keep(&from.join(name), &to.join(name))?;
    }
    Ok(())
}
