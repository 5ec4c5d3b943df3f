//! One agent: the executable under test, its configuration, its manifests, and what it says about
//! them.
//!
//! The executable is started through a link named `kubelet`, so upstream's kubelet can stand in for
//! ours. It gets directories, ports and a cgroup root of its own. Nothing here knows how the agent
//! works inside.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cgroups;
use crate::containerd::Containerd;
use crate::http;
use crate::isolation::Bench;
use crate::mounts;
use crate::pods::{PodView, parse_list};
use crate::process::{Daemon, send_signal};
use crate::wait::wait_until;

/// The endpoint of an agent that is its own runtime.
const EMBEDDED: &str = "embedded";
/// A variable of the agent's environment, by which what it starts is known for its.
const MARK: &str = "FERROLET_LAB_NODE";

/// What differs between one agent and another.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Short and unique in the run; also the node's name.
    pub name: String,
    /// The executable.
    pub agent: PathBuf,
    /// Fields of KubeletConfiguration laid over the bench's own, the top level only; null takes a
    /// field away.
    pub configuration: Value,
    /// Further command-line arguments.
    pub arguments: Vec<String>,
    /// Further variables of its environment.
    pub environment: Vec<(String, String)>,
    pub verbosity: u8,
    pub ports: Ports,
}

/// Where an agent listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// On any free ports, so that several agents can share the run's network.
    Free,
    /// On the ports people know: 10248 for health, 10250, and 10255 for reading.
    Usual,
}

impl Ports {
    fn choose(self, usual: u16) -> Result<u16> {
        match self {
            Ports::Free => http::free_port(),
            Ports::Usual => Ok(usual),
        }
    }
}

impl NodeOptions {
    #[must_use]
    pub fn new(name: &str, agent: &Path) -> NodeOptions {
        NodeOptions {
            name: name.to_owned(),
            agent: agent.to_owned(),
            configuration: json!({}),
            arguments: Vec::new(),
            environment: Vec::new(),
            verbosity: 4,
            ports: Ports::Free,
        }
    }
}

/// An agent that runs, or has been stopped and can be started again.
pub struct Node {
    options: NodeOptions,
    directory: PathBuf,
    cgroup_root: String,
    endpoint: String,
    node_ip: String,
    healthz: String,
    read_only: String,
    daemon: Option<Daemon>,
}

impl Node {
    /// Prepares directories and configuration and starts the agent; does not wait for health.
    pub fn start(bench: &Bench, containerd: &Containerd, options: NodeOptions) -> Result<Node> {
        Node::start_on(bench, &containerd.endpoint(), options)
    }

    /// Like [`Node::start`], on any CRI endpoint, also one that is not there.
    pub fn start_on(bench: &Bench, endpoint: &str, options: NodeOptions) -> Result<Node> {
        let mut node = Node::prepare_on(bench, endpoint, options)?;
        node.launch()?;
        Ok(node)
    }

    /// Everything but the start, so that manifests can be there first.
    pub fn prepare(bench: &Bench, containerd: &Containerd, options: NodeOptions) -> Result<Node> {
        Node::prepare_on(bench, &containerd.endpoint(), options)
    }

    /// An agent that is its own runtime, with directories and a range of pods' addresses of its own.
    pub fn prepare_embedded(bench: &Bench, options: NodeOptions) -> Result<Node> {
        let node = Node::prepare_on(bench, EMBEDDED, options)?;
        let (_, subnet) = bench.next_subnet();
        for sub in ["cni", "registries", "images"] {
            fs::create_dir_all(node.directory.join(sub))?;
        }
        let file = json!({
            "apiVersion": "runtime.ferrolet.dev/v1alpha1",
            "kind": "RuntimeConfiguration",
            "images": { "archiveDirectory": "images" },
            "registries": { "hostsDirectory": "registries" },
            "network": { "podCIDRs": [format!("{subnet}.0/24")], "cniConfigurationDirectory": "cni" },
        });
        fs::write(node.directory.join("runtime.yaml"), serde_json::to_vec_pretty(&file)?)?;
        Ok(node)
    }

    fn prepare_on(bench: &Bench, endpoint: &str, options: NodeOptions) -> Result<Node> {
        let directory = bench.directory(&format!("node-{}", options.name))?;
        let node = Node {
            cgroup_root: format!("{}/{}", bench.run_id().cgroup(), options.name),
            endpoint: endpoint.to_owned(),
            node_ip: bench.node_ip(),
            healthz: format!("127.0.0.1:{}", options.ports.choose(10248)?),
            read_only: format!("{}:{}", bench.node_ip(), options.ports.choose(10255)?),
            daemon: None,
            directory,
            options,
        };
        for sub in ["manifests", "root", "logs", "drafts"] {
            fs::create_dir_all(node.directory.join(sub))?;
        }
        fs::write(node.directory.join("resolv.conf"), "nameserver 192.0.2.53\nsearch lab.test\n")?;
        cgroups::create(&node.cgroup_root)?;
        symlink(&node.options.agent, node.directory.join("kubelet"))?;
        fs::write(
            node.directory.join("kubelet.yaml"),
            serde_json::to_vec_pretty(&node.configuration()?)?,
        )?;
        Ok(node)
    }

