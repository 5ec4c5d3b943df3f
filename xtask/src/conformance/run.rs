//! One run: everything is started in a world of its own, ginkgo runs the tests, and verdicts come out.
//!
//! What a run leaves is below `target/conformance/<kubelet>`: ginkgo's report and output, the node's log, and for each
//! failure the test's output and the node's log of that time. Everything else goes with the run's world, also on Ctrl-C.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ferrolet_lab::cluster::Access;
use ferrolet_lab::node::Ports;
use ferrolet_lab::parts::{ControlPlane, Suite};
use ferrolet_lab::process::{Daemon, keep, output};
use ferrolet_lab::registry::Registry;
use ferrolet_lab::{
    Bench, Cluster, ClusterNode, ClusterOptions, Containerd, NodeOptions, Toolbox, suite,
};

use super::report::{self, Spec};
use super::results::{Kubelet, Outcome, Results, Run};
use super::{Plan, list, node_log, store, table};
use crate::bench::machine::Machine;
use crate::build;
use crate::span::brief;

const NODE: &str = "judged";
/// Longer than any full run; ginkgo would give up after an hour.
const LIMIT: &str = "--timeout=3h";

/// How often the count is looked at; the log is read whole.
const POLL: Duration = Duration::from_secs(2);

/// What a run stands on.
pub(super) struct Scene {
    pub(super) tools: Toolbox,
    pub(super) binaries: ControlPlane,
    pub(super) suite: Suite,
    pub(super) plan: Plan,
}

pub(super) fn run(bench: &Bench, scene: &Scene) -> Result<u8> {
    let plan = &scene.plan;
    let _turn = turn(plan.kubelet)?;
    let directory = build::root()
        .join("target/conformance")
        .join(plan.kubelet.name());
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    let machine = Machine::look(&scene.tools, &scene.binaries, &plan.agent)?;
    let chosen = choose(scene, &directory)?;
    if chosen.names.is_empty() {
        println!("nothing to run");
        return Ok(0);
    }
    println!(
        "{} tests with {}, {} at a time",
        chosen.suite_names.len(),
        plan.kubelet.name(),
        plan.n_procs
    );

    let cluster = Cluster::start(bench, &scene.binaries, &ClusterOptions::default())?;
    let containerd = Containerd::start(bench, &scene.tools, "containerd")?;
    let missing_images = import_images(&containerd, scene)?;
    let mut node = join(bench, &containerd, &cluster, plan)?;
    let is_complete = drive(bench, scene, &cluster, &mut node, &chosen, &directory)?;
    keep(&node.node.log(), &directory.join("agent.log"))?;
    keep(&containerd.log(), &directory.join("containerd.log"))?;
    if !is_complete {
        println!("interrupted: nothing is kept");
        return Ok(1);
    }

    let path = directory.join("report.json");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("ginkgo left no report; see {}", directory.display()))?;
    for failure in report::suite_failures(&text)? {
        println!("the suite itself: {failure}");
    }
    let specs = report::specs(&text)?;
    let versions = versions(plan.kubelet, &machine);
    let results = Results {
        date: machine.date.clone(),
        runs: vec![Run {
            date: machine.date.clone(),
            kubelet: versions[0].1.clone(),
            n_tests: u64::try_from(chosen.names.len())?,
        }],
        versions,
        verdicts: report::verdicts(&chosen.names, &specs, &missing_images),
    };
    conclude(plan, results, &specs, &directory)
}

/// The right to write below `target/conformance`, as long as it is held.
fn turn(kubelet: Kubelet) -> Result<File> {
    let directory = build::root().join("target/conformance");
    fs::create_dir_all(&directory)?;
    let file = File::create(directory.join(format!("{}.lock", kubelet.name())))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another run of {} in this checkout is under way",
                kubelet.name()
            )
        }
        Err(TryLockError::Error(error)) => Err(error).context("lock target/conformance"),
    }
}

