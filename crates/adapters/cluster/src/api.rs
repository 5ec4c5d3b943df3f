//! The port [`ClusterApi`] on real clients, and the three clients of a node.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{ApiError, ClusterApi, Fut};
use ferrolet_types::{GracePeriod, Pod, PodKey, PodUid};
use k8s_openapi::api::core::v1::{Node, Pod as ApiPod};
use serde_json::Value;

use crate::{
    client::{AddressError, Client, ClientOptions, PatchKind, Place, Rate},
    kubeconfig::{Access, ReadFile},
    tls::Identity,
};

/// How long work may wait for an answer; longer than any healthy request takes.
const WORK_TIMEOUT: Duration = Duration::from_secs(30);

/// The rates of a node's clients and the limit of its heartbeat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// `kubeAPIQPS` and `kubeAPIBurst`.
    pub work: Rate,
    /// `eventRecordQPS` and `eventBurst`.
    pub events: Rate,
    /// The shorter of `nodeStatusUpdateFrequency` and the lease's duration.
    pub heartbeat_timeout: Duration,
}

/// The clients of a node: none can make another late.
#[derive(Clone)]
pub struct Clients {
    /// Watches, status, everything else.
    pub work: Client,
    /// Events alone: they are many and nobody waits for them.
    pub events: Client,
    /// Lease and node status.
    pub heartbeat: Client,
}

impl Clients {
    /// Three clients with one identity.
    pub fn new(
        access: &Access,
        identity: &Identity,
        files: &Arc<dyn ReadFile>,
        pace: Pace,
    ) -> Result<Self, AddressError> {
        let client = |rate, timeout| {
            let options = ClientOptions { rate, timeout };
            Client::new(access, identity, files, options)
        };
        Ok(Self {
            work: client(pace.work, WORK_TIMEOUT)?,
            events: client(pace.events, WORK_TIMEOUT)?,
            heartbeat: client(Rate::Unlimited, pace.heartbeat_timeout)?,
        })
    }

    /// Moves everything to new connections, after a new certificate or a change of network.
    pub fn reconnect(&self) {
        for client in [&self.work, &self.events, &self.heartbeat] {
            client.reconnect();
        }
    }
}

/// The port's requests, in this node's name.
pub struct NodeApi {
    clients: Clients,
    node_name: String,
}

impl NodeApi {
    /// For this node.
    pub fn new(clients: Clients, node_name: String) -> Self {
        Self { clients, node_name }
    }

    fn node(&self) -> Place {
        Place::one::<Node>(None, &self.node_name)
    }
}

fn pod_place(key: &PodKey) -> Place {
    Place::one::<ApiPod>(Some(&key.namespace), &key.name)
}

impl ClusterApi for NodeApi {
    fn get_pod<'a>(&'a self, key: &'a PodKey) -> Fut<'a, Result<Pod, ApiError>> {
        Box::pin(async move {
            let pod = self.clients.work.get::<ApiPod>(&pod_place(key)).await?;
            Ok(Arc::new(pod))
        })
    }

    fn create_pod<'a>(&'a self, pod: &'a Pod) -> Fut<'a, Result<Pod, ApiError>> {
        Box::pin(async move {
            let place = Place::all::<ApiPod>(pod.metadata.namespace.as_deref());
            let created = self.clients.work.create::<_, ApiPod>(&place, &**pod);
            Ok(Arc::new(created.await?))
        })
    }

    fn patch_pod_status<'a>(
        &'a self,
        key: &'a PodKey,
        patch: &'a Value,
    ) -> Fut<'a, Result<Pod, ApiError>> {
        Box::pin(async move {
            let place = pod_place(key).under("status");
            let kind = PatchKind::StrategicMerge;
            let patched = self.clients.work.patch::<ApiPod>(&place, kind, patch);
            Ok(Arc::new(patched.await?))
        })
    }

    fn delete_pod<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
        grace: Option<GracePeriod>,
    ) -> Fut<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let grace = grace.map(GracePeriod::as_secs);
            let place = pod_place(key);
            self.clients.work.delete(&place, Some(uid), grace).await
        })
    }

    fn get_node(&self) -> Fut<'_, Result<Node, ApiError>> {
        Box::pin(async move { self.clients.heartbeat.get(&self.node()).await })
    }

    fn create_node<'a>(&'a self, node: &'a Node) -> Fut<'a, Result<Node, ApiError>> {
        Box::pin(async move {
            let place = Place::all::<Node>(None);
            self.clients.work.create(&place, node).await
        })
    }

    fn patch_node<'a>(&'a self, patch: &'a Value) -> Fut<'a, Result<Node, ApiError>> {
        Box::pin(async move {
            let kind = PatchKind::StrategicMerge;
            self.clients.work.patch(&self.node(), kind, patch).await
        })
    }

    fn patch_node_status<'a>(&'a self, patch: &'a Value) -> Fut<'a, Result<Node, ApiError>> {
        Box::pin(async move {
            let place = self.node().under("status");
            let kind = PatchKind::StrategicMerge;
            self.clients.heartbeat.patch(&place, kind, patch).await
        })
    }

    fn reconnect(&self) {
        self.clients.heartbeat.reconnect();
    }
}
