//! A node's place in its cluster: everything of this crate that a node needs, put together.
//!
//! ```text
//!  Joining ─► Clients ─┬─ work ──────► watches (pods, node, services, classes), objects, tokens, statuses
//!                      ├─ events ────► event writer
//!                      └─ heartbeat ─► lease, node status
//! ```
//!
//! Nothing is asked of the server before its [`Part`] runs, and but for joining itself nothing
//! before the node has joined.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_node::NodeState;
use ferrolet_ports::{
    CertStore, ClaimObjects, Clock, ClusterApi, ClusterFeeds, ClusterLookups, ClusterObjects,
    CredentialFiles, Events, Fut, ObjectChange, Part, Reviews, StorageObjects,
};
use ferrolet_types::SourceUpdate;
use k8s_openapi::api::{
    core::v1::{Node, Service},
    node::v1::RuntimeClass,
};
use tokio::{
    sync::{broadcast, mpsc, watch},
    task::JoinSet,
};

use crate::{
    api::{Clients, NodeApi, Pace},
    certificates::{CertificateMetrics, Signer},
    claims::ApiClaims,
    client::Rate,
    driver_periods,
    events::{self, EventWriter},
    joining::{JoinError, JoinSettings, Joining},
    kept::Kept,
    lease::{LeaseKeeper, LeasePlan},
    objects::{Objects, Strategy},
    pods_source,
    reviews::ApiReviews,
    single::{self, Found},
    storage::ApiStorage,
    tokens::Tokens,
};

/// How the node is a part of its cluster.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// The node's name.
    pub node_name: String,
    /// How it joins.
    pub joining: JoinSettings,
    /// How much it asks in a second.
    pub pace: Pace,
    /// How changes of objects are noticed.
    pub strategy: Strategy,
    /// How long the node counts as alive without a word.
    pub lease_duration: Duration,
}

/// What the cluster's adapter needs of the node.
pub struct ClusterDoors {
    /// Kubeconfigs, certificates, tokens.
    pub files: Arc<dyn CredentialFiles>,
    /// The certificate directory.
    pub certificates: Arc<dyn CertStore>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// The cluster as this node sees it.
pub struct NodeCluster {
    node_name: String,
    clients: Clients,
    objects: Arc<Objects>,
    lookups: Arc<Lookups>,
    events: Arc<dyn Events>,
    joined: watch::Receiver<bool>,
    clock: Arc<dyn Clock>,
}

/// What runs for as long as the node is in the cluster.
struct Membership {
    joining: Joining,
    clients: Clients,
    event_writer: EventWriter,
    lookups: Arc<Lookups>,
    lease: LeaseKeeper,
    joined: watch::Sender<bool>,
}

/// Services and runtime classes.
#[derive(Default)]
struct Lookups {
    services: Kept<Service>,
    classes: Kept<RuntimeClass>,
}

impl ClusterLookups for Lookups {
    fn services(&self) -> Option<Vec<Arc<Service>>> {
        self.services.is_synced().then(|| self.services.all())
    }

    fn runtime_handler(&self, class: &str) -> Option<String> {
        self.classes.handler(class)
    }
}

impl NodeCluster {
    /// Reads the kubeconfig and makes everything ready; nothing is asked of the server yet.
    pub fn build(
        settings: ClusterSettings,
        doors: ClusterDoors,
    ) -> Result<(Arc<Self>, Part), JoinError> {
        let ClusterSettings { node_name, joining, pace, strategy, lease_duration } = settings;
        let ClusterDoors { files, certificates, clock } = doors;
        let joining = Joining::read(joining, &node_name, (files, certificates), clock.clone())?;
        let clients = Clients::new(&joining.access, &joining.identity, &joining.files(), pace)?;
        let tokens = Tokens::new(clients.work.clone(), clock.clone());
        let objects = Arc::new(Objects::new(clients.work.clone(), tokens, strategy));
        let (event_sink, event_writer) =
            events::channel(clients.events.clone(), node_name.clone(), clock.clone());
        let lookups = Arc::new(Lookups::default());
        let (joined_sender, joined) = watch::channel(false);
        let plan = LeasePlan { node_name: node_name.clone(), duration: lease_duration };
        let membership = Membership {
            joining,
            clients: clients.clone(),
            event_writer,
            lookups: lookups.clone(),
            lease: LeaseKeeper::new(clients.heartbeat.clone(), clock.clone(), plan),
            joined: joined_sender,
        };
        let part = Part::new("cluster")
            .with_metrics(CertificateMetrics::new(clock.clone()))
            .with_loop(membership.keep());
        let events = Arc::new(event_sink);
        let cluster = Self { node_name, clients, objects, lookups, events, joined, clock };
        Ok((Arc::new(cluster), part))
    }

