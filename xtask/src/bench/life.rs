//! `cargo xtask bench life`: how fast a running pod's life goes on, on a real control plane.
//!
//! * a container that exits: from its last line to the first of its next instance, and our part of
//!   that;
//! * HTTP probes: the share of one core that so many a second cost the agent;
//! * a deletion: from the last container's end to the object's, and our part of that.
//!
//! Times are the kernel's and the runtime's: of lines in logs, and of a file that a container
//! touches when it is told to end. The part spent in CRI calls, and the time until the runtime told
//! of an end, come from the agent's log ([`trace`]); what is left is ours, with the first steps of
//! a new process or the way through the API server in it. No opponent: goals are absolute.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use ferrolet_lab::cluster::{Access, Api, Watch};
use ferrolet_lab::image::BUSYBOX;
use ferrolet_lab::parts::{self, ControlPlane};
use ferrolet_lab::patient::{Patient, Wire};
use ferrolet_lab::{
    Bench, Cluster, ClusterNode, ClusterOptions, Containerd, Network, NodeOptions, PodView,
    Toolbox, isolation,
};
use serde_json::{Value, json};

use super::cost::Cost;
use super::figures::Figures;
use super::trace;
use crate::{build, given};

const PATIENCE: Duration = Duration::from_secs(120);
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODE: &str = "bench";
/// Containers of one pod that is probed; each is asked twice a second.
const PROBED_PER_POD: usize = 20;

/// What to measure.
struct Plan {
    agent: PathBuf,
    n_restarts: usize,
    n_deletions: usize,
    n_probes: usize,
    quiet: Duration,
}

pub(crate) fn command(args: &ArgMatches) -> Result<u8> {
    let plan = Plan {
        agent: build::agent(args)?,
        n_restarts: given(args, "restarts"),
        n_deletions: given(args, "deletions"),
        n_probes: given(args, "probes"),
        quiet: given(args, "quiet"),
    };
    let tools = parts::toolbox().required()?;
    let binaries = parts::control_plane().required()?;
    isolation::run(Network::Private, |bench| measure(bench, &tools, &binaries, &plan))
}

/// A node with nothing on it but what is measured.
struct Scene<'a> {
    bench: &'a Bench,
    joined: ClusterNode,
    api: Api,
    pods: Watch,
    /// Seen by containers as `/out`.
    out: PathBuf,
}

