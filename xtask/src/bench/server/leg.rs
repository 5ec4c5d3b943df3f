//! One kubelet's turn: the same sequence for both, on a node and a containerd of its own.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ferrolet_lab::cluster::{Access, Api};
use ferrolet_lab::image::BUSYBOX;
use ferrolet_lab::{
    Bench, Cluster, ClusterNode, Containerd, NodeOptions, PodView, Toolbox, http, wait_until,
};
use serde_json::{Value, json};

use super::load::{Flood, Scrape, StandIn};
use super::{FLOOD, N_FOLLOWERS, SCRAPED};
use crate::bench::cost::{Cost, Holding, cpu_seconds};
use crate::bench::figures::Figures;
use crate::bench::score::Values;

const PATIENCE: Duration = Duration::from_secs(300);
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Scrapes of each path, a second apart, as from a node that several parties scrape. Both kubelets
/// then answer some of them from what they had read before (ADR 0022).
const N_SCRAPES: usize = 12;
/// How often that is done; the median counts.
const N_ROUNDS: usize = 3;
/// Pods that are started each way to see how long it takes.
const N_STARTS: usize = 9;
/// A flood is under way for so long before a pod is started in it.
const LEAD: Duration = Duration::from_millis(700);
/// Pods that write the logs that are followed.
const N_TALKERS: usize = 10;
/// Bytes that go through the forwarded port each time, and how often.
const FORWARDED: usize = 256 << 20;
const N_FORWARDS: usize = 3;

/// What both turns share.
pub(super) struct Scene<'a> {
    pub(super) bench: &'a Bench,
    pub(super) tools: &'a Toolbox,
    pub(super) cluster: &'a Cluster,
    pub(super) api: Api,
    pub(super) n_pods: usize,
    /// The only part that is measured, if not all are.
    pub(super) part: Option<&'a str>,
}

/// Runs the sequence, and removes everything of it.
pub(super) fn run(scene: &Scene<'_>, name: &str, agent: &Path) -> Result<Values> {
    let containerd = Containerd::start(scene.bench, scene.tools, &format!("containerd-{name}"))?;
    let mut options = NodeOptions::new(name, agent);
    options.verbosity = 0;
    let port = http::free_port()?;
    options.configuration = json!({
        "port": port,
        "maxPods": scene.n_pods + 50,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
    });
    let access = Access::Certificate;
    let joined = ClusterNode::prepare(scene.bench, &containerd, scene.cluster, options, &access)?;
    let mut leg = Leg { scene, joined, name: name.to_owned(), port, values: Values::new() };
    leg.measure().with_context(|| {
        let tail = ferrolet_lab::process::tail(&leg.joined.node.log(), 20);
        format!("{name}\n{tail}")
    })?;
    // Without the agent nobody confirms the end of its pods.
    leg.joined.node.kill()?;
    let path = format!("{PODS}?gracePeriodSeconds=0");
    scene.api.delete(&path)?;
    containerd.destroy()?;
    leg.joined.node.destroy()?;
    scene.api.delete(&format!("/api/v1/nodes/{name}"))?;
    wait_until("the pods to be gone", PATIENCE, || {
        let list = scene.cluster.get(PODS)?;
        let n_left = list["items"].as_array().map_or(0, Vec::len);
        ensure!(n_left == 0, "{n_left} pods are left");
        Ok(Some(()))
    })?;
    Ok(leg.values)
}

struct Leg<'a> {
    scene: &'a Scene<'a>,
    joined: ClusterNode,
    name: String,
    port: u16,
    values: Values,
}

/// One of the things that are measured.
type Part<'a> = fn(&mut Leg<'a>) -> Result<()>;