    /// Starts the process; also after a kill or a stop.
    pub fn launch(&mut self) -> Result<()> {
        ensure!(self.daemon.is_none(), "the agent already runs");
        let mut command = Command::new(self.directory.join("kubelet"));
        command
            .arg("--config")
            .arg(self.directory.join("kubelet.yaml"))
            .arg("--root-dir")
            .arg(self.root())
            .args(["--hostname-override", &self.options.name])
            .args(["--node-ip", &self.node_ip])
            .arg("--cert-dir")
            .arg(self.directory.join("pki"))
            .arg(format!("--v={}", self.options.verbosity))
            .args(&self.options.arguments)
            .env(MARK, &self.cgroup_root)
            .envs(self.options.environment.iter().cloned())
            .current_dir(&self.directory);
        self.daemon = Some(Daemon::spawn("agent", command, &self.log())?);
        Ok(())
    }

    /// Waits for `/healthz`.
    pub fn wait_healthy(&mut self) -> Result<()> {
        self.wait("the agent to be healthy", Duration::from_secs(60), |node| {
            let answer = node.healthz("/healthz")?;
            ensure!(answer.status == 200, "healthz says {}: {}", answer.status, answer.body);
            Ok(Some(()))
        })
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        let mut daemon = self.daemon.take().context("the agent does not run")?;
        daemon.kill()
    }