/// Shows and keeps the results.
fn conclude(plan: &Plan, results: Results, specs: &[Spec], directory: &Path) -> Result<u8> {
    let control = store::load(Kubelet::Upstream)?;
    let logs = keep_failures(&results, specs, directory)?;
    print!(
        "\n{}",
        table::text(plan.kubelet, &results, control.as_ref(), &logs)
    );
    let is_fine = table::is_fine(plan.kubelet, &results, control.as_ref());
    if plan.focus.is_none() {
        let whole = if plan.is_again {
            let before = store::load(plan.kubelet)?.context("no full run to lay this over")?;
            before.with_later(results)
        } else {
            results
        };
        store::save(plan.kubelet, &whole)?;
        if plan.is_again {
            let count = whole.count();
            println!(
                "with the runs before: {} passed, {} failed, {} missing",
                count.n_passed, count.n_failed, count.n_missing
            );
        }
    }
    if plan.is_page_wanted {
        store::write_page()?;
    }
    Ok(u8::from(!is_fine))
}

/// The tests of this run.
struct Chosen {
    /// Bare, also those that the suite does not have.
    names: Vec<String>,
    /// As the suite calls them.
    suite_names: Vec<String>,
}

fn choose(scene: &Scene, directory: &Path) -> Result<Chosen> {
    let plan = &scene.plan;
    let known = known_tests(&scene.suite, plan.focus.as_deref(), directory)?;
    let mut names = list::names();
    if plan.is_again {
        let before = store::load(plan.kubelet)?
            .context("there was no full run yet, so there is nothing to run again")?;
        names.retain(|name| {
            let verdict = before.verdicts.get(name);
            verdict.is_none_or(|it| it.outcome != Outcome::Passed)
        });
    }
    if plan.is_any {
        names = known.keys().cloned().collect();
    } else if plan.focus.is_some() {
        names.retain(|name| known.contains_key(name));
    }
    let suite_names = names
        .iter()
        .filter_map(|name| known.get(name))
        .cloned()
        .collect();
    Ok(Chosen { names, suite_names })
}

/// The suite's tests by bare name, from a dry run: all, or those that match `focus`.
fn known_tests(
    suite: &Suite,
    focus: Option<&str>,
    directory: &Path,
) -> Result<BTreeMap<String, String>> {
    let path = directory.join("names.json");
    let mut command = Command::new(suite.binary("e2e.test"));
    command
        .current_dir(directory)
        .args(["--ginkgo.dry-run", "--ginkgo.no-color"])
        .arg(format!("--ginkgo.json-report={}", path.display()));
    if let Some(focus) = focus {
        command.arg(format!("--ginkgo.focus={focus}"));
    }
    output(&mut command).context("ask the suite for its tests")?;
    let specs = report::specs(&fs::read_to_string(&path)?)?;
    fs::remove_file(&path)?;
    let chosen = specs.into_iter().filter(|spec| spec.state != "skipped");
    Ok(list::by_bare_name(chosen.map(|spec| spec.name)))
}

/// Imports every image that can be made, and gives the names of those that the suite may ask for and cannot have.
fn import_images(containerd: &Containerd, scene: &Scene) -> Result<Vec<String>> {
    let mut made = Vec::new();
    for image in suite::images(&scene.suite, &scene.tools)? {
        match image {
            Ok(image) => made.push(image),
            Err((name, reason)) => println!("missing image {name}: {reason}"),
        }
    }
    containerd.import(&made)?;
    // Some tests insist on pulling.
    let registry = Registry::start(&made)?;
    containerd.point_registry("registry.k8s.io", &registry)?;
    let names: BTreeSet<String> = made.into_iter().map(|image| image.name).collect();
    let listed = output(Command::new(scene.suite.binary("e2e.test")).arg("--list-images"))?;
    let missing: Vec<String> = listed
        .lines()
        .map(str::trim)
        .filter(|name| name.contains(':') && !names.contains(*name))
        // This one must not exist, and tests want that.
        .filter(|name| !name.starts_with("invalid."))
        .map(str::to_owned)
        .collect();
    println!("{} images made, {} missing", names.len(), missing.len());
    Ok(missing)
}

fn join(
    bench: &Bench,
    containerd: &Containerd,
    cluster: &Cluster,
    plan: &Plan,
) -> Result<ClusterNode> {
    let mut options = NodeOptions::new(NODE, &plan.agent);
    options.ports = Ports::Usual;
    let mut node = ClusterNode::prepare(bench, containerd, cluster, options, &Access::Certificate)?;
    node.node.launch()?;
    node.wait_ready(cluster)?;
    Ok(node)
}

