//! One run: everything is started in a world of its own, ginkgo runs the tests, and verdicts come
//! out.
//!
//! What a run leaves is below `target/conformance/<judge and kubelet>`: ginkgo's report and output,
//! the node's log, and for each failure the test's output and the node's log of that time.
//! Everything else goes with the run's world, also on Ctrl-C.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use ferrolet_lab::cluster::Access;
use ferrolet_lab::node::Ports;
use ferrolet_lab::parts::{ControlPlane, Suite};
use ferrolet_lab::process::{keep, output};
use ferrolet_lab::registry::Registry;
use ferrolet_lab::{
    Bench, Cluster, ClusterNode, ClusterOptions, Containerd, Logind, NodeOptions, Toolbox, suite,
};

use super::report::{self, Spec};
use super::results::{Kubelet, Outcome, Results, Run};
use super::{Plan, ginkgo, list, node_log, store, table};
use crate::bench::machine::Machine;
use crate::build;

const NODE: &str = "judged";

/// What a run stands on.
pub(super) struct Scene {
    pub(super) tools: Toolbox,
    pub(super) binaries: ControlPlane,
    pub(super) suite: Suite,
    /// The program that stands in for logind, where tests let the machine go down.
    pub(super) logind: Option<PathBuf>,
    pub(super) plan: Plan,
}

pub(super) fn run(bench: &Bench, scene: &Scene) -> Result<u8> {
    let plan = &scene.plan;
    let label = plan.judge.label(plan.kubelet);
    let _turn = turn(&label)?;
    let directory = build::root().join("target/conformance").join(&label);
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
        "{} tests of the {} suite with {}, {} at a time",
        chosen.suite_names.len(),
        plan.judge.name(),
        plan.kubelet.name(),
        plan.n_procs
    );

    let controllers = plan.judge.controllers().to_owned();
    let options = ClusterOptions { controllers, ..ClusterOptions::default() };
    let cluster = Cluster::start(bench, &scene.binaries, &options)?;
    let containerd = Containerd::start(bench, &scene.tools, "containerd")?;
    let missing_images = import_images(&containerd, scene)?;
    let bus = bench.directory("bus")?;
    let logind = scene.logind.as_deref().map(|it| Logind::start(it, &bus)).transpose()?;
    let extras = Extras {
        // Tests write drop-ins there; a node that runs beside others has none.
        drop_ins: plan.judge.is_serial().then(|| directory.join("kubelet.conf.d")),
        environment: logind.iter().map(Logind::environment).collect(),
    };
    let mut node = join(bench, &containerd, &cluster, plan, &extras)?;
    let names = &chosen.suite_names;
    let (cluster, node_of_stage) = (&cluster, &node.node);
    let stage =
        ginkgo::Stage { cluster, containerd: &containerd, node: node_of_stage, extras: &extras };
    let command = ginkgo::command(scene, &stage, names, &directory)?;
    let is_complete = ginkgo::drive(bench, command, names.len(), &mut node.node, &directory)?;
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

/// What a node and its judge share beside files and ports.
pub(super) struct Extras {
    /// The directory of configuration drop-ins.
    pub(super) drop_ins: Option<PathBuf>,
    /// Where the bus is.
    pub(super) environment: Vec<(String, String)>,
}

/// The right to write below `target/conformance`, as long as it is held.
fn turn(label: &str) -> Result<File> {
    let directory = build::root().join("target/conformance");
    fs::create_dir_all(&directory)?;
    let file = File::create(directory.join(format!("{label}.lock")))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another run of {label} in this checkout is under way")
        }
        Err(TryLockError::Error(error)) => Err(error).context("lock target/conformance"),
    }
}

/// Shows and keeps the results.
fn conclude(plan: &Plan, results: Results, specs: &[Spec], directory: &Path) -> Result<u8> {
    let control = store::load(plan.judge, Kubelet::Upstream)?;
    let logs = keep_failures(&results, specs, directory)?;
    print!("\n{}", table::text(plan.kubelet, &results, control.as_ref(), &logs));
    let is_fine = table::is_fine(plan.kubelet, &results, control.as_ref());
    if plan.focus.is_none() {
        let whole = if plan.is_again {
            let before =
                store::load(plan.judge, plan.kubelet)?.context("no full run to lay this over")?;
            before.with_later(results)
        } else {
            results
        };
        store::save(plan.judge, plan.kubelet, &whole)?;
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
    let program = &scene.suite.test_program;
    let known = ginkgo::known_tests(program, plan.focus.as_deref(), directory)?;
    let mut names = list::names(plan.judge);
    if plan.is_again {
        let before = store::load(plan.judge, plan.kubelet)?
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
    let suite_names = names.iter().filter_map(|name| known.get(name)).cloned().collect();
    Ok(Chosen { names, suite_names })
}

/// Imports every image that can be made, and gives the names of those that the suite may ask for
/// and cannot have.
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
    let listed = output(Command::new(&scene.suite.test_program).arg("--list-images"))?;
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
    extras: &Extras,
) -> Result<ClusterNode> {
    let mut options = NodeOptions::new(NODE, &plan.agent);
    options.environment.extend(extras.environment.iter().cloned());
    if let Some(directory) = &extras.drop_ins {
        fs::create_dir_all(directory)?;
        options.arguments.push(format!("--config-dir={}", directory.display()));
    }
    options.ports = Ports::Usual;
    options.configuration = plan.judge.configuration();
    let mut node = ClusterNode::prepare(bench, containerd, cluster, options, &Access::Certificate)?;
    node.node.launch()?;
    node.wait_ready(cluster)?;
    if plan.judge.is_serial() {
        // The API server gives it to every new node, and nobody is there who would take it away.
        cluster.kubectl(&["taint", "node", NODE, "node.kubernetes.io/not-ready:NoSchedule-"])?;
    }
    Ok(node)
}

/// Writes, for each failure, what the test said and what the node logged meanwhile; gives the paths
/// of the latter.
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
    ensure!(paths.len() == results.count().n_failed, "each failure has its log");
    Ok(paths)
}

/// A name as a file name.
fn slug(index: usize, name: &str) -> String {
    let letters: String =
        name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
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
