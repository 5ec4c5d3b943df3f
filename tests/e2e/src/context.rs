//! What one test works with: a containerd of its own, started when first asked for, and agents on
//! it.
//!
//! Cleaning up is not the test's business: the runner calls [`Context::clean`] whatever happened.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, anyhow};
use ferrolet_lab::cluster::Access;
use ferrolet_lab::containerd::{CgroupDriver, PodNetwork};
use ferrolet_lab::parts::ControlPlane;
use ferrolet_lab::process::{keep, tail};
use ferrolet_lab::{
    Bench, Cluster, ClusterNode, ClusterOptions, Containerd, Node, NodeOptions, Part, Toolbox,
    cgroups, mounts, node,
};
use serde_json::Value;

use crate::Options;

static NEXT: AtomicUsize = AtomicUsize::new(1);

/// How long certificates live that the shared control plane signs. They begin five minutes in the
/// past and are renewed after 70 to 90 % of the whole span, so a certificate of this length is
/// renewed 1 to 87 seconds after it was signed.
const SIGNING_DURATION: &str = "130s";

/// What all tests of a run have in common.
pub(crate) struct Shared<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) tools: &'a Toolbox,
    pub(crate) options: &'a Options,
    /// Started by the first test that asks.
    cluster: OnceLock<Result<Cluster, String>>,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(bench: &'a Bench, tools: &'a Toolbox, options: &'a Options) -> Shared<'a> {
        Shared { bench, tools, options, cluster: OnceLock::new() }
    }

    fn cluster(&self) -> Result<&Cluster> {
        let started = self.cluster.get_or_init(|| {
            let options = ClusterOptions {
                signing_duration: SIGNING_DURATION.to_owned(),
                ..ClusterOptions::default()
            };
            let binaries = self.control_plane().map_err(|error| format!("{error:#}"))?;
            Cluster::start(self.bench, binaries, &options).map_err(|error| format!("{error:#}"))
        });
        started.as_ref().map_err(|reason| anyhow!(reason.clone()))
    }

    fn control_plane(&self) -> Result<&ControlPlane> {
        match &self.options.control_plane {
            Part::Available(binaries) => Ok(binaries),
            Part::Missing(reason) => Err(anyhow!(reason.clone())),
        }
    }
}

