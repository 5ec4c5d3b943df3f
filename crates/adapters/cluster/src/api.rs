//! The port [`ClusterApi`] on real clients, and the four clients of a node.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{ApiError, ClusterApi, Fut, Pair, ReadFile};
use ferrolet_types::{GracePeriod, Pod, PodKey, PodUid};
use k8s_openapi::api::core::v1::{Node, Pod as ApiPod};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    client::{AddressError, Client, ClientOptions, PatchKind, Place, Rate},
    kubeconfig::Access,
    tls::Identity,
};

/// How long work may wait for an answer; longer than any healthy request takes.
const WORK_TIMEOUT: Duration = Duration::from_secs(30);

/// How often the server may be asked about callers. Upstream has no bound here, and callers' tokens
/// cost a question each; answers are kept, so that honest callers ask seldom.
const REVIEWS: Rate = Rate::Limited { per_second: 50.0, burst: 100 };

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
    /// Questions about callers of our own server, who may be anybody: they spend nothing that the
    /// node needs.
    pub reviews: Client,
}

impl Clients {
    /// Four clients with one identity.
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
            reviews: client(REVIEWS, WORK_TIMEOUT)?,
        })
    }

    /// Shows every certificate that comes and moves to new connections with it. Runs until no more
    /// can come.
    pub async fn adopt(self, identity: Identity, mut pairs: watch::Receiver<Option<Pair>>) {
        while pairs.changed().await.is_ok() {
            let pair = pairs.borrow_and_update().clone();
            let Some(pair) = pair else { continue };
            match identity.replace(pair.certificate.as_bytes(), pair.key.as_bytes()) {
                Ok(()) => self.reconnect(),
                Err(error) => tracing::error!(%error, "new certificate cannot be used"),
            }
        }
    }

    /// Moves everything to new connections, after a new certificate or a change of network.
    pub fn reconnect(&self) {
        for client in [&self.work, &self.events, &self.heartbeat, &self.reviews] {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ferrolet_ports::{ApiErrorKind, Clock as _};
    use serde_json::json;

    use super::*;
    use crate::{
        certificates::self_signed,
        fake::{FakeApi, TokioClock},
    };

    fn clients(api: &FakeApi) -> Clients {
        Clients {
            work: api.client(),
            events: api.client(),
            heartbeat: api.client(),
            reviews: api.client(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_port_asks_in_the_nodes_name() {
        let fake = FakeApi::new();
        let api = NodeApi::new(clients(&fake), "me".to_owned());
        assert!(api.get_node().await.unwrap_err().is_not_found());
        let node = json!({"metadata": {"name": "me"}});
        api.create_node(&serde_json::from_value(node).unwrap()).await.unwrap();
        api.patch_node(&json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
        api.patch_node_status(&json!({"status": {"phase": "x"}})).await.unwrap();
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": []}});
        let pod: Pod = Arc::new(serde_json::from_value(pod).unwrap());
        api.create_pod(&pod).await.unwrap();
        let key = PodKey::new("n", "p");
        api.patch_pod_status(&key, &json!({"status": {"phase": "Running"}})).await.unwrap();
        assert_eq!(api.get_pod(&key).await.unwrap().metadata.uid.as_deref(), Some("u"));
        let other = api.delete_pod(&key, &PodUid::new("v"), None).await.unwrap_err();
        assert_eq!(other.kind, ApiErrorKind::Conflict);
        let grace = Some(GracePeriod::from_secs(0));
        api.delete_pod(&key, &PodUid::new("u"), grace).await.unwrap();
        let expected = [
            "GET /api/v1/nodes/me",
            "POST /api/v1/nodes",
            "PATCH /api/v1/nodes/me",
            "PATCH /api/v1/nodes/me/status",
            "POST /api/v1/namespaces/n/pods",
            "PATCH /api/v1/namespaces/n/pods/p/status",
            "GET /api/v1/namespaces/n/pods/p",
            "DELETE /api/v1/namespaces/n/pods/p",
            "DELETE /api/v1/namespaces/n/pods/p",
        ];
        assert_eq!(fake.lines(), expected);
        let body = &fake.seen()[8].body;
        assert_eq!(body["gracePeriodSeconds"], 0);
        assert_eq!(body["preconditions"]["uid"], "u");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_certificate_means_new_connections() {
        let fake = FakeApi::new();
        let (clients, identity) = (clients(&fake), Identity::default());
        let (sender, pairs) = watch::channel(None);
        let task = tokio::spawn(clients.clone().adopt(identity.clone(), pairs));
        let place = Place::raw("/healthz");
        let _ = clients.work.get_text(&place).await;
        let pair = self_signed("me", &BTreeSet::new(), TokioClock.now()).unwrap();
        sender.send_replace(Some(pair));
        drop(sender);
        task.await.unwrap();
        assert!(rustls::client::ResolvesClientCert::has_certs(&identity));
        let _ = clients.work.get_text(&place).await;
        assert_eq!(fake.n_dials(), 2);
    }
}