/// Runs ginkgo to its end with a live count; false if somebody interrupted it.
fn drive(
    bench: &Bench,
    scene: &Scene,
    cluster: &Cluster,
    node: &mut ClusterNode,
    chosen: &Chosen,
    directory: &Path,
) -> Result<bool> {
    let log = directory.join("ginkgo.log");
    let mut ginkgo = Daemon::spawn("ginkgo", ginkgo(scene, cluster, chosen, directory), &log)?;
    let mut counter = Counter::new(chosen.suite_names.len());
    loop {
        if bench.is_interrupted() {
            ginkgo.kill()?;
            return Ok(false);
        }
        let ended = ginkgo.ended()?;
        counter.show(&log)?;
        if ended.is_some() {
            counter.finish()?;
            return Ok(true);
        }
        if let Err(error) = node.node.expect_running() {
            // A service manager would do the same; the tests say what it cost.
            println!("\n{error:#}\nstarting the node again");
            node.node.relaunch()?;
        }
        thread::sleep(POLL);
    }
}

fn ginkgo(scene: &Scene, cluster: &Cluster, chosen: &Chosen, directory: &Path) -> Command {
    let suite = &scene.suite;
    let mut command = Command::new(suite.binary("ginkgo"));
    command
        .current_dir(directory)
        .args(["--no-color", "-v", LIMIT, "--json-report=report.json"])
        .arg(format!("--procs={}", scene.plan.n_procs))
        .arg(format!("--output-dir={}", directory.display()));
    for name in &chosen.suite_names {
        command.arg(format!("--focus={}", list::focus(name)));
    }
    command
        .arg(suite.binary("e2e.test"))
        .arg("--")
        .args(["--provider=skeleton", "--node-os-distro=debian"])
        .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
        .arg(format!(
            "--kubectl-path={}",
            cluster.kubectl_program().display()
        ));
    command
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

/// Writes, for each failure, what the test said and what the node logged meanwhile; gives the paths of the latter.
fn keep_failures(results: &Results, specs: &[Spec], directory: &Path) -> Result<table::Logs> {
    let log = fs::read(directory.join("agent.log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let mut paths = table::Logs::new();
    for (index, (name, _)) in results.with(Outcome::Failed).enumerate() {
        let Some(spec) = specs.iter().find(|spec| list::bare(&spec.name) == *name) else {
            bail!("{name} failed but is not in the report");
        };
        let place = directory.join("failures").join(slug(index, name));
        fs::create_dir_all(&place)?;
        fs::write(
            place.join("output.log"),
            format!("{name}\n\n{}\n\n{}", spec.message, spec.output),
        )?;
        let path = place.join("node.log");
        fs::write(&path, node_log::between(&log, &spec.began, &spec.ended))?;
        paths.insert(name.clone(), shortened(&path));
    }
    ensure!(
        paths.len() == results.count().n_failed,
        "each failure has its log"
    );
    Ok(paths)
}

/// A name as a file name.
fn slug(index: usize, name: &str) -> String {
    let letters: String = name
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() { it } else { '-' })
        .collect();
    let words: Vec<&str> = letters.split('-').filter(|word| !word.is_empty()).collect();
    let text = words.join("-");
    format!("{index:03}-{}", &text[..text.len().min(100)])
}

/// Relative to the checkout, as people call the command there.
fn shortened(path: &Path) -> PathBuf {
    path.strip_prefix(build::root()).unwrap_or(path).to_owned()
}

fn versions(kubelet: Kubelet, machine: &Machine) -> Vec<(String, String)> {
    let judged = match kubelet {
        Kubelet::Ferrolet => &machine.ours,
        Kubelet::Upstream => &machine.upstream,
    };
    [
        ("kubelet", judged),
        ("test suite and control plane", &machine.upstream),
        ("containerd", &machine.containerd),
        ("runc", &machine.runc),
        ("system", &machine.kernel),
    ]
    .map(|(part, version)| (part.to_owned(), version.clone()))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_a_file_name_of_bounded_length() {
        assert_eq!(slug(7, "[sig-a] b: c (d)"), "007-sig-a-b-c-d");
        assert_eq!(slug(1, &"x".repeat(300)).len(), 104);
    }
}