impl<'a> Leg<'a> {
    fn measure(&mut self) -> Result<()> {
        self.joined.node.launch()?;
        self.joined.wait_ready(self.scene.cluster)?;
        for n in 0..self.scene.n_pods {
            self.create(&format!("quiet-{n}"), "trap 'exit 0' TERM; sleep 100000 & wait")?;
        }
        self.wait_ready("quiet-", self.scene.n_pods)?;
        thread::sleep(Duration::from_secs(5));
        let parts: [(&str, Part<'a>); 4] = [
            ("scrapes", Leg::scrapes),
            ("starts", Leg::starts),
            ("logs", Leg::followed_logs),
            ("port", Leg::forwarded_port),
        ];
        for (name, measure) in parts {
            if self.scene.part.is_none_or(|part| part == name) {
                measure(self)?;
            }
        }
        Ok(())
    }

    fn scrapes(&mut self) -> Result<()> {
        let rounds: Vec<Values> =
            (0..N_ROUNDS).map(|_| self.scrape_round()).collect::<Result<_>>()?;
        for key in rounds[0].keys() {
            let values = rounds.iter().map(|round| round[key]).collect();
            self.put(key, Figures::of(values).median);
        }
        Ok(())
    }

    /// Every path once, after a rest that is longer than any reading is shared: what one path has
    /// read helps the next as little as may be.
    fn scrape_round(&self) -> Result<Values> {
        let (pid, bench) = (self.joined.node.pid()?, self.scene.bench);
        let span = Duration::from_secs(10);
        let at_rest = Cost::cpu_share(pid, span, || bench.is_interrupted())?;
        let mut values = Values::new();
        for (key, path) in SCRAPED {
            let address = self.joined.node.read_only_address().to_owned();
            // The first finds nothing open and nothing known.
            Scrape::once(&address, path)?;
            thread::sleep(Duration::from_secs(1));
            let (before, began) = (cpu_seconds(pid)?, Instant::now());
            let mut times = Vec::new();
            for _ in 0..N_SCRAPES {
                times.push(Scrape::once(&address, path)?.took.as_secs_f64());
                thread::sleep(Duration::from_secs(1));
            }
            let spent = cpu_seconds(pid)? - before - at_rest * began.elapsed().as_secs_f64();
            let n_scrapes = N_SCRAPES as f64;
            let (time, cpu) = (Figures::of(times).median, spent.max(0.0) / n_scrapes);
            values.insert(format!("{key}_time"), time * 1000.0);
            values.insert(format!("{key}_cpu"), cpu * 1000.0);
        }
        Ok(values)
    }

    /// Pods are started one after the other: in peace, while everybody asks a server of our own
    /// that only sends the same bytes, and while everybody asks the kubelet for them. In turn, so
    /// that what the machine does meanwhile falls on all three alike.
    fn starts(&mut self) -> Result<()> {
        let mut spans: [Vec<f64>; 3] = Default::default();
        let (mut n_answers, mut flooded_for, mut spent) = (0, 0.0, 0.0);
        let (mut stand_in_for, mut stand_in_spent) = (0.0, 0.0);
        let (mut asked, mut asked_beside) = (0.0, 0.0);
        let (pid, address) =
            (self.joined.node.pid()?, self.joined.node.read_only_address().to_owned());
        for n in 0..N_STARTS {
            spans[0].push(self.start_one(&format!("alone-{n}"))?);
            let stand_in = StandIn::copying(&address, "/pods")?;
            let began = Instant::now();
            let flood = Flood::start(stand_in.address(), "/pods", FLOOD);
            thread::sleep(LEAD);
            let span = self.start_one(&format!("beside-{n}"));
            asked_beside += flood.stop()?.spent;
            stand_in_for += began.elapsed().as_secs_f64();
            stand_in_spent += stand_in.stop()?;
            spans[1].push(span?);
            let (before, began) = (cpu_seconds(pid)?, Instant::now());
            let flood = Flood::start(&address, "/pods", FLOOD);
            thread::sleep(LEAD);
            let span = self.start_one(&format!("flooded-{n}"));
            let flooded = flood.stop()?;
            n_answers += flooded.n_answers;
            asked += flooded.spent;
            flooded_for += began.elapsed().as_secs_f64();
            spent += cpu_seconds(pid)? - before;
            spans[2].push(span?);
        }
        let [alone, beside, flooded] = spans.map(|spans| Figures::of(spans).median);
        self.put("start_alone", alone);
        self.put("start_beside", beside);
        self.put("start_flooded", flooded);
        self.put("start_slowdown", flooded / beside * 100.0);
        self.put("flood_rate", f64::from(n_answers) / flooded_for);
        self.put("flood_cpu", spent / flooded_for * 100.0);
        self.put("send_cpu", stand_in_spent / stand_in_for * 100.0);
        self.put("ask_cpu", asked / flooded_for * 100.0);
        self.put("ask_beside_cpu", asked_beside / stand_in_for * 100.0);
        Ok(())
    }

    fn start_one(&self, name: &str) -> Result<f64> {
        let began = Instant::now();
        self.create(name, "trap 'exit 0' TERM; sleep 100000 & wait")?;
        // Only this one is looked at: a list of all would take longer than the start.
        let (scene, path) = (self.scene, format!("{PODS}/{name}"));
        wait_until(&format!("pod {name}"), PATIENCE, || {
            ensure!(!scene.bench.is_interrupted(), "interrupted");
            let pod = PodView(scene.cluster.get(&path)?);
            Ok((pod.condition("Ready") == Some("True")).then_some(()))
        })?;
        Ok(began.elapsed().as_secs_f64())
    }

    fn followed_logs(&mut self) -> Result<()> {
        // Five kilobytes a second each: with twenty followers each, a megabyte a second in all.
        let text = "while :; do head -c 5000 /dev/zero | tr '\\0' x; echo; sleep 1; done";
        for n in 0..N_TALKERS {
            self.create(&format!("talker-{n}"), text)?;
        }
        self.wait_ready("talker-", N_TALKERS)?;
        let pid = self.joined.node.pid()?;
        thread::sleep(Duration::from_secs(5));
        let before = Holding::of(pid)?.resident_mb;
        let mut curl = self.follow()?;
        let output = curl.stdout.take().context("curl's output is piped")?;
        let counter = thread::spawn(move || count(output));
        // All are connected and have heard what was written before.
        thread::sleep(Duration::from_secs(8));
        let bench = self.scene.bench;
        let span = Duration::from_secs(15);
        let share = Cost::cpu_share(pid, span, || bench.is_interrupted())?;
        let after = Holding::of(pid)?.resident_mb;
        curl.kill()?;
        curl.wait()?;
        let n_bytes = counter.join().ok().context("the counter broke")?;
        self.put("follow_cpu", share * 100.0);
        self.put("follow_memory", (after - before).max(0.0));
        self.put("follow_delivered", n_bytes as f64 / 1e6 / 23.0);
        self.delete("talker-", N_TALKERS)
    }

    /// One process with a connection for each follower.
    fn follow(&self) -> Result<Child> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--insecure", "--no-buffer", "--http1.1"])
            .args(["--parallel", "--parallel-immediate"])
            .args(["--parallel-max", &N_FOLLOWERS.to_string()]);
        let ip = self.scene.bench.node_ip();
        for n in 0..N_FOLLOWERS {
            let talker = n % N_TALKERS;
            curl.arg(format!(
                "https://{ip}:{}/containerLogs/default/talker-{talker}/main?follow=true&tailLines=1&n={n}",
                self.port
            ));
        }
        curl.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start curl")
    }

