//! The door to a pod's network: what the service asks of whoever connects pods.
//!
//! `crates/runtime/network` is behind it; [`LoopbackOnly`] stands in where nothing connects pods. Owned by the
//! service, which calls `set_up` once for a sandbox with a network namespace of its own, `tear_down` as often as
//! it takes, and `restore` once after every start, before the socket is opened. Refuses: CRI's types, and the
//! node's own network, which needs no door.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    os::fd::{BorrowedFd, OwnedFd},
};

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

/// A sandbox that is connected.
#[derive(Debug)]
pub struct ConnectedSandbox {
    /// Which.
    pub identity: SandboxIdentity,
    /// The addresses that it was given, the first the one to be told.
    pub addresses: Vec<IpAddr>,
    /// Its network namespace; none: its monitor does not answer at the moment.
    pub namespace: Option<OwnedFd>,
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
    /// Connects a sandbox, whose namespace has loopback up and nothing else; the addresses that it got. When it
    /// fails nothing is left of it.
    fn set_up<'a>(
        &'a self,
        sandbox: &'a SandboxIdentity,
        namespace: BorrowedFd<'a>,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, NetworkError>>;

    /// Takes everything back that a sandbox was given. What is not there is fine. The namespace may be gone.
    fn tear_down<'a>(
        &'a self,
        sandbox: &'a SandboxIdentity,
        namespace: Option<BorrowedFd<'a>>,
    ) -> BoxFuture<'a, Result<(), NetworkError>>;

    /// After a start: exactly these sandboxes are connected. Whatever else an earlier start left is removed, and
    /// whatever they lack is made again.
    fn restore<'a>(
        &'a self,
        sandboxes: &'a [ConnectedSandbox],
    ) -> BoxFuture<'a, Result<(), NetworkError>>;

    /// The ids of sandboxes that have something set up, for those who look for leftovers.
    fn list(&self) -> BoxFuture<'_, Result<Vec<String>, NetworkError>>;

    /// The addresses that pods of this node are given from now on, as the cluster says: a list of ranges with commas.
    fn set_pod_cidr<'a>(&'a self, cidr: &'a str) -> BoxFuture<'a, Result<(), NetworkError>>;

    /// Whether pods can be connected.
    fn condition(&self) -> NetworkCondition;
}

/// Nobody connects pods: they have loopback, and the runtime says that its network is not ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopbackOnly;

impl SandboxNetwork for LoopbackOnly {
    fn set_up<'a>(
        &'a self,
        _: &'a SandboxIdentity,
        _: BorrowedFd<'a>,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, NetworkError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn tear_down<'a>(
        &'a self,
        _: &'a SandboxIdentity,
        _: Option<BorrowedFd<'a>>,
    ) -> BoxFuture<'a, Result<(), NetworkError>> {
        Box::pin(async { Ok(()) })
    }

    fn restore<'a>(&'a self, _: &'a [ConnectedSandbox]) -> BoxFuture<'a, Result<(), NetworkError>> {
        Box::pin(async { Ok(()) })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<String>, NetworkError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn set_pod_cidr<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), NetworkError>> {
        Box::pin(async { Ok(()) })
    }

    fn condition(&self) -> NetworkCondition {
        NetworkCondition {
            is_ready: false,
            reason: "NetworkPluginNotReady".to_owned(),
            message: "pods with a network of their own have loopback only: nothing connects them; \
                      pods on the node's network work"
                .to_owned(),
        }
    }
}