    /// True once the node may speak in its own name.
    pub fn joined(&self) -> watch::Receiver<bool> {
        self.joined.clone()
    }

    /// What the loops that report ask for.
    pub fn api(&self) -> Arc<dyn ClusterApi> {
        Arc::new(NodeApi::new(self.clients.clone(), self.node_name.clone()))
    }

    /// Sends events at another rate from now on.
    pub fn set_event_rate(&self, rate: Rate) {
        self.clients.events.set_rate(rate);
    }

    /// Where events go.
    pub fn events(&self) -> Arc<dyn Events> {
        self.events.clone()
    }

    /// What pods refer to.
    pub fn objects(&self) -> Arc<dyn ClusterObjects> {
        self.objects.clone()
    }

    /// Services and runtime classes.
    pub fn lookups(&self) -> Arc<dyn ClusterLookups> {
        self.lookups.clone()
    }

    /// Claims, volumes and drivers.
    pub fn storage(&self) -> Arc<dyn StorageObjects> {
        let storage = ApiStorage::new(self.clients.work.clone(), self.node_name.clone());
        Arc::new(storage.announcing(self.objects.announcer()))
    }

    /// Claims of dynamic resources.
    pub fn claims(&self) -> Arc<dyn ClaimObjects> {
        Arc::new(ApiClaims::new(self.clients.work.clone(), self.node_name.clone()))
    }

    /// Who judges the callers of our server.
    pub fn reviews(&self) -> Arc<dyn Reviews> {
        Arc::new(ApiReviews::new(self.clients.reviews.clone()))
    }

    /// Who signs a serving certificate for the node as the cluster knows it.
    pub fn signer(&self, node: watch::Receiver<Arc<NodeState>>) -> Signer {
        Signer { client: self.clients.work.clone(), node }
    }
}

impl Membership {
    /// Joins, and stays until a loop ends.
    async fn keep(self) {
        let mut tasks = JoinSet::new();
        self.joining.enter(&self.clients, &mut tasks).await;
        let work = self.clients.work;
        tasks.spawn(self.event_writer.run());
        tasks.spawn(self.lookups.services.clone().run(work.clone()));
        tasks.spawn(self.lookups.classes.clone().run(work));
        tasks.spawn(self.lease.run());
        self.joined.send_replace(true);
        // Every loop lives as long as the agent: one that ends is a fault, which the caller tells.
        if let Some(Err(error)) = tasks.join_next().await {
            tracing::error!(%error, "A part of the agent that talks to the cluster failed");
        }
    }
}

impl ClusterFeeds for NodeCluster {
    fn pods(&self, updates: mpsc::Sender<SourceUpdate>) -> Fut<'static, ()> {
        let (client, clock) = (self.clients.work.clone(), self.clock.clone());
        let node_name = self.node_name.clone();
        Box::pin(async move { pods_source::run(client, &node_name, clock, updates).await })
    }

    fn node(&self, seen: watch::Sender<Option<Arc<Node>>>) -> Fut<'static, ()> {
        let (found_sender, mut found) = watch::channel(Found::default());
        let (client, name) = (self.clients.work.clone(), self.node_name.clone());
        Box::pin(async move {
            let watching = single::run::<Node>(client, None, name, found_sender, || {});
            let showing = async {
                while found.changed().await.is_ok() {
                    seen.send_replace(found.borrow_and_update().here().cloned());
                }
            };
            tokio::join!(watching, showing);
        })
    }

    fn driver_periods(
        &self,
        periods: watch::Sender<BTreeMap<String, Duration>>,
    ) -> Fut<'static, ()> {
        Box::pin(driver_periods::run(self.clients.work.clone(), periods))
    }

    fn object_changes(&self) -> broadcast::Receiver<ObjectChange> {
        self.objects.changes()
    }

    fn set_object_age(&self, age: Duration) {
        self.objects.set_time_to_live(age);
    }
}
