//! The door to a pod's network: what the service asks of whoever connects pods.
//!
//! `crates/runtime/network` is behind it ([`super::connector`]); [`LoopbackOnly`] stands in where nothing connects pods. Owned by the
//! service, which calls `set_up` once for a sandbox with a network namespace of its own, `tear_down` as often as
//! it takes, and `restore` once after every start, before the socket is opened. Refuses: CRI's types, and the
//! node's own network, which needs no door.

use std::{collections::BTreeMap, net::IpAddr, os::fd::OwnedFd};

use futures::future::BoxFuture;

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port of the node that leads into the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Of which protocol.
    pub protocol: PortProtocol,
    /// The address on the node; none: all of them.
    pub host_ip: Option<IpAddr>,
    /// The port on the node.
    pub host_port: u16,
    /// The port in the pod.
    pub container_port: u16,
}

/// A sandbox as its network knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxIdentity {
    /// The sandbox's id.
    pub id: String,
    /// The pod's name.
    pub name: String,
    /// The pod's namespace, of Kubernetes.
    pub namespace: String,
    /// The pod's uid.
    pub uid: String,
    /// Ports of the node that lead into the pod.
    pub host_ports: Vec<HostPort>,
    /// The pod's annotations: bandwidth is asked for here.
    pub annotations: BTreeMap<String, String>,
}

/// What a sandbox was given. It goes into the sandbox's record, and comes back unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The addresses, the first the one to be told.
    pub addresses: Vec<IpAddr>,
    /// All that restoring and taking down need, in the words of whoever connected it.
    pub record: Vec<u8>,
}

/// Whether pods can be connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkCondition {
    /// Whether they can.
    pub is_ready: bool,
    /// Why not, in one word.
    pub reason: String,
    /// Why not, in a sentence.
    pub message: String,
}

impl NetworkCondition {
    /// Pods cannot be connected, and this is why; kubelets show the reason.
    pub(super) fn not_ready(message: String) -> Self {
        Self { is_ready: false, reason: "NetworkPluginNotReady".to_owned(), message }
    }
}

/// A pod that was not connected, or not taken down.
#[derive(Debug, thiserror::Error)]
#[error("{attempt}")]
pub struct NetworkError {
    /// What was attempted.
    pub attempt: String,
    /// Why not.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Whoever connects pods. Every call may be dropped at any await and made again.
pub trait SandboxNetwork: Send + Sync {
    /// Connects a sandbox, whose namespace has loopback up and nothing else. When it fails nothing is left of it.
    fn set_up(
        &self,
        sandbox: SandboxIdentity,
        namespace: OwnedFd,
    ) -> BoxFuture<'_, Result<Connection, NetworkError>>;

    /// Takes everything back that a sandbox was given. What is not there is fine, and so is a namespace that is gone.
    fn tear_down(&self, connection: Connection) -> BoxFuture<'_, Result<(), NetworkError>>;

    /// After a start: exactly these are connected. Whatever else an earlier start left is removed, and what they
    /// lack on the node is made again.
    fn restore(&self, connections: Vec<Connection>) -> BoxFuture<'_, Result<(), NetworkError>>;

    /// The addresses that pods of this node are given from now on, as the cluster says: a list of ranges with commas.
    fn set_pod_cidr<'a>(&'a self, cidr: &'a str) -> BoxFuture<'a, Result<(), NetworkError>>;

    /// Whether pods can be connected.
    fn condition(&self) -> BoxFuture<'_, NetworkCondition>;
}

/// Nobody connects pods: they have loopback, and the runtime says that its network is not ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopbackOnly;

impl SandboxNetwork for LoopbackOnly {
    fn set_up(
        &self,
        _: SandboxIdentity,
        _: OwnedFd,
    ) -> BoxFuture<'_, Result<Connection, NetworkError>> {
        Box::pin(async { Ok(Connection::default()) })
    }

    fn tear_down(&self, _: Connection) -> BoxFuture<'_, Result<(), NetworkError>> {
        Box::pin(async { Ok(()) })
    }

    fn restore(&self, _: Vec<Connection>) -> BoxFuture<'_, Result<(), NetworkError>> {
        Box::pin(async { Ok(()) })
    }

    fn set_pod_cidr<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), NetworkError>> {
        Box::pin(async { Ok(()) })
    }

    fn condition(&self) -> BoxFuture<'_, NetworkCondition> {
        let message = "pods with a network of their own have loopback only: nothing connects them; \
                       pods on the node's network work";
        Box::pin(async { NetworkCondition::not_ready(message.to_owned()) })
    }
}
