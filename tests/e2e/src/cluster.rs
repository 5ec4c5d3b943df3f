//! What a test of the cluster works with: a node that joined the shared control plane, and a
//! namespace.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ferrolet_lab::cluster::Access;
use ferrolet_lab::{Cluster, ClusterNode, Containerd, NodeOptions, PodView};
use serde_json::{Value, json};

use crate::build::{pod, with};
use crate::cases::{LATER, SOON};
use crate::context::Context;
use crate::look;
use crate::session::Session;

/// How long a log that says no more has been silent.
const SETTLED: Duration = Duration::from_millis(500);

/// A node and a namespace on a control plane.
pub(crate) struct World<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) node: ClusterNode,
    pub(crate) namespace: String,
}

impl<'c> World<'c> {
    /// A Ready node with a certificate.
    pub(crate) fn start(context: &mut Context<'c>) -> Result<World<'c>> {
        let options = context.node_options();
        World::start_with(context, options)
    }

    /// A Ready node with a certificate and options of the test's own.
    pub(crate) fn start_with(context: &mut Context<'c>, options: NodeOptions) -> Result<World<'c>> {
        let mut world = World::prepare(context, options, &Access::Certificate)?;
        world.node.node.launch()?;
        world.node.wait_ready(world.cluster)?;
        Ok(world)
    }

    /// A node that has not been started.
    pub(crate) fn prepare(
        context: &mut Context<'c>,
        options: NodeOptions,
        access: &Access,
    ) -> Result<World<'c>> {
        let cluster = context.cluster()?;
        let namespace = context.namespace()?;
        let node = context.prepare_joined(cluster, options, access)?;
        Ok(World { cluster, node, namespace })
    }

    pub(crate) fn node_name(&self) -> &str {
        self.node.node.name()
    }

    /// kubectl in the test's namespace.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String> {
        let namespace = format!("--namespace={}", self.namespace);
        let mut all = vec![namespace.as_str()];
        all.extend(args);
        self.cluster.kubectl(&all)
    }

    /// kubectl in the test's namespace, with input and output at hand.
    pub(crate) fn talk_to_kubectl(&self, args: &[&str]) -> Result<Session> {
        Session::start(self.kubectl_command(args))
    }

    /// kubectl in the test's namespace, not started.
    pub(crate) fn kubectl_command(&self, args: &[&str]) -> Command {
        let namespace = format!("--namespace={}", self.namespace);
        let mut all = vec![namespace.as_str()];
        all.extend(args);
        self.cluster.kubectl_command(&all)
    }

    /// `host:port` of the node's main server, as the node's object tells it.
    pub(crate) fn main_address(&self) -> Result<String> {
        let node = self.node.object(self.cluster)?;
        let port = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
        let ip = node["status"]["addresses"][0]["address"]
            .as_str()
            .context("the node has no address")?;
        Ok(format!("{ip}:{port}"))
    }

    /// kubectl in the test's namespace, left running.
    pub(crate) fn spawn_kubectl(&self, args: &[&str]) -> Result<Child> {
        let namespace = format!("--namespace={}", self.namespace);
        let mut all = vec![namespace.as_str()];
        all.extend(args);
        self.cluster.spawn_kubectl(&all)
    }