pub(crate) struct Context<'a> {
    shared: &'a Shared<'a>,
    pub(crate) bench: &'a Bench,
    pub(crate) tools: &'a Toolbox,
    pub(crate) options: &'a Options,
    name: &'static str,
    /// Unique in the run; names of nodes and directories begin with it.
    short: String,
    containerd: Option<Containerd>,
    nodes: Vec<PathBuf>,
    /// Nodes and namespaces that the shared control plane knows.
    joined: Vec<String>,
    namespace: Option<String>,
    own_cluster: Option<PathBuf>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>, name: &'static str) -> Context<'a> {
        let short = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Context {
            shared,
            bench: shared.bench,
            tools: shared.tools,
            options: shared.options,
            name,
            short,
            containerd: None,
            nodes: Vec::new(),
            joined: Vec::new(),
            namespace: None,
            own_cluster: None,
        }
    }

    /// Whether the agent under test is upstream's kubelet, which is expected to fall short here and
    /// there.
    pub(crate) fn is_upstream(&self) -> bool {
        self.options.agent.ends_with("kubelet")
    }

    /// Upstream's programs.
    pub(crate) fn control_plane(&self) -> Result<&'a ControlPlane> {
        self.shared.control_plane()
    }

    /// The control plane that the tests share.
    pub(crate) fn cluster(&self) -> Result<&'a Cluster> {
        self.shared.cluster()
    }

    /// A control plane for this test alone, because the test stops it.
    pub(crate) fn own_cluster(&mut self) -> Result<Cluster> {
        let options =
            ClusterOptions { name: format!("{}-cluster", self.short), ..ClusterOptions::default() };
        let cluster = Cluster::start(self.bench, self.control_plane()?, &options)?;
        self.own_cluster = Some(cluster.directory().to_owned());
        Ok(cluster)
    }

    /// The test's namespace in the shared control plane, with its default service account.
    pub(crate) fn namespace(&mut self) -> Result<String> {
        if let Some(name) = &self.namespace {
            return Ok(name.clone());
        }
        let name = self.short.clone();
        crate::cluster::create_namespace(self.cluster()?, &name)?;
        self.namespace = Some(name.clone());
        Ok(name)
    }

    /// An agent of a control plane that has not been started.
    pub(crate) fn prepare_joined(
        &mut self,
        cluster: &Cluster,
        options: NodeOptions,
        access: &Access,
    ) -> Result<ClusterNode> {
        self.containerd()?;
        let containerd = self.containerd.as_ref().context("containerd was just started")?;
        let name = options.name.clone();
        self.nodes.push(self.bench.directory(&format!("node-{name}"))?);
        self.joined.push(name);
        ClusterNode::prepare(self.bench, containerd, cluster, options, access)
    }

    /// The test's containerd.
    pub(crate) fn containerd(&mut self) -> Result<&mut Containerd> {
        if self.containerd.is_none() {
            let name = format!("{}-containerd", self.short);
            self.containerd = Some(Containerd::start(self.bench, self.tools, &name)?);
        }
        self.containerd.as_mut().context("containerd was just started")
    }

    /// Makes the test's containerd wait for the agent to hand over the range of its pods'
    /// addresses.
    pub(crate) fn take_network_from_agent(&mut self) -> Result<()> {
        let name = format!("{}-containerd", self.short);
        let (network, driver) = (PodNetwork::FromAgent, CgroupDriver::Cgroupfs);
        let started = Containerd::start_with(self.bench, self.tools, &name, network, driver)?;
        self.containerd = Some(started);
        Ok(())
    }

    /// Has systemd make the cgroups of the test's containers.
    pub(crate) fn take_systemd(&mut self) -> Result<()> {
        let name = format!("{}-containerd", self.short);
        let (network, driver) = (PodNetwork::Ready, CgroupDriver::Systemd);
        let started = Containerd::start_with(self.bench, self.tools, &name, network, driver)?;
        self.containerd = Some(started);
        Ok(())
    }

    /// Lets the test's containerd run its containers with another runc.
    pub(crate) fn take_runc(&mut self, runc: PathBuf) -> Result<()> {
        let name = format!("{}-containerd", self.short);
        let tools = Toolbox { runc, ..self.tools.clone() };
        self.containerd = Some(Containerd::start(self.bench, &tools, &name)?);
        Ok(())
    }

    /// Options for the test's next agent.
    pub(crate) fn node_options(&self) -> NodeOptions {
        let suffix = match self.nodes.len() {
            0 => String::new(),
            n => format!("x{n}"),
        };
        NodeOptions::new(&format!("{}{suffix}", self.short), &self.options.agent)
    }

    /// A healthy agent with the bench's usual configuration.
    pub(crate) fn node(&mut self) -> Result<Node> {
        let options = self.node_options();
        self.node_with(options)
    }

    /// A healthy agent.
    pub(crate) fn node_with(&mut self, options: NodeOptions) -> Result<Node> {
        let mut node = self.prepare(options)?;
        node.launch()?;
        node.wait_healthy()?;
        Ok(node)
    }

    /// An agent that has not been started.
    pub(crate) fn prepare(&mut self, options: NodeOptions) -> Result<Node> {
        self.containerd()?;
        let containerd = self.containerd.as_ref().context("containerd was just started")?;
        let node = Node::prepare(self.bench, containerd, options)?;
        self.nodes.push(node.directory().to_owned());
        Ok(node)
    }

    /// An agent that is its own runtime and has not been started.
    pub(crate) fn prepare_embedded(&mut self, configuration: Value) -> Result<Node> {
        let options = NodeOptions { configuration, ..self.node_options() };
        let node = Node::prepare_embedded(self.bench, options)?;
        self.nodes.push(node.directory().to_owned());
        Ok(node)
    }

    /// Copies what explains a failure out of the run; gives the text for the report.
    pub(crate) fn keep(&self) -> String {
        let target = self.options.keep.join(self.name);
        let mut text = String::new();
        let mut copy = || -> Result<()> {
            if target.exists() {
                fs::remove_dir_all(&target)?;
            }
            fs::create_dir_all(&target)?;
            for (n, node) in self.nodes.iter().enumerate() {
                text.push_str(&tail(&node.join("agent.log"), 25));
                for file in ["agent.log", "kubelet.yaml"] {
                    keep(&node.join(file), &target.join(format!("{n}-{file}")))?;
                }
            }
            if let Some(containerd) = &self.containerd {
                keep(&containerd.log(), &target.join("containerd.log"))?;
            }
            if let Some(namespace) = &self.namespace {
                let all = ["get", "pods,events", "--output=yaml", "--namespace"];
                let said = self.cluster()?.kubectl(&[&all[..], &[namespace]].concat())?;
                fs::write(target.join("objects.yaml"), said)?;
            }
            Ok(())
        };
        if let Err(error) = copy() {
            text.push_str(&format!("    (logs could not be kept: {error:#})\n"));
        }
        text.push_str(&format!("    logs kept in {}", target.display()));
        text
    }

    /// Ends and removes everything of the test.
    pub(crate) fn clean(mut self) -> Result<()> {
        self.leave_cluster()?;
        if let Some(dir) = self.own_cluster.take() {
            mounts::remove_tree(&dir)?;
        }
        if let Some(containerd) = self.containerd.take() {
            containerd.destroy()?;
        }
        for dir in &self.nodes {
            let name = dir
                .file_name()
                .map(|name| name.to_string_lossy().replace("node-", ""))
                .unwrap_or_default();
            let group = format!("{}/{name}", self.bench.run_id().cgroup());
            node::end_marked(&group)?;
            cgroups::remove(&group)?;
            mounts::remove_tree(dir)?;
        }
        Ok(())
    }

    /// Takes the test's objects out of the shared control plane, so that it does not work for them
    /// any more.
    fn leave_cluster(&mut self) -> Result<()> {
        let Some(namespace) = self.namespace.take() else {
            return Ok(());
        };
        let cluster = self.cluster()?;
        let nodes = self.joined.iter().map(String::as_str);
        let mut args = vec!["delete", "node", "--ignore-not-found", "--wait=false"];
        args.extend(nodes);
        cluster.kubectl(&args)?;
        cluster.kubectl(&[
            "delete",
            "pods",
            "--all",
            "--force",
            "--grace-period=0",
            "--wait=false",
            "--namespace",
            &namespace,
        ])?;
        Ok(())
    }
}