fn measure(bench: &Bench, tools: &Toolbox, binaries: &ControlPlane, plan: &Plan) -> Result<u8> {
    let cluster = Cluster::start(bench, binaries, &ClusterOptions::default())?;
    cluster.wait("the namespace's authority", PATIENCE, |it| {
        it.find("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
    })?;
    let containerd = Containerd::start(bench, tools, "containerd")?;
    let mut options = NodeOptions::new(NODE, &plan.agent);
    options.verbosity = 6;
    let access = Access::Certificate;
    let mut joined = ClusterNode::prepare(bench, &containerd, &cluster, options, &access)?;
    joined.node.launch()?;
    joined.wait_ready(&cluster)?;
    let out = joined.node.directory().join("out");
    fs::create_dir(&out)?;
    let api = Api::new(&cluster.proxy_address())?;
    let mut scene = Scene {
        bench,
        joined,
        api,
        pods: Watch::open(api, PODS, &format!("spec.nodeName={NODE}"))?,
        out,
    };
    println!("containerd {}, agent {}\n", tools.containerd.version, plan.agent.display());
    println!("{:<34} {:>10} {:>10} {:>10} {:>10}", "", "median", "p90", "p99", "last");
    scene.restarts(plan.n_restarts)?;
    scene.deletions(plan.n_deletions)?;
    scene.probes(plan)?;
    Ok(0)
}

impl Scene<'_> {
    fn create(&self, name: &str, spec: Value) -> Result<()> {
        let base = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": spec,
        });
        self.api.create(PODS, &base)
    }

    /// Waits for a version of a pod, or for its end, and says when it came, in seconds since 1970.
    fn wait(
        &mut self,
        name: &str,
        is_it: impl Fn(&str, &PodView) -> bool,
    ) -> Result<(f64, PodView)> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if self.bench.is_interrupted() {
                bail!("interrupted");
            }
            self.joined.node.expect_running()?;
            let Some(arrival) = self.pods.next(Duration::from_millis(100))? else {
                continue;
            };
            let pod = PodView(arrival.object);
            if pod.name() == name && is_it(&arrival.kind, &pod) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
                let at = now.saturating_sub(arrival.at.elapsed());
                return Ok((at.as_secs_f64(), pod));
            }
        }
        bail!("pod {name} did not get where it should")
    }

    fn remove(&mut self, name: &str) -> Result<f64> {
        self.api.delete(&format!("{PODS}/{name}"))?;
        let (at, _) = self.wait(name, |kind, _| kind == "DELETED")?;
        Ok(at)
    }

    /// The first and the last time in a log.
    fn log_times(&self, pod: &PodView, restarts: u32) -> Result<(f64, f64)> {
        let directory = format!("default_{}_{}", pod.name(), pod.uid());
        let path = self.joined.node.pod_logs().join(directory).join(format!("main/{restarts}.log"));
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let time = |line: Option<&str>| line?.split(' ').next().and_then(trace::parse_rfc3339);
        let first = time(text.lines().next()).context("its log is empty")?;
        let last = time(text.lines().last()).context("its log is empty")?;
        Ok((first, last))
    }

    /// Containers that exit once; the second life needs no wait.
    fn restarts(&mut self, n: usize) -> Result<()> {
        let mut spans = Vec::new();
        for n in 0..n {
            let name = format!("restart-{n}");
            let text = format!(
                "[ -e /out/{name} ] && {{ echo again; trap 'exit 0' TERM; sleep 100000 & wait; }}; \
                 touch /out/{name}; sleep 0.5; echo ends; exit 1"
            );
            self.create(&name, spec(&text, &self.out))?;
            let (_, pod) = self.wait(&name, |_, pod| {
                pod.restarts() == 1 && pod.condition("Ready") == Some("True")
            })?;
            let (_, ended) = self.log_times(&pod, 0)?;
            let (again, _) = self.log_times(&pod, 1)?;
            spans.push((ended, again));
            self.remove(&name)?;
        }
        self.print("exit to restart", &spans, "goal: ours under 50 ms");
        Ok(())
    }

    /// Pods whose only container ends at once when it is told to.
    fn deletions(&mut self, n: usize) -> Result<()> {
        let mut spans = Vec::new();
        for n in 0..n {
            let name = format!("delete-{n}");
            let text = format!(
                "trap 'touch /out/{name}; exit 0' TERM; echo up; while :; do sleep 0.01; done"
            );
            self.create(&name, spec(&text, &self.out))?;
            self.wait(&name, |_, pod| pod.condition("Ready") == Some("True"))?;
            let gone = self.remove(&name)?;
            let touched = fs::metadata(self.out.join(&name))
                .and_then(|it| it.modified())
                .context("the container did not say when it ended")?;
            let ended = touched.duration_since(UNIX_EPOCH)?.as_secs_f64();
            spans.push((ended, gone));
        }
        self.print("last end to object gone", &spans, "goal: ours under 200 ms");
        Ok(())
    }

    fn print(&self, title: &str, spans: &[(f64, f64)], goal: &str) {
        let log = self.joined.node.log_text();
        let calls = trace::calls(&log);
        let (mut total, mut told, mut inside, mut ours) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for span in spans {
            let whole = span.1 - span.0;
            let until_told = trace::told_end(&log, *span).unwrap_or(0.0);
            let in_calls = trace::covered(calls.iter(), (span.0 + until_told, span.1));
            total.push(whole * 1e3);
            told.push(until_told * 1e3);
            inside.push(in_calls * 1e3);
            ours.push((whole - until_told - in_calls) * 1e3);
        }
        println!("{title:<34} {}", Figures::of(total));
        if calls.is_empty() {
            println!("(this agent logs no CRI calls)");
        } else {
            println!("{:<34} {}", "  until the runtime tells", Figures::of(told));
            println!("{:<34} {}", "  in CRI calls", Figures::of(inside));
            println!("{:<34} {}   ({goal})", "  the rest", Figures::of(ours));
        }
    }

    /// Many containers on the host's network that all ask one server.
    fn probes(&mut self, plan: &Plan) -> Result<()> {
        let patient = Patient::start(Wire::Plain)?;
        let probe = json!({"httpGet": {"host": "127.0.0.1", "port": patient.port(), "path": "/health"},
            "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 100});
        let n_containers = (plan.n_probes / 2).max(1);
        let n_pods = n_containers.div_ceil(PROBED_PER_POD);
        let asks = |probes: &Value| {
            let mut container = json!({"image": BUSYBOX, "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "100000"]});
            if !probes.is_null() {
                container["livenessProbe"] = probes.clone();
                container["readinessProbe"] = probes.clone();
            }
            container
        };
        let mut shares = Vec::new();
        for (kind, probes) in [("idle", &Value::Null), ("probed", &probe)] {
            let mut left = n_containers;
            for n in 0..n_pods {
                let here = left.min(PROBED_PER_POD);
                left -= here;
                let containers: Vec<Value> = (0..here)
                    .map(|n| {
                        let mut container = asks(probes);
                        container["name"] = json!(format!("c{n}"));
                        container
                    })
                    .collect();
                let name = format!("{kind}-{n}");
                self.create(
                    &name,
                    json!({"nodeName": NODE, "hostNetwork": true, "terminationGracePeriodSeconds": 0,
                        "automountServiceAccountToken": false, "containers": containers}),
                )?;
                self.wait(&name, |_, pod| pod.condition("Ready") == Some("True"))?;
            }
            let pid = self.joined.node.pid()?;
            Cost::settled(pid)?;
            let (before, began) = (patient.heard().len(), Instant::now());
            let bench = self.bench;
            let share = Cost::cpu_share(pid, plan.quiet, || bench.is_interrupted())?;
            let n_heard = u32::try_from(patient.heard().len() - before)?;
            let rate = f64::from(n_heard) / began.elapsed().as_secs_f64();
            shares.push((share, rate));
            for n in 0..n_pods {
                self.remove(&format!("{kind}-{n}"))?;
            }
        }
        let [(idle, _), (busy, rate)] = shares[..] else {
            bail!("it was measured twice");
        };
        let cost = (busy - idle) * 100.0;
        println!(
            "\n{n_containers} containers, nothing asked   {:6.2} % of a core\n\
             {n_containers} containers, {rate:.0} HTTP probes a second   {:6.2} % of a core\n\
             1000 HTTP probes a second   {:6.2} %   (goal: under 15 %)",
            idle * 100.0,
            busy * 100.0,
            cost * 1000.0 / rate.max(1.0)
        );
        Ok(())
    }
}

fn spec(text: &str, out: &std::path::Path) -> Value {
    json!({
        "nodeName": NODE,
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": false,
        "volumes": [{"name": "out", "hostPath": {"path": out}}],
        "containers": [{
            "name": "main",
            "image": BUSYBOX,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", text],
            "volumeMounts": [{"name": "out", "mountPath": "/out"}],
        }],
    })
}