    fn forwarded_port(&mut self) -> Result<()> {
        let n_blocks = FORWARDED >> 16;
        let text = format!("exec nc -ll -p 8080 -e dd if=/dev/zero bs=64k count={n_blocks}");
        self.create("source", &text)?;
        self.wait_ready("source", 1)?;
        let local = http::free_port()?;
        let ports = format!("{local}:8080");
        let mut forward =
            self.scene.cluster.spawn_kubectl(&["port-forward", "pod/source", &ports])?;
        let outcome = self.forward(local);
        forward.kill()?;
        forward.wait()?;
        outcome
    }

    fn forward(&mut self, port: u16) -> Result<()> {
        wait_until("the forwarded port", PATIENCE, || {
            Ok(TcpStream::connect(("127.0.0.1", port)).ok().map(drop))
        })?;
        thread::sleep(Duration::from_secs(1));
        let pid = self.joined.node.pid()?;
        let (before, mut rates) = (cpu_seconds(pid)?, Vec::new());
        for _ in 0..N_FORWARDS {
            let began = Instant::now();
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let n_bytes = count(stream);
            ensure!(n_bytes == FORWARDED, "{n_bytes} of {FORWARDED} bytes came");
            rates.push(n_bytes as f64 / 1e6 / began.elapsed().as_secs_f64());
        }
        let spent = cpu_seconds(pid)? - before;
        let gigabytes = (N_FORWARDS * FORWARDED) as f64 / 1e9;
        self.put("forward", Figures::of(rates).median);
        self.put("forward_cpu", spent / gigabytes);
        Ok(())
    }

    fn create(&self, name: &str, script: &str) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.name,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main",
                    "image": BUSYBOX,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", script],
                }],
            },
        });
        self.scene.api.create(PODS, &pod)
    }

    fn pods(&self, prefix: &str) -> Result<Vec<PodView>> {
        let list: Value = self.scene.cluster.get(PODS)?;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let all = all.into_iter().map(PodView);
        Ok(all.filter(|pod| pod.name().starts_with(prefix)).collect())
    }

    fn wait_ready(&mut self, prefix: &str, n_pods: usize) -> Result<()> {
        let scene = self.scene;
        wait_until(&format!("{n_pods} pods {prefix}"), PATIENCE, || {
            ensure!(!scene.bench.is_interrupted(), "interrupted");
            let pods = self.pods(prefix)?;
            let ready = pods.iter().filter(|it| it.condition("Ready") == Some("True"));
            let n_ready = ready.count();
            if n_ready < n_pods && n_pods > 1 {
                // Looks at a hundred pods cost the machine more than the pods.
                thread::sleep(Duration::from_millis(300));
            }
            ensure!(n_ready == n_pods, "{n_ready} are Ready");
            Ok(Some(()))
        })
    }

    fn delete(&self, prefix: &str, n_pods: usize) -> Result<()> {
        for n in 0..n_pods {
            self.scene.api.delete(&format!("{PODS}/{prefix}{n}"))?;
        }
        wait_until(&format!("pods {prefix} to be gone"), PATIENCE, || {
            ensure!(self.pods(prefix)?.is_empty(), "some are left");
            Ok(Some(()))
        })
    }

    fn put(&mut self, key: &str, value: f64) {
        self.values.insert(key.to_owned(), value);
    }
}

/// Reads to the end, and counts.
fn count(mut stream: impl std::io::Read) -> usize {
    let (mut piece, mut n_bytes) = (vec![0; 1 << 16], 0);
    while let Ok(n @ 1..) = stream.read(&mut piece) {
        n_bytes += n;
    }
    n_bytes
}
