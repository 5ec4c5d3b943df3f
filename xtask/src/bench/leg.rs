//! One kubelet's turn in one round: the same sequence for both, on a fresh node and a fresh
//! instance of the same containerd, so that neither cleans up after the other.
//!
//! ```text
//! start ─► Ready ─► rest, quiet (idle costs) ─► one pod a second ─► burst, deletion, … ─► biggest burst
//!        ─► rest, quiet (costs when full) ─► kill -9, Ready again ─► deletion
//! ```

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ferrolet_lab::cluster::{Access, Api, Watch, condition};
use ferrolet_lab::image::BUSYBOX;
use ferrolet_lab::{Bench, Cluster, ClusterNode, Containerd, NodeOptions, Toolbox, wait_until};
use serde_json::{Value, json};

use super::cost::{Cost, Holding, cpu_seconds};
use super::figures::Figures;
use super::pods::Record;
use super::race::Plan;
use super::score::Values;

/// How long anything may take before the leg is given up.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often a wait looks whether the agent still lives and whether the run should end.
const LOOK: Duration = Duration::from_millis(50);
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";
/// Upstream's own bound on pods per node, raised only for bigger bursts.
const USUAL_MAX_PODS: usize = 110;

/// What all legs share.
pub(super) struct Scene<'a> {
    pub(super) bench: &'a Bench,
    pub(super) tools: &'a Toolbox,
    pub(super) cluster: &'a Cluster,
    pub(super) api: Api,
    pub(super) plan: &'a Plan,
}

/// Runs the sequence for `agent` as a node named `name`, and removes everything of it.
pub(super) fn run(scene: &Scene<'_>, name: &str, agent: &std::path::Path) -> Result<Values> {
    let directory = format!("containerd-{name}");
    let containerd = Containerd::start(scene.bench, scene.tools, &directory)?;
    let mut options = NodeOptions::new(name, agent);
    options.verbosity = 0;
    let most = scene.plan.bursts.iter().max().copied().unwrap_or_default();
    // What a kubelet does by itself belongs to what it costs at rest.
    options.configuration = json!({ "makeIPTablesUtilChains": null });
    if most + 10 > USUAL_MAX_PODS {
        options.configuration["maxPods"] = json!(most + 10);
    }
    let access = Access::Certificate;
    let joined = ClusterNode::prepare(scene.bench, &containerd, scene.cluster, options, &access)?;
    let selector = format!("spec.nodeName={name}");
    let mut leg = Leg {
        scene,
        pods: Watch::open(scene.api, PODS, &selector)?,
        nodes: Watch::open(scene.api, NODES, &format!("metadata.name={name}"))?,
        record: Record::default(),
        name: name.to_owned(),
        joined,
        containerd,
        values: Values::new(),
    };
    leg.measure().with_context(|| format!("{name}\n{}", leg.log_tail()))?;
    leg.end()
}

struct Leg<'a> {
    scene: &'a Scene<'a>,
    name: String,
    joined: ClusterNode,
    containerd: Containerd,
    pods: Watch,
    nodes: Watch,
    record: Record,
    values: Values,
}

