//! Tests of the bench itself: a run leaves nothing behind, however it ends, and two runs don't
//! meet.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::isolation::{self, RunId};
use ferrolet_lab::{
    Bench, Cluster, ClusterOptions, Containerd, Network, Node, NodeOptions, Part, Toolbox, census,
    wait_until,
};

use crate::Options;
use crate::build::{pod, sleeper};
use crate::cases::cases;
use crate::context::Context;
use crate::runner::Outcome;

/// The kind of sample run that has a control plane and waits to be ended.
pub(crate) const CLUSTER: &str = "cluster";

cases![
    a_run_that_ends_leaves_nothing_behind,
    an_interrupted_run_leaves_nothing_behind,
    a_killed_run_leaves_nothing_behind,
    two_runs_side_by_side_do_not_meet,
    without_go_or_its_modules_tests_of_the_cluster_are_skipped_with_the_reason,
];

/// The body of a sample run: one pod on a containerd of its own, beside a control plane if the kind
/// says so.
pub(crate) fn sample_run(
    bench: &Bench,
    tools: &Toolbox,
    options: &Options,
    kind: &str,
) -> Result<u8> {
    let _cluster = match (kind, &options.control_plane) {
        (CLUSTER, Part::Available(binaries)) => {
            Some(Cluster::start(bench, binaries, &ClusterOptions::default())?)
        }
        (CLUSTER, Part::Missing(reason)) => bail!(reason.clone()),
        _ => None,
    };
    let containerd = Containerd::start(bench, tools, "containerd")?;
    let mut node = Node::start(bench, &containerd, NodeOptions::new("sample", &options.agent))?;
    node.wait_healthy()?;
    node.put_pod(&pod("same-name", &[sleeper("main")]))?;
    node.wait_pod("same-name", "running", Duration::from_secs(60), |pod| pod.phase() == "Running")?;
    println!("ready {} {}", bench.run_id().id, node.pods()?.len());
    while kind != "once" && !bench.is_interrupted() {
        thread::sleep(Duration::from_millis(20));
    }
    Ok(0)
}

fn a_run_that_ends_leaves_nothing_behind(context: &mut Context<'_>) -> Result<Outcome> {
    let mut sample = Sample::start(context, "once")?;
    sample.wait_ready()?;
    sample.wait_gone()
}

fn an_interrupted_run_leaves_nothing_behind(context: &mut Context<'_>) -> Result<Outcome> {
    let mut sample = Sample::start(context, "hold")?;
    sample.wait_ready()?;
    ferrolet_lab::process::call("kill", &["-INT", &sample.child.id().to_string()])?;
    sample.wait_gone()
}

fn a_killed_run_leaves_nothing_behind(context: &mut Context<'_>) -> Result<Outcome> {
    let mut sample = Sample::start(context, "hold")?;
    sample.wait_ready()?;
    sample.child.kill()?;
    sample.wait_gone()
}

fn two_runs_side_by_side_do_not_meet(context: &mut Context<'_>) -> Result<Outcome> {
    let mut samples = [Sample::start(context, "hold")?, Sample::start(context, "hold")?];
    for sample in &mut samples {
        // Each knows one pod of that name: its own.
        ensure!(sample.wait_ready()? == 1, "a run sees pods of another");
    }
    for sample in &mut samples {
        ferrolet_lab::process::call("kill", &["-INT", &sample.child.id().to_string()])?;
        sample.wait_gone()?;
    }
    Ok(Outcome::Passed)
}

/// Where a machine may have Go: this hides it, without a trace outside.
const HIDE_GO: &str = r#"for go in $PLACES; do mount --bind /dev/null "$go"; done; exec "$@""#;

fn without_go_or_its_modules_tests_of_the_cluster_are_skipped_with_the_reason(
    context: &mut Context<'_>,
) -> Result<Outcome> {
    let search = "/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let places = search.split(':').map(|dir| format!("{dir}/go"));
    let places: Vec<String> = places.filter(|go| Path::new(go).exists()).collect();
    if places.is_empty() {
        let reason = "Go is not here, so every test of the cluster shows it";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let empty = context.bench.directory("no-go")?;
    let hidden = places.join(" ");
    for (hide, expected) in [(hidden.as_str(), "Go is not installed"), ("", "build etcd: ")] {
        let mut command = Command::new("unshare");
        let done = isolation::forget_stage(&mut command)
            .args(["--mount", "--propagation", "private", "sh", "-c", HIDE_GO, "sh"])
            .arg(std::env::current_exe()?)
            .arg("--agent")
            .arg(&context.options.agent)
            .arg("cluster_join")
            .env("PLACES", hide)
            .env("PATH", search)
            .env("FERROLET_CONTAINERD", &context.tools.containerd.directory)
            .env("XDG_CACHE_HOME", &empty)
            .env("GOMODCACHE", empty.join("modules"))
            .env("GOFLAGS", "-modcacherw")
            .env("GOPROXY", "off")
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&done.stdout);
        let skipped = said
            .lines()
            .filter(|line| line.starts_with("skipped ") && line.contains(&format!(": {expected}")));
        let n_skipped = skipped.count();
        // A run in which nothing ran is no success.
        ensure!(
            !done.status.success()
                && n_skipped > 0
                && said.ends_with(&format!("\n0 passed, 0 failed, {n_skipped} skipped\n")),
            "it ended with {} and said\n{said}{}",
            done.status,
            String::from_utf8_lossy(&done.stderr)
        );
    }
    Ok(Outcome::Passed)
}

pub(super) struct Sample {
    pub(super) child: Child,
    run: Option<RunId>,
}

impl Sample {
    pub(super) fn start(context: &Context<'_>, kind: &str) -> Result<Sample> {
        let mut command = Command::new(std::env::current_exe()?);
        isolation::forget_stage(&mut command)
            .args(["--sample-run", kind, "--agent"])
            .arg(&context.options.agent)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        Ok(Sample { child: command.spawn().context("start a sample run")?, run: None })
    }

    /// The number of pods that the sample's agent knows.
    pub(super) fn wait_ready(&mut self) -> Result<usize> {
        let pipe = self.child.stdout.take().context("standard output is read once")?;
        for line in BufReader::new(pipe).lines() {
            let line = line?;
            if let Some((id, n_pods)) =
                line.strip_prefix("ready ").and_then(|rest| rest.split_once(' '))
            {
                self.run = Some(RunId { id: id.to_owned(), block: 0, network: Network::Private });
                return Ok(n_pods.parse()?);
            }
        }
        bail!("the sample run ended without being ready")
    }

    pub(super) fn wait_gone(&mut self) -> Result<Outcome> {
        wait_until("the sample run to end", Duration::from_secs(30), || {
            Ok(self.child.try_wait()?)
        })?;
        let run = self.run.as_ref().context("the run was ready before")?;
        wait_until("nothing to be left", Duration::from_secs(30), || {
            let left = census::leftovers(run, None)?;
            ensure!(left.is_empty(), "left: {left:#?}");
            Ok(Some(()))
        })?;
        Ok(Outcome::Passed)
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        // Only a failing test gets here with a run that still goes on.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
