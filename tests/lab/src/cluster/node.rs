//! A node that joined: an agent with a way to the API server, on a containerd of its own.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::bootstrap::BootstrapToken;
use super::control_plane::Cluster;
use super::kubeconfig::Credential;
use super::relay::Relay;
use crate::containerd::Containerd;
use crate::isolation::Bench;
use crate::node::{Node, NodeOptions};

/// What the agent shows to the API server.
#[derive(Debug, Clone)]
pub enum Access {
    /// A client certificate that is there from the start.
    Certificate,
    /// A bearer token; only for a node named [`Cluster::TOKEN_NODE`].
    Token,
    /// A bootstrap kubeconfig; the agent asks for its certificate and writes its own kubeconfig.
    Bootstrap(BootstrapToken),
}

/// One agent of the cluster. It reaches the API server through a [`Relay`] of its own.
pub struct ClusterNode {
    pub node: Node,
    pub relay: Relay,
}

impl ClusterNode {
    /// Prepares everything but the start.
    pub fn prepare(
        bench: &Bench,
        containerd: &Containerd,
        cluster: &Cluster,
        mut options: NodeOptions,
        access: &Access,
    ) -> Result<ClusterNode> {
        let relay = Relay::start(cluster.address())?;
        let directory = bench.directory(&format!("node-{}", options.name))?;
        let kubeconfig = directory.join("kubeconfig");
        let mut arguments = vec![format!("--kubeconfig={}", kubeconfig.display())];
        match access {
            Access::Certificate => {
                let identity = cluster.node_identity(&options.name)?;
                let config =
                    cluster.kubeconfig_for(relay.address(), Credential::Certificate(&identity));
                fs::write(&kubeconfig, config.to_string())?;
            }
            Access::Token => {
                ensure!(options.name == Cluster::TOKEN_NODE, "the token is another node's");
                let config =
                    cluster.kubeconfig_for(relay.address(), Credential::Token(Cluster::NODE_TOKEN));
                fs::write(&kubeconfig, config.to_string())?;
            }
            Access::Bootstrap(token) => {
                let file = directory.join("bootstrap.kubeconfig");
                let config =
                    cluster.kubeconfig_for(relay.address(), Credential::Token(&token.text()));
                fs::write(&file, config.to_string())?;
                arguments.push(format!("--bootstrap-kubeconfig={}", file.display()));
            }
        }
        options.arguments.splice(0..0, arguments);
        let fields =
            options.configuration.as_object_mut().context("configuration is not an object")?;
        for (key, value) in [
            (
                "authentication",
                json!({
                    "anonymous": { "enabled": false },
                    "webhook": { "enabled": true },
                    "x509": { "clientCAFile": cluster.authority_file() },
                }),
            ),
            ("authorization", json!({ "mode": "Webhook" })),
            ("clusterDomain", json!("cluster.local")),
            ("clusterDNS", json!(["192.0.2.10"])),
        ] {
            fields.entry(key).or_insert(value);
        }
        let node = Node::prepare(bench, containerd, options)?;
        Ok(ClusterNode { node, relay })
    }

    /// The Node object.
    pub fn object(&self, cluster: &Cluster) -> Result<Value> {
        cluster.get(&self.path())
    }

    /// The API path of the Node object.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.node.name())
    }

    /// Waits until the Node object says Ready.
    pub fn wait_ready(&mut self, cluster: &Cluster) -> Result<Value> {
        let path = self.path();
        self.node.wait("the node to be Ready", Duration::from_secs(60), |_| {
            let node = cluster.get(&path)?;
            let ready = condition(&node, "Ready");
            ensure!(ready["status"] == "True", "its condition Ready is {ready}");
            Ok(Some(node))
        })
    }
}

/// One condition of an object, or null.
#[must_use]
pub fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array();
    all.into_iter().flatten().find(|it| it["type"] == kind).cloned().unwrap_or_default()
}
