//! What the service calls, and which of the two networks does it.
//!
//! A configuration of CNI in its directory means plugins, for sandboxes made while it is there; a sandbox's attachment
//! says who made it, and that one takes it down.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;

use thiserror::Error;
use tokio::task::spawn_blocking;

use crate::attachment::{Attachment, HostPort, Maker};
use crate::cni::{Cni, CniError, CniSettings};
use crate::netlink::route::Counters;
use crate::netlink::socket::NetlinkError;
use crate::plan::bandwidth::BandwidthError;
use crate::plan::pool::PoolError;
use crate::plan::ports::PortError;
use crate::plan::range::Range;
use crate::run::{self, Handle};

/// What a node's network is like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What tells this network's links and rules from those of another on the same machine; the usual one is `ferrolet`.
    pub name: String,
    /// The ranges of pods' addresses; at most one of each family. Empty until the cluster says.
    pub pod_ranges: Vec<Range>,
    /// Where else pods go under their own addresses: the pods of other nodes, for instance.
    pub unmasked: Vec<Range>,
    /// Plugins.
    pub cni: CniSettings,
}

/// A sandbox that wants a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupRequest {
    /// The sandbox's id: hexadecimal digits.
    pub sandbox: String,
    /// The pod's namespace, in the sense of Kubernetes.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid.
    pub uid: String,
    /// Ports of the node that lead to the pod. CRI's mappings without a host port are left out.
    pub ports: Vec<HostPort>,
    /// The sandbox's annotations, for bandwidth.
    pub annotations: BTreeMap<String, String>,
}

/// What [`PodNetwork::restore`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Sandboxes whose link is gone: they have no network any more and are not ready.
    pub lost: Vec<String>,
    /// Links that no record names; they were removed.
    pub removed_links: Vec<String>,
    /// How many elements of the packet filter no record names; they were removed.
    pub removed_elements: usize,
    /// Sandboxes of plugins that no record names; they were taken down.
    pub removed_attachments: Vec<String>,
}

/// Whether sandboxes can be connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// They can.
    Ready,
    /// They cannot, and this is why.
    NotReady(String),
}

