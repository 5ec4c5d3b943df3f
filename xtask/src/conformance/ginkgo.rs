//! Calling ginkgo: which tests a program has, the command line of a run, and the live count of it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferrolet_lab::process::{Daemon, call, output};
use ferrolet_lab::{Bench, Cluster, Containerd, Node};

use super::judge::Judge;
use super::run::{Extras, Scene};
use super::services::Services;
use super::{list, report};
use crate::span::brief;

/// Longer than any full run; ginkgo would give up after an hour.
const LIMIT: &str = "--timeout=3h";

/// How often tests are heard who ask for the node to be restarted.
const POLL: Duration = Duration::from_millis(100);

/// How often the count is looked at; the log is read whole.
const LOOK: Duration = Duration::from_secs(2);

/// Who the node's judge is to the API server.
const ACCOUNT: &str = "judge";

/// Where the node's judge looks for a kubelet's files; in a run's world it is the run's own.
const ROOT: &str = "/var/lib/kubelet";

/// All that the node's judge has to ask of the machine itself.
const SYSTEM: &str = r#"{"os": "Linux"}"#;

/// A program's tests by bare name, from a dry run: all, or those that match `focus`.
pub(super) fn known_tests(
    program: &Path,
    focus: Option<&str>,
    directory: &Path,
) -> Result<BTreeMap<String, String>> {
    let path = directory.join("names.json");
    let mut command = Command::new(program);
    command
        .current_dir(directory)
        .args(["--ginkgo.dry-run", "--ginkgo.no-color"])
        .arg(format!("--ginkgo.json-report={}", path.display()))
        // Who asks for nothing in particular gets no tests of features.
        .arg(format!("--ginkgo.focus={}", focus.unwrap_or(".")));
    output(&mut command).context("ask the suite for its tests")?;
    let specs = report::specs(&fs::read_to_string(&path)?)?;
    fs::remove_file(&path)?;
    let chosen = specs.into_iter().filter(|spec| spec.state != "skipped");
    Ok(list::by_bare_name(chosen.map(|spec| spec.name)))
}

/// Where a judge finds what it looks at.
pub(super) struct Stage<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) containerd: &'a Containerd,
    pub(super) node: &'a Node,
    pub(super) extras: &'a Extras,
}

/// The command that runs these tests, by the suite's own names; everything that it writes is below
/// `directory`.
pub(super) fn command(
    scene: &Scene,
    stage: &Stage<'_>,
    suite_names: &[String],
    directory: &Path,
) -> Result<Command> {
    // ginkgo runs a program in the program's directory, and the node's judge leaves things there.
    let judge = scene.plan.judge;
    let program = directory.join(judge.program());
    symlink(&scene.suite.test_program, &program)?;
    let mut command = Command::new(scene.suite.binary("ginkgo"));
    command
        .current_dir(directory)
        .args(["--no-color", "-v", LIMIT, "--json-report=report.json"])
        .arg(format!("--procs={}", scene.plan.n_procs))
        .arg(format!("--output-dir={}", directory.display()));
    for name in suite_names {
        command.arg(format!("--focus={}", list::focus(name)));
    }
    command.arg(&program).arg("--");
    match judge {
        Judge::Cluster => through_the_cluster(&mut command, stage.cluster),
        Judge::Node | Judge::Serial => beside_the_node(&mut command, stage, directory)?,
    }
    Ok(command)
}

fn through_the_cluster(command: &mut Command, cluster: &Cluster) {
    command
        .args(["--provider=skeleton", "--node-os-distro=debian"])
        .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
        .arg(format!("--kubectl-path={}", cluster.kubectl_program().display()));
}