impl Leg<'_> {
    fn measure(&mut self) -> Result<()> {
        let began = Instant::now();
        self.joined.node.launch()?;
        let (at, mut heartbeat) = self.wait_ready("")?;
        self.put("start_ready", seconds(began, at));
        self.costs("idle")?;
        self.rate()?;
        let bursts = &self.scene.plan.bursts;
        for (index, n_pods) in bursts.iter().enumerate() {
            self.burst(*n_pods)?;
            if index + 1 == bursts.len() {
                self.costs("full")?;
                while let Some(arrival) = self.nodes.next(Duration::ZERO)? {
                    heartbeat = heartbeat_of(&arrival.object);
                }
                self.restart(&heartbeat)?;
            }
            self.deletion(*n_pods)?;
        }
        Ok(())
    }

    /// Ends the node and its containerd; the next leg finds nothing of them.
    fn end(self) -> Result<Values> {
        drop((self.pods, self.nodes));
        self.containerd.destroy()?;
        self.joined.node.destroy()?;
        self.scene.api.delete(&format!("{NODES}/{}", self.name))?;
        Ok(self.values)
    }

    /// What the agent holds and spends while nothing happens.
    fn costs(&mut self, when: &str) -> Result<()> {
        self.rest(self.scene.plan.rest)?;
        let (pid, bench) = (self.joined.node.pid()?, self.scene.bench);
        let share = Cost::cpu_share(pid, self.scene.plan.quiet, || bench.is_interrupted())?;
        let holding = Holding::of(pid)?;
        self.put(&format!("{when}_cpu"), share * 100.0);
        self.put(&format!("{when}_rss"), holding.resident_mb);
        self.put(&format!("{when}_pss"), holding.proportional_mb);
        self.put(&format!("{when}_threads"), holding.n_threads);
        Ok(())
    }

    /// One pod a second.
    fn rate(&mut self) -> Result<()> {
        let began = Instant::now();
        for n in 0..self.scene.plan.n_rate {
            let due = began + Duration::from_secs(u64::try_from(n)?);
            self.rest(due.saturating_duration_since(Instant::now()))?;
            self.create("rate", n)?;
        }
        let figures = self.wait_pods_ready("rate", self.scene.plan.n_rate)?;
        self.put("rate_p50", figures.median);
        self.put("rate_p99", figures.p99);
        self.delete("rate")?;
        Ok(())
    }

    fn burst(&mut self, n_pods: usize) -> Result<()> {
        let group = format!("burst{n_pods}");
        let pid = self.joined.node.pid()?;
        let spent = cpu_seconds(pid)?;
        let began = Instant::now();
        for n in 0..n_pods {
            self.create(&group, n)?;
        }
        let figures = self.wait_pods_ready(&group, n_pods)?;
        let spent = cpu_seconds(pid)? - spent;
        let last = self.record.of(&prefix(&group)).iter().filter_map(|it| it.ready).max();
        let last = last.context("no pod became Ready")?;
        self.put(&format!("burst_{n_pods}_p50"), figures.median);
        self.put(&format!("burst_{n_pods}_p90"), figures.p90);
        self.put(&format!("burst_{n_pods}_p99"), figures.p99);
        // Of the whole burst, not of the slowest pod: when can its owner go on?
        self.put(&format!("burst_{n_pods}_last"), seconds(began, last));
        self.put(&format!("burst_{n_pods}_cpu"), spent);
        Ok(())
    }

    fn deletion(&mut self, n_pods: usize) -> Result<()> {
        let pid = self.joined.node.pid()?;
        let before = cpu_seconds(pid)?;
        let (took, spent) = self.delete(&format!("burst{n_pods}"))?;
        self.put(&format!("delete_{n_pods}"), took);
        self.put(&format!("delete_{n_pods}_cpu"), spent - before);
        Ok(())
    }

    /// Kills the agent and starts it at once; Ready again is the first Ready that the new process
    /// writes.
    fn restart(&mut self, heartbeat: &str) -> Result<()> {
        let (before, relapses) = (self.containerd.tasks()?, self.record.n_relapses());
        let began = Instant::now();
        self.joined.node.kill()?;
        self.joined.node.launch()?;
        let (at, _) = self.wait_ready(heartbeat)?;
        self.put("restart_ready", seconds(began, at));
        // What it does to pods, it does soon afterwards.
        self.rest(self.scene.plan.rest)?;
        let after = self.containerd.tasks()?;
        let n_restarted = before.iter().filter(|it| !after.contains(it)).count();
        self.put("restart_containers", count(n_restarted)?);
        let n_relapses = self.record.n_relapses() - relapses;
        self.put("restart_relapses", count(n_relapses)?);
        Ok(())
    }

    fn create(&self, group: &str, n: usize) -> Result<()> {
        let pod = pod(&self.name, group, n);
        self.scene.api.create(PODS, &pod)
    }

    /// Deletes all pods of a group in one request. Gives how long it took until the last was gone,
    /// and the agent's CPU time then; afterwards waits until the runtime has nothing of them
    /// either.
    fn delete(&mut self, group: &str) -> Result<(f64, f64)> {
        let pid = self.joined.node.pid()?;
        let began = Instant::now();
        let path = format!("{PODS}?labelSelector=group%3D{group}");
        self.scene.api.delete(&path)?;
        let prefix = prefix(group);
        self.wait_pods("the pods to be gone", |record| {
            record.of(&prefix).iter().all(|it| it.gone.is_some())
        })?;
        let spent = cpu_seconds(pid)?;
        let last = self.record.of(&prefix).iter().filter_map(|it| it.gone).max();
        let took = seconds(began, last.context("no pod was deleted")?);
        wait_until("the runtime to be empty", PATIENCE, || {
            Ok(self.containerd.tasks()?.is_empty().then_some(()))
        })?;
        Ok((took, spent))
    }

    fn wait_pods_ready(&mut self, group: &str, n_pods: usize) -> Result<Figures> {
        let prefix = prefix(group);
        self.wait_pods(&format!("{n_pods} pods to be Ready"), |record| {
            let n_ready = record.of(&prefix).iter().filter(|it| it.ready.is_some()).count();
            n_ready == n_pods
        })?;
        let courses = self.record.of(&prefix);
        let spans = courses.iter().filter_map(|it| Some(seconds(it.appeared, it.ready?)));
        Ok(Figures::of(spans.collect()))
    }

    /// Takes in what the watch brings until the record is as wanted.
    fn wait_pods(&mut self, what: &str, is_so: impl Fn(&Record) -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_so(&self.record) {
            ensure!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
            self.expect_all_well()?;
            if let Some(arrival) = self.pods.next(LOOK)? {
                self.record.take(arrival);
            }
        }
        Ok(())
    }

    /// Waits for a Ready that is newer than a heartbeat; gives its arrival and its own heartbeat.
    fn wait_ready(&mut self, older: &str) -> Result<(Instant, String)> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            self.expect_all_well()?;
            if let Some(arrival) = self.nodes.next(LOOK)? {
                let heartbeat = heartbeat_of(&arrival.object);
                let is_ready = condition(&arrival.object, "Ready")["status"] == "True";
                if is_ready && heartbeat != older {
                    return Ok((arrival.at, heartbeat));
                }
            }
        }
        bail!("waited {PATIENCE:?} for the node to be Ready")
    }

    /// Lets time pass, and still takes in what comes.
    fn rest(&mut self, span: Duration) -> Result<()> {
        let until = Instant::now() + span;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.expect_all_well()?;
            if let Some(arrival) = self.pods.next(left.min(LOOK))? {
                self.record.take(arrival);
            }
        }
    }

    fn expect_all_well(&mut self) -> Result<()> {
        ensure!(!self.scene.bench.is_interrupted(), "interrupted");
        self.joined.node.expect_running()
    }

    fn put(&mut self, key: &str, value: f64) {
        self.values.insert(key.to_owned(), value);
    }

    fn log_tail(&self) -> String {
        ferrolet_lab::process::tail(&self.joined.node.log(), 20)
    }
}

fn heartbeat_of(node: &Value) -> String {
    condition(node, "Ready")["lastHeartbeatTime"].as_str().unwrap_or_default().to_owned()
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

fn count(n: usize) -> Result<f64> {
    Ok(f64::from(u32::try_from(n)?))
}

fn prefix(group: &str) -> String {
    format!("{group}-")
}

/// A container that ends at once when it is told to: what is measured is the kubelet, not the pod's
/// grace.
fn pod(node: &str, group: &str, n: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": format!("{}{n}", prefix(group)), "labels": { "group": group } },
        "spec": {
            "nodeName": node,
            "containers": [{
                "name": "main",
                "image": BUSYBOX,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"],
            }],
        },
    })
}