    /// SIGTERM, and the status it ended with.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let mut daemon = self.daemon.take().context("the agent does not run")?;
        daemon.terminate(Duration::from_secs(15))
    }

    /// Lets another executable be the agent from the next launch on, with the same directories and
    /// containers.
    pub fn switch_agent(&mut self, agent: &Path) -> Result<()> {
        ensure!(self.daemon.is_none(), "the agent still runs");
        let link = self.directory.join("kubelet");
        fs::remove_file(&link)?;
        symlink(agent, &link)?;
        self.options.agent = agent.to_owned();
        Ok(())
    }

    /// Fails with the end of the log when the agent has ended by itself.
    pub fn expect_running(&mut self) -> Result<()> {
        self.daemon.as_mut().context("the agent does not run")?.expect_running()
    }

    /// Waits until the agent has ended by itself, and gives how.
    pub fn wait_ended(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let mut daemon = self.daemon.take().context("the agent does not run")?;
        let ended = wait_until("the agent to end by itself", timeout, || daemon.ended());
        ended.with_context(|| daemon.log_tail(20))
    }

    /// Ends the agent if it still runs, and starts it again.
    pub fn relaunch(&mut self) -> Result<()> {
        drop(self.daemon.take());
        self.launch()
    }

    /// The running process.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.daemon.as_ref().context("the agent does not run")?.pid())
    }

    /// Takes a manifest in, whole at once: written beside the directory and renamed into it.
    pub fn put_manifest(&self, file: &str, text: &str) -> Result<()> {
        let draft = self.directory.join("drafts").join(file);
        fs::write(&draft, text)?;
        fs::rename(&draft, self.manifest_path(file))
            .with_context(|| format!("rename {file} into place"))
    }

    /// A pod of the API's shape as a manifest named after it.
    pub fn put_pod(&self, pod: &Value) -> Result<()> {
        let name = pod["metadata"]["name"].as_str().context("the pod has no name")?;
        self.put_manifest(&format!("{name}.yaml"), &serde_json::to_string_pretty(pod)?)
    }

    pub fn remove_manifest(&self, file: &str) -> Result<()> {
        fs::remove_file(self.manifest_path(file)).with_context(|| format!("remove {file}"))
    }

    #[must_use]
    pub fn manifest_path(&self, file: &str) -> PathBuf {
        self.directory.join("manifests").join(file)
    }

    /// All pods on `/pods`.
    pub fn pods(&self) -> Result<Vec<PodView>> {
        let answer = self.read_only("/pods")?;
        ensure!(answer.status == 200, "/pods says {}: {}", answer.status, answer.body);
        parse_list(&answer.body)
    }

    /// The pod of a manifest, by the manifest's name (the node's name is added).
    pub fn pod(&self, name: &str) -> Result<PodView> {
        let full = self.pod_name(name);
        let pods = self.pods()?;
        let known: Vec<String> = pods.iter().map(|pod| pod.name().to_owned()).collect();
        pods.into_iter()
            .find(|pod| pod.name() == full)
            .ok_or_else(|| anyhow!("no pod {full} among {known:?}"))
    }

    /// What the agent calls the pod of a manifest.
    #[must_use]
    pub fn pod_name(&self, name: &str) -> String {
        format!("{name}-{}", self.options.name)
    }

    /// GET on the health port.
    pub fn healthz(&self, path: &str) -> Result<http::Answer> {
        http::get(&self.healthz, path)
    }

    /// GET on the read-only port.
    pub fn read_only(&self, path: &str) -> Result<http::Answer> {
        http::get(&self.read_only, path)
    }

    /// Waits for a condition; the failure carries the end of the agent's log, and a dead agent ends
    /// the wait.
    pub fn wait<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        mut attempt: impl FnMut(&Node) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut died = None;
        let waited = wait_until(what, timeout, || {
            if let Some(daemon) = &mut self.daemon
                && let Err(error) = daemon.expect_running()
            {
                died = Some(error);
                return Ok(Some(None));
            }
            Ok(attempt(self)?.map(Some))
        });
        match (waited, died) {
            (_, Some(error)) => Err(error.context(format!("while waiting for {what}"))),
            (Ok(Some(value)), None) => Ok(value),
            (Ok(None), None) => Err(anyhow!("the agent ended")),
            (Err(error), None) => Err(error),
        }
    }

    /// Waits until a pod satisfies `holds`; the failure shows the pod's last status.
    pub fn wait_pod(
        &mut self,
        name: &str,
        what: &str,
        timeout: Duration,
        holds: impl Fn(&PodView) -> bool,
    ) -> Result<PodView> {
        self.wait(&format!("pod {name}: {what}"), timeout, |node| {
            let pod = node.pod(name)?;
            ensure!(holds(&pod), "its status is {}", pod.0["status"]);
            Ok(Some(pod))
        })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.name
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The agent's root directory.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    /// Where pod logs go.
    #[must_use]
    pub fn pod_logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.directory.join("agent.log")
    }

    /// Everything the agent has logged.
    #[must_use]
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log()).unwrap_or_default()).into_owned()
    }

    /// The cgroup that the agent was given.
    #[must_use]
    pub fn cgroup_root(&self) -> &str {
        &self.cgroup_root
    }

    /// `host:port` of `/pods`.
    #[must_use]
    pub fn read_only_address(&self) -> &str {
        &self.read_only
    }

    /// `host:port` of `/healthz`.
    #[must_use]
    pub fn healthz_address(&self) -> &str {
        &self.healthz
    }

    /// How many processes of this name its containers have.
    pub fn n_processes_named(&self, name: &str) -> Result<usize> {
        let inside = cgroups::processes(&self.cgroup_root)?;
        let is_named = |pid: &&u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it.trim() == name)
        };
        Ok(inside.iter().filter(is_named).count())
    }

    /// Ends the agent and removes its directory and cgroups. Containers are the runtime's: destroy
    /// that first, unless it is the embedded one.
    pub fn destroy(mut self) -> Result<()> {
        drop(self.daemon.take());
        end_marked(&self.cgroup_root)?;
        cgroups::remove(&self.cgroup_root)?;
        mounts::remove_tree(&self.directory)
    }

    fn configuration(&self) -> Result<Value> {
        let port =
            |address: &str| address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let mut configuration = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": self.directory.join("manifests"),
            "containerRuntimeEndpoint": self.endpoint,
            "cgroupRoot": self.cgroup_root,
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": false,
            "failSwapOn": false,
            // How full the machine's disk is must not decide what a test sees.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "0%",
                "nodefs.inodesFree": "0%",
                "imagefs.available": "0%",
                "imagefs.inodesFree": "0%",
            },
            "imageGCHighThresholdPercent": 100,
            // A run's agents share its network, and with it one packet filter.
            "makeIPTablesUtilChains": false,
            "podLogsDir": self.pod_logs(),
            "resolvConf": self.directory.join("resolv.conf"),
            // The default lies in /usr, which is the host's.
            "volumePluginDir": self.directory.join("volume-plugins"),
            "address": self.node_ip,
            "port": self.options.ports.choose(10250)?,
            "readOnlyPort": port(&self.read_only),
            "healthzPort": port(&self.healthz),
            "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
            "authorization": { "mode": "AlwaysAllow" },
        });
        let fields =
            self.options.configuration.as_object().context("configuration is not an object")?;
        for (key, value) in fields {
            configuration[key] = value.clone();
        }
        let all = configuration.as_object_mut().context("configuration is not an object")?;
        all.retain(|_, value| !value.is_null());
        Ok(configuration)
    }
}

/// Ends what an agent started and left running: monitors of the embedded runtime. Others have nothing of the kind.
pub fn end_marked(cgroup_root: &str) -> Result<()> {
    wait_until("what the agent left running to end", Duration::from_secs(10), || {
        let left = marked(cgroup_root);
        for pid in &left {
            // It may have ended since the list was read.
            let _ = send_signal(*pid, Signal::KILL);
        }
        Ok(left.is_empty().then_some(()))
    })
}

/// Processes with an agent's mark.
fn marked(cgroup_root: &str) -> Vec<u32> {
    let mark = format!("{MARK}={cgroup_root}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    let is_marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|it| it == mark.as_bytes())
    };
    pids.filter(is_marked).collect()
}