/// A sandbox that was not connected; nothing of it is left behind.
#[derive(Debug, Error)]
pub enum SetupError {
    /// There is no address.
    #[error(transparent)]
    Address(#[from] PoolError),
    /// A host port cannot be had.
    #[error(transparent)]
    Port(#[from] PortError),
    /// An annotation is wrong.
    #[error(transparent)]
    Bandwidth(#[from] BandwidthError),
    /// It has a network.
    #[error("sandbox {0} has a network already")]
    Twice(String),
    /// The kernel refused.
    #[error("connect pod")]
    Kernel(#[from] NetlinkError),
    /// A plugin refused.
    #[error("connect pod by CNI")]
    Cni(#[from] CniError),
    /// The network's thread is gone.
    #[error("the network has stopped")]
    Stopped,
}

/// A sandbox that was not disconnected, or records that were not restored. Trying again is right.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// The kernel refused.
    #[error("change network")]
    Kernel(#[from] NetlinkError),
    /// A plugin refused.
    #[error("change network by CNI")]
    Cni(#[from] CniError),
    /// The network's thread is gone.
    #[error("the network has stopped")]
    Stopped,
}

/// An answer that takes its time.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The network of a node's pods, as the service sees it.
pub trait PodNetwork: Send + Sync + fmt::Debug {
    /// Makes what there is what these records say; once, before anything else.
    fn restore(&self, records: Vec<Attachment>) -> Answer<'_, Result<Restored, NetworkError>>;

    /// Connects a sandbox.
    fn setup(
        &self,
        request: SetupRequest,
        namespace: OwnedFd,
    ) -> Answer<'_, Result<Attachment, SetupError>>;

    /// Disconnects a sandbox, whether its namespace is there or not. Again is no error.
    fn teardown(&self, attachment: Attachment) -> Answer<'_, Result<(), NetworkError>>;

    /// Whether sandboxes can be connected now.
    fn status(&self) -> Answer<'_, Status>;

    /// Says which addresses pods have from now on.
    fn set_ranges(&self, ranges: Vec<Range>) -> Answer<'_, Result<(), NetworkError>>;

    /// What went through `eth0` of each sandbox that the built-in network connected.
    fn usage(&self) -> Answer<'_, Result<BTreeMap<String, Counters>, NetworkError>>;
}

/// The real one; a cheap handle.
#[derive(Clone, Debug)]
pub struct Network {
    built_in: Handle,
    cni: Arc<Cni>,
}

impl Network {
    /// Starts the thread that changes the kernel's network, in the caller's network namespace.
    ///
    /// # Errors
    ///
    /// When there is no thread to be had.
    pub fn start(settings: Settings) -> std::io::Result<Self> {
        let cni = Arc::new(Cni::new(settings.cni));
        let built_in = run::start(&settings.name, settings.pod_ranges, settings.unmasked)?;
        Ok(Self { built_in, cni })
    }

    /// Takes everything away that the built-in network made for all pods together; for a node that gives up its work.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub async fn remove(&self) -> Result<(), NetworkError> {
        Ok(self.built_in.call(|it| it.routed()?.remove()).await.ok_or(NetworkError::Stopped)??)
    }

    /// Asks the plugins whether a sandbox's network is as they made it; the built-in network is always.
    ///
    /// # Errors
    ///
    /// What the first plugin that is not content says.
    pub async fn check(&self, attachment: &Attachment) -> Result<(), NetworkError> {
        if attachment.maker() == Maker::BuiltIn {
            return Ok(());
        }
        let (cni, sandbox) = (Arc::clone(&self.cni), attachment.sandbox.clone());
        let checked = spawn_blocking(move || cni.check(&sandbox)).await;
        Ok(checked.map_err(|_| NetworkError::Stopped)??)
    }

    async fn has_cni(&self) -> Result<bool, CniError> {
        let cni = Arc::clone(&self.cni);
        spawn_blocking(move || cni.configuration().map(|it| it.is_some()))
            .await
            .unwrap_or(Ok(false))
    }

    async fn restore_all(&self, records: Vec<Attachment>) -> Result<Restored, NetworkError> {
        let (built_in, by_cni): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|it| it.maker() == Maker::BuiltIn);
        let cni = Arc::clone(&self.cni);
        let named = by_cni.into_iter().map(|it| it.sandbox).collect();
        let removed = spawn_blocking(move || cni.collect(&named)).await;
        let removed_attachments = removed.map_err(|_| NetworkError::Stopped)??;
        // A node of plugins has no rules and addresses of ours.
        if built_in.is_empty() && self.has_cni().await.unwrap_or(false) {
            return Ok(Restored { removed_attachments, ..Restored::default() });
        }
        let restored = self.built_in.call(|it| it.restore(built_in)).await;
        let restored = restored.ok_or(NetworkError::Stopped)??;
        Ok(Restored { removed_attachments, ..restored })
    }

    async fn connect(
        &self,
        request: SetupRequest,
        namespace: OwnedFd,
    ) -> Result<Attachment, SetupError> {
        if self.has_cni().await? {
            let cni = Arc::clone(&self.cni);
            let added = spawn_blocking(move || cni.add(&request, namespace.as_fd())).await;
            return added.map_err(|_| SetupError::Stopped)?;
        }
        let work = move |it: &mut run::Worker| it.routed()?.setup(&request, namespace.as_fd());
        self.built_in.call(work).await.ok_or(SetupError::Stopped)?
    }

    async fn disconnect(&self, attachment: Attachment) -> Result<(), NetworkError> {
        match attachment.maker() {
            Maker::Cni => {
                let cni = Arc::clone(&self.cni);
                let deleted = spawn_blocking(move || cni.delete(&attachment.sandbox)).await;
                Ok(deleted.map_err(|_| NetworkError::Stopped)??)
            }
            Maker::BuiltIn => {
                Ok(self.built_in.teardown(attachment).await.ok_or(NetworkError::Stopped)??)
            }
        }
    }

    async fn state(&self) -> Status {
        match self.has_cni().await {
            Ok(true) => Status::Ready,
            Err(error) => Status::NotReady(chain(&error)),
            Ok(false) => {
                let asked = self.built_in.call(run::Worker::trouble).await;
                match asked.unwrap_or_else(|| Some(NetworkError::Stopped.to_string())) {
                    None => Status::Ready,
                    Some(why) => Status::NotReady(why),
                }
            }
        }
    }
}

/// An error with all its reasons.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        text.push_str(": ");
        text.push_str(&reason.to_string());
        source = reason.source();
    }
    text
}

impl PodNetwork for Network {
    fn restore(&self, records: Vec<Attachment>) -> Answer<'_, Result<Restored, NetworkError>> {
        Box::pin(self.restore_all(records))
    }

    fn setup(
        &self,
        request: SetupRequest,
        namespace: OwnedFd,
    ) -> Answer<'_, Result<Attachment, SetupError>> {
        Box::pin(self.connect(request, namespace))
    }

    fn teardown(&self, attachment: Attachment) -> Answer<'_, Result<(), NetworkError>> {
        Box::pin(self.disconnect(attachment))
    }

    fn status(&self) -> Answer<'_, Status> {
        Box::pin(self.state())
    }

    fn set_ranges(&self, ranges: Vec<Range>) -> Answer<'_, Result<(), NetworkError>> {
        Box::pin(async move {
            let set = self.built_in.call(|it| it.set_ranges(ranges)).await;
            Ok(set.ok_or(NetworkError::Stopped)??)
        })
    }

    fn usage(&self) -> Answer<'_, Result<BTreeMap<String, Counters>, NetworkError>> {
        Box::pin(async move {
            let used = self.built_in.call(run::Worker::usage).await;
            Ok(used.ok_or(NetworkError::Stopped)??)
        })
    }
}
