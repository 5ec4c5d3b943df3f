//! What the service keeps of sandboxes and containers on disk, as values.
//!
//! ```text
//! <root>/sandboxes/<id>/spec              SandboxRecord
//!        containers/<id>/{spec,upper,work}   ContainerSpec
//!        removed/                         renamed here, then deleted
//! <run>/boot-id
//!       pods/<sandbox>/sandbox            SandboxRun
//!                      {hosts,hostname,resolv.conf}
//!                      <container>/{launched,exit,user}
//! ```
//!
//! What describes running things is in the run directory and dies with the kernel. Files are replaced by rename.
//! A record that cannot be read is "half made": it is removed with what it names ([`super::recover`]).

use ferrolet_cri_proto as cri;
use ferrolet_runtime_protocol::{launch::LaunchSpec, sandbox::SandboxSpec};
use prost::Message;

use super::network::Connection;

/// A sandbox as it was asked for.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SandboxRecord {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) config: Option<cri::PodSandboxConfig>,
    /// In nanoseconds since 1970.
    #[prost(int64, tag = "3")]
    pub(crate) created_at: i64,
    #[prost(string, tag = "4")]
    pub(crate) runtime_handler: String,
    /// What its monitor was born with.
    #[prost(message, optional, tag = "5")]
    pub(crate) spec: Option<SandboxSpec>,
    /// The pod's name for its machine.
    #[prost(string, tag = "6")]
    pub(crate) hostname: String,
}

/// What a sandbox got that goes with the kernel.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SandboxRun {
    /// The first is the one to be told.
    #[prost(string, repeated, tag = "1")]
    pub(crate) addresses: Vec<String>,
    /// Somebody has begun to stop it: it is not ready any more, whatever its monitor says.
    #[prost(bool, tag = "2")]
    pub(crate) is_stopped: bool,
    /// What restoring and taking down its network need, in the network's words.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) network: Vec<u8>,
}

/// A container as it was asked for and as it is launched.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerSpec {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) sandbox: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) config: Option<cri::ContainerConfig>,
    /// In nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub(crate) created_at: i64,
    #[prost(message, optional, tag = "5")]
    pub(crate) launch: Option<LaunchSpec>,
    /// The image's id.
    #[prost(string, tag = "6")]
    pub(crate) image_id: String,
    /// A name of the image with a digest, where it has one; otherwise its id.
    #[prost(string, tag = "7")]
    pub(crate) image_ref: String,
    /// A name of the image with a tag, where it has one; otherwise what was asked for.
    #[prost(string, tag = "8")]
    pub(crate) image_name: String,
    /// Layers that it uses, by their names in the store.
    #[prost(string, repeated, tag = "9")]
    pub(crate) layers: Vec<String>,
    /// The signal that asks it to end.
    #[prost(int32, tag = "10")]
    pub(crate) stop_signal: i32,
    /// The file of its output; empty: none.
    #[prost(string, tag = "11")]
    pub(crate) log_path: String,
}

/// Who a container's first process was when it began, as the container sees it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct UserRecord {
    #[prost(uint32, tag = "1")]
    pub(crate) uid: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) gid: u32,
    #[prost(uint32, repeated, tag = "3")]
    pub(crate) groups: Vec<u32>,
}

impl SandboxRun {
    pub(crate) fn new(connection: &Connection, is_stopped: bool) -> Self {
        let addresses = connection.addresses.iter().map(ToString::to_string).collect();
        Self { addresses, is_stopped, network: connection.record.clone() }
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection {
            addresses: self.addresses.iter().filter_map(|it| it.parse().ok()).collect(),
            record: self.network.clone(),
        }
    }
}

impl SandboxRecord {
    pub(crate) fn config(&self) -> cri::PodSandboxConfig {
        self.config.clone().unwrap_or_default()
    }

    /// The name that no other sandbox has at the same time.
    pub(crate) fn name(&self) -> String {
        let metadata = self.config.as_ref().and_then(|it| it.metadata.clone()).unwrap_or_default();
        sandbox_name(&metadata)
    }
}

impl ContainerSpec {
    pub(crate) fn config(&self) -> cri::ContainerConfig {
        self.config.clone().unwrap_or_default()
    }

    /// The name that no other container has at the same time.
    pub(crate) fn name(&self) -> String {
        let metadata = self.config.as_ref().and_then(|it| it.metadata.clone()).unwrap_or_default();
        container_name(&metadata, &self.sandbox)
    }
}

/// Pods are told apart by name, namespace, uid and attempt.
pub(crate) fn sandbox_name(metadata: &cri::PodSandboxMetadata) -> String {
    let cri::PodSandboxMetadata { name, uid, namespace, attempt } = metadata;
    format!("{name}_{namespace}_{uid}_{attempt}")
}

/// Containers of a sandbox are told apart by name and attempt.
pub(crate) fn container_name(metadata: &cri::ContainerMetadata, sandbox: &str) -> String {
    format!("{}_{sandbox}_{}", metadata.name, metadata.attempt)
}