/// It would start a control plane and a kubelet of its own, unless it is told where there are some.
fn beside_the_node(command: &mut Command, stage: &Stage<'_>, directory: &Path) -> Result<()> {
    let Stage { cluster, containerd, node, extras } = stage;
    let system = directory.join("system.json");
    fs::write(&system, SYSTEM)?;
    fs::create_dir_all(ROOT)?;
    call("mount", &["--rbind", &node.root().to_string_lossy(), ROOT])?;
    // Tests that want another configuration write it there and restart the kubelet.
    symlink(node.directory().join("kubelet.yaml"), directory.join("kubelet-config"))?;
    command
        .args(["--start-services=false", "--stop-services=false"])
        .args(["--prepull-images=false", "--dns-domain=cluster.local"])
        .arg(format!("--node-name={}", node.name()))
        .arg(format!("--host=https://{}", cluster.address()))
        .arg(format!("--bearer-token={}", token(cluster)?))
        .arg(format!("--container-runtime-endpoint={}", containerd.endpoint()))
        .arg(format!("--system-spec-file={}", system.display()));
    command.envs(extras.environment.iter().cloned());
    if let Some(drop_ins) = &extras.drop_ins {
        command.arg(format!("--config-dir={}", drop_ins.display()));
        // Upstream's program leaves the kubelet's log there, and one of its tests reads it.
        let reports = directory.join("reports");
        fs::create_dir_all(&reports)?;
        symlink(node.log(), reports.join("kubelet.log"))?;
        command.arg(format!("--report-dir={}", reports.display()));
    }
    Ok(())
}

/// A token that may do everything, for longer than a run.
fn token(cluster: &Cluster) -> Result<String> {
    let account = format!("--serviceaccount=default:{ACCOUNT}");
    cluster.kubectl(&["create", "serviceaccount", ACCOUNT])?;
    cluster.kubectl(&[
        "create",
        "clusterrolebinding",
        ACCOUNT,
        "--clusterrole=cluster-admin",
        &account,
    ])?;
    let token = cluster.kubectl(&["create", "token", ACCOUNT, "--duration=10h"])?;
    Ok(token.trim().to_owned())
}

/// Runs ginkgo to its end with a live count; false if somebody interrupted it.
pub(super) fn drive(
    bench: &Bench,
    mut command: Command,
    n_tests: usize,
    node: &mut Node,
    directory: &Path,
) -> Result<bool> {
    let services = Services::install(directory, node.name())?;
    services.offer(&mut command)?;
    let log = &directory.join("ginkgo.log");
    let mut ginkgo = Daemon::spawn("ginkgo", command, log)?;
    let mut counter = Counter::new(n_tests);
    let mut looked = Instant::now();
    loop {
        if bench.is_interrupted() {
            ginkgo.kill()?;
            return Ok(false);
        }
        if ginkgo.ended()?.is_some() {
            counter.show(log)?;
            counter.finish()?;
            return Ok(true);
        }
        services.serve(node)?;
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            counter.show(log)?;
        }
        if services.is_running_wanted()
            && let Err(error) = node.expect_running()
        {
            // A service manager would do the same; the tests say what it cost.
            println!("\n{error:#}\nstarting the node again");
            node.relaunch()?;
        }
        thread::sleep(POLL);
    }
}

/// The live count: one line that changes in a terminal, and elsewhere a line now and then.
struct Counter {
    n_all: usize,
    began: Instant,
    is_terminal: bool,
    count: (usize, usize),
    shown: (usize, usize),
    shown_at: Instant,
}

impl Counter {
    const PAUSE: Duration = Duration::from_secs(20);

    fn new(n_all: usize) -> Counter {
        Counter {
            n_all,
            began: Instant::now(),
            is_terminal: std::io::stdout().is_terminal(),
            count: (0, 0),
            shown: (0, 0),
            shown_at: Instant::now(),
        }
    }

    fn show(&mut self, log: &Path) -> Result<()> {
        let printed = fs::read(log).unwrap_or_default();
        self.count = report::progress(&String::from_utf8_lossy(&printed));
        let is_due = self.is_terminal || self.shown_at.elapsed() >= Counter::PAUSE;
        if self.count != self.shown && is_due {
            self.shown = self.count;
            self.shown_at = Instant::now();
            self.line()?;
        }
        Ok(())
    }

    fn line(&self) -> Result<()> {
        let (n_passed, n_failed) = self.count;
        let line = format!(
            "{} of {}: {n_passed} passed, {n_failed} failed, {}",
            n_passed + n_failed,
            self.n_all,
            brief(self.began.elapsed())
        );
        let mut out = std::io::stdout().lock();
        if self.is_terminal {
            write!(out, "\r\x1b[K{line}")?;
        } else {
            writeln!(out, "{line}")?;
        }
        Ok(out.flush()?)
    }

    fn finish(&self) -> Result<()> {
        self.line()?;
        println!();
        Ok(())
    }
}
