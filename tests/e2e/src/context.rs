//! What one test works with: a containerd of its own, started when first asked for, and agents on it.
//!
//! Cleaning up is not the test's business: the runner calls [`Context::clean`] whatever happened.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use ferrolet_lab::process::{keep, tail};
use ferrolet_lab::{Bench, Containerd, Node, NodeOptions, Toolbox, cgroups, mounts};

use crate::Options;

static NEXT: AtomicUsize = AtomicUsize::new(1);

pub(crate) struct Context<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) tools: &'a Toolbox,
    pub(crate) options: &'a Options,
    name: &'static str,
    /// Unique in the run; names of nodes and directories begin with it.
    short: String,
    containerd: Option<Containerd>,
    nodes: Vec<PathBuf>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        bench: &'a Bench,
        tools: &'a Toolbox,
        options: &'a Options,
        name: &'static str,
    ) -> Context<'a> {
        let short = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Context {
            bench,
            tools,
            options,
            name,
            short,
            containerd: None,
            nodes: Vec::new(),
        }
    }

    /// The test's containerd.
    pub(crate) fn containerd(&mut self) -> Result<&mut Containerd> {
        if self.containerd.is_none() {
            let name = format!("{}-containerd", self.short);
            self.containerd = Some(Containerd::start(self.bench, self.tools, &name)?);
        }
        self.containerd
            .as_mut()
            .context("containerd was just started")
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
        let containerd = self
            .containerd
            .as_ref()
            .context("containerd was just started")?;
        let node = Node::prepare(self.bench, containerd, options)?;
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
        if let Some(containerd) = self.containerd.take() {
            containerd.destroy()?;
        }
        for dir in &self.nodes {
            let name = dir
                .file_name()
                .map(|name| name.to_string_lossy().replace("node-", ""))
                .unwrap_or_default();
            cgroups::remove(&format!("{}/{name}", self.bench.run_id().cgroup()))?;
            mounts::detach_below(dir)?;
            if dir.exists() {
                fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))?;
            }
        }
        Ok(())
    }
}