    /// Waits for something that is asked of kubectl or of the node's address.
    pub(crate) fn wait<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        mut attempt: impl FnMut(&Cluster, &str) -> Result<Option<T>>,
    ) -> Result<T> {
        let (cluster, namespace) = (self.cluster, self.namespace.clone());
        self.node.node.wait(what, timeout, |_| attempt(cluster, &namespace))
    }

    /// A pod for this node, past the scheduler.
    pub(crate) fn pod(&self, name: &str, containers: &[Value]) -> Value {
        with(
            pod(name, containers),
            json!({
                "metadata": {"namespace": self.namespace},
                "spec": {"nodeName": self.node_name()},
            }),
        )
    }

    /// A config map, secret or other object in the test's namespace.
    pub(crate) fn object(&self, kind: &str, name: &str, rest: Value) -> Value {
        let base = json!({
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace},
        });
        with(base, rest)
    }

    /// `kubectl apply`.
    pub(crate) fn apply(&self, object: &Value) -> Result<()> {
        self.cluster.apply(object)
    }

    /// The pod as the API server has it.
    pub(crate) fn find_pod(&self, name: &str) -> Result<Option<PodView>> {
        Ok(self.cluster.find(&self.pod_path(name))?.map(PodView))
    }

    fn pod_path(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{name}", self.namespace)
    }

    /// Waits until a pod satisfies `holds`; the failure shows its last status.
    pub(crate) fn wait_pod(
        &mut self,
        name: &str,
        what: &str,
        timeout: Duration,
        holds: impl Fn(&PodView) -> bool,
    ) -> Result<PodView> {
        let (cluster, path) = (self.cluster, self.pod_path(name));
        let what = format!("pod {name}: {what}");
        self.node.node.wait(&what, timeout, |_| {
            let pod = PodView(cluster.get(&path)?);
            ensure!(holds(&pod), "its status is {}", pod.0["status"]);
            Ok(Some(pod))
        })
    }

    /// Waits until a pod is Ready.
    pub(crate) fn wait_ready(&mut self, name: &str) -> Result<PodView> {
        self.wait_pod(name, "Ready", SOON, |pod| {
            pod.phase() == "Running" && pod.condition("Ready") == Some("True")
        })
    }

    /// The same with more patience: for a pod that something has to be done for first, or that was
    /// refused before.
    pub(crate) fn wait_ready_later(&mut self, name: &str) -> Result<PodView> {
        self.wait_pod(name, "Ready", LATER, |pod| pod.condition("Ready") == Some("True"))
    }

    /// Waits until the node has taken a pod on, whatever becomes of it.
    pub(crate) fn wait_known(&mut self, name: &str) -> Result<PodView> {
        self.wait_pod(name, "known to the node", LATER, |pod| {
            pod.0["status"]["startTime"].is_string()
        })
    }

    /// Applies a pod of this name and waits until it is Ready.
    pub(crate) fn run(&mut self, pod: &Value) -> Result<PodView> {
        let name = pod["metadata"]["name"].as_str().context("the pod has no name")?;
        self.apply(pod)?;
        self.wait_ready(name)
    }

    /// Waits until the API server has no pod of this name, or another one.
    pub(crate) fn wait_gone(&mut self, pod: &PodView, timeout: Duration) -> Result<()> {
        let (cluster, path) = (self.cluster, self.pod_path(pod.name()));
        let what = format!("pod {} to be gone", pod.name());
        self.node.node.wait(&what, timeout, |_| match cluster.find(&path)? {
            Some(other) if other["metadata"]["uid"] == pod.uid() => {
                bail!("it is still there: {}", other["metadata"])
            }
            _ => Ok(Some(())),
        })
    }

    /// Reasons of the events about a pod that the agent sent, in order of their first time.
    pub(crate) fn event_reasons(&self, pod: &PodView) -> Result<Vec<String>> {
        let events = self.events(pod)?;
        let reasons = events.iter().filter_map(|it| it["reason"].as_str());
        Ok(reasons.map(str::to_owned).collect())
    }

    /// Events about a pod, sorted by the time of their creation.
    pub(crate) fn events(&self, pod: &PodView) -> Result<Vec<Value>> {
        let path = format!(
            "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.uid%3D{}",
            self.namespace,
            pod.uid()
        );
        let list = self.cluster.get(&path)?;
        let mut events = list["items"].as_array().cloned().unwrap_or_default();
        events.sort_by_key(|it| it["metadata"]["resourceVersion"].as_str().map(str::to_owned));
        Ok(events)
    }

    /// Waits for an event about a pod and gives its message.
    pub(crate) fn wait_event(&mut self, pod: &PodView, reason: &str) -> Result<String> {
        self.cluster.wait(&format!("the event {reason}"), SOON, |_| {
            let events = self.events(pod)?;
            let found = events.iter().find(|it| it["reason"] == reason);
            match found {
                Some(event) => Ok(Some(event["message"].as_str().unwrap_or_default().to_owned())),
                None => bail!("there are only {:?}", self.event_reasons(pod)?),
            }
        })
    }

    /// Waits until a container has written this many lines, and gives them.
    pub(crate) fn said_log(
        &mut self,
        pod: &PodView,
        container: &str,
        n: usize,
    ) -> Result<Vec<String>> {
        self.node.node.wait("lines in a log", SOON, |node| {
            let lines = look::log_lines(node, pod, container, 0)?;
            ensure!(lines.len() >= n, "there are {lines:?}");
            Ok(Some(lines))
        })
    }

    /// The lines of a container that has said all it has to say: some, and no more at the next
    /// look.
    pub(crate) fn settled_log(&mut self, pod: &PodView, container: &str) -> Result<Vec<String>> {
        let (mut before, mut since) = (Vec::new(), Instant::now());
        self.node.node.wait("a log that has settled", SOON, |node| {
            let lines = look::log_lines(node, pod, container, 0)?;
            if lines != before {
                (before, since) = (lines.clone(), Instant::now());
            }
            let is_settled = !lines.is_empty() && since.elapsed() > SETTLED;
            Ok(is_settled.then_some(lines))
        })
    }

    /// What a container has written.
    pub(crate) fn log_lines(&self, pod: &PodView, container: &str) -> Result<Vec<String>> {
        look::log_lines(&self.node.node, pod, container, 0)
    }

    /// The text of a file inside a container.
    pub(crate) fn read_inside(
        &self,
        containerd: &Containerd,
        pod: &PodView,
        path: &str,
    ) -> Result<String> {
        let containers = pod.containers();
        let running = containers.iter().find(|it| it.is_running()).context("no container runs")?;
        let id = running.id();
        containerd.ctr(&["tasks", "exec", "--exec-id", "look", id, "cat", path])
    }
}

/// Makes a namespace and waits for its service account, without which no pod is admitted.
pub(crate) fn create_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.kubectl(&["create", "namespace", name])?;
    let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    cluster.wait("the default service account", SOON, |cluster| cluster.find(&path))?;
    // Its certificate comes from another controller.
    let path = format!("/api/v1/namespaces/{name}/configmaps/kube-root-ca.crt");
    cluster.wait("the namespace's root certificate", SOON, |cluster| cluster.find(&path))?;
    Ok(())
}
