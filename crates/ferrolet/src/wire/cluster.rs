//! A node of a cluster: everything that talks to the API server, wired.
//!
//! ```text
//!  Joining ─► Clients ─┬─ work ──────► watches (pods, node, services, classes), status, mirrors, objects, tokens
//!                      ├─ events ────► event writer
//!                      └─ heartbeat ─► lease, node status
//! ```

use std::{collections::BTreeSet, io, path::Path, sync::Arc, time::Duration};

use ferrolet_cluster::{
    api::{Clients, NodeApi, Pace},
    client::Rate,
    driver_periods,
    events::{self, EventWriter},
    kept::Kept,
    kubeconfig::ReadFile,
    lease::{LeaseKeeper, LeasePlan},
    objects::{Objects, Strategy},
    pods_source,
    reviews::ApiReviews,
    single::{self, Found},
    storage::ApiStorage,
    tokens::Tokens,
};
use ferrolet_config::{Loaded, config::ChangeDetection};
use ferrolet_ports::{
    Clock, ClusterApi, ClusterLookups, ClusterObjects, Events, Reviews, Runtime, StatusSink,
    StorageObjects,
};
use ferrolet_report::{
    mirror::{self, MirrorDoors, StaticPods, Translations},
    node::{self, NodeDoors},
    pod_status::{self, StatusReporter},
};
use ferrolet_sources::offline::Offline;
use ferrolet_types::{PodUid, SourceUpdate, pod::PodView as _};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    node::v1::RuntimeClass,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    join::Joining, node_facts::NodeDescription, node_views::NodeViews, serving::Signer,
    statics::Statics,
};

/// Statuses written at the same time.
const STATUS_WRITERS: usize = 8;
/// How old a cached object may be before the node's own annotation says otherwise.
const CACHE_AGE: Duration = Duration::from_secs(60);

/// The annotation by which the cluster says how old cached objects may become.
const TIME_TO_LIVE: &str = "node.alpha.kubernetes.io/ttl";

/// A node that has a cluster.
pub(super) struct Cluster {
    joining: Joining,
    clients: Clients,
    api: Arc<dyn ClusterApi>,
    event_writer: EventWriter,
    services: Kept<Service>,
    classes: Kept<RuntimeClass>,
    reporter: Arc<StatusReporter>,
    static_pods: watch::Receiver<StaticPods>,
    known: watch::Sender<Option<Arc<Node>>>,
    translations: watch::Sender<Translations>,
    node_name: String,
    clock: Arc<dyn Clock>,
    offline: Option<Offline>,
    /// Where events go.
    pub(super) events: Arc<dyn Events>,
    /// What pods refer to, and its changes.
    pub(super) objects: Arc<Objects>,
    /// What pods refer to, as whoever starts them asks for it.
    pub(super) pod_objects: Arc<dyn ClusterObjects>,
    /// Services and runtime classes.
    pub(super) lookups: Arc<dyn ClusterLookups>,
    /// Static pods pass through here.
    pub(super) statics: Arc<Statics>,
    /// Where statuses go.
    pub(super) sink: Arc<dyn StatusSink>,
}

/// The files that a kubeconfig names.
pub(super) struct NodeDisk;

impl ReadFile for NodeDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
}

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

impl Cluster {
    /// Reads the kubeconfig and makes everything ready; nothing is asked of the server yet.
    pub(super) fn new(
        kubeconfig: &Path,
        loaded: &Loaded,
        node_name: &str,
        clock: Arc<dyn Clock>,
        offline: Option<Offline>,
    ) -> anyhow::Result<Self> {
        let files: Arc<dyn ReadFile> = Arc::new(NodeDisk);
        let joining = Joining::read(kubeconfig, loaded, node_name, clock.clone())?;
        let clients = Clients::new(&joining.access, &joining.identity, &files, pace(loaded))?;
        let tokens = Tokens::new(clients.work.clone(), clock.clone());
        let strategy = match loaded.config.volumes.change_detection {
            ChangeDetection::Watch => Strategy::Watch,
            ChangeDetection::Cache => Strategy::Cache(CACHE_AGE),
            ChangeDetection::Get => Strategy::Get,
        };
        let (event_sink, event_writer) =
            events::channel(clients.events.clone(), node_name.to_owned(), clock.clone());
        let (services, classes) = (Kept::default(), Kept::default());
        let reporter = StatusReporter::new();
        let (statics, static_pods) = Statics::new(reporter.clone(), clock.clone());
        let objects = Arc::new(Objects::new(clients.work.clone(), tokens, strategy));
        let mut pod_objects: Arc<dyn ClusterObjects> = objects.clone();
        let mut lookups: Arc<dyn ClusterLookups> =
            Arc::new(Lookups { services: services.clone(), classes: classes.clone() });
        let mut sink: Arc<dyn StatusSink> = statics.clone();
        if let Some(offline) = &offline {
            pod_objects = offline.objects(pod_objects);
            lookups = offline.lookups(lookups);
            sink = offline.sink(sink);
        }
        Ok(Self {
            joining,
            known: watch::Sender::new(None),
            translations: watch::Sender::new(Translations::default()),
            api: Arc::new(NodeApi::new(clients.clone(), node_name.to_owned())),
            objects,
            pod_objects,
            lookups,
            sink,
            offline,
            events: Arc::new(event_sink),
            event_writer,
            services,
            classes,
            reporter,
            statics,
            static_pods,
            clients,
            node_name: node_name.to_owned(),
            clock,
        })
    }

    /// Who judges the callers of our server.
    pub(super) fn reviews(&self) -> Arc<dyn Reviews> {
        Arc::new(ApiReviews::new(self.clients.work.clone()))
    }

    /// Which of the API's identities mean which of our pods.
    pub(super) fn translations(&self) -> watch::Receiver<Translations> {
        self.translations.subscribe()
    }

    /// Claims, volumes and drivers.
    pub(super) fn storage(&self) -> Arc<dyn StorageObjects> {
        let client = self.clients.work.clone();
        let storage = ApiStorage::new(client, self.node_name.clone());
        Arc::new(storage.announcing(self.objects.announcer()))
    }

    /// Who signs a serving certificate, and for which node.
    pub(super) fn signer(&self) -> Signer {
        Signer { client: self.clients.work.clone(), known: self.known.subscribe() }
    }

    /// Joins, then runs every loop until one of them ends. Pods of the API flow into `updates`, the node into `views`.
    pub(super) async fn run(
        self,
        description: NodeDescription,
        runtime: Arc<dyn Runtime>,
        updates: mpsc::Sender<SourceUpdate>,
        views: Arc<NodeViews>,
    ) {
        let Self { clients, api, node_name, clock, reporter, events, known: known_sender, .. } =
            self;
        let mut tasks = JoinSet::new();
        if let Some(offline) = &self.offline {
            // Before anything that waits for the server.
            tasks.spawn(offline.clone().run(self.lookups, updates.clone()));
        }
        self.joining.enter(&clients, &mut tasks).await;
        let work = clients.work.clone();
        tasks.spawn(self.event_writer.run());
        tasks.spawn(self.services.run(work.clone()));
        tasks.spawn(self.classes.run(work.clone()));
        tasks.spawn(pod_status::run(reporter.clone(), api.clone(), clock.clone(), STATUS_WRITERS));
        let plan = LeasePlan { node_name: node_name.clone(), duration: description.lease_duration };
        tasks.spawn(LeaseKeeper::new(clients.heartbeat.clone(), clock.clone(), plan).run());

        // The node: watched, kept, shown to whoever needs it.
        let (found, mut seen) = watch::channel(Found::default());
        tasks.spawn(single::run::<Node>(work.clone(), None, node_name.clone(), found, || {}));
        let (watched_sender, watched) = watch::channel(None);
        tasks.spawn(async move {
            while seen.changed().await.is_ok() {
                watched_sender.send_replace(seen.borrow_and_update().here().cloned());
            }
        });
        let known = known_sender.subscribe();
        let pod_cidr = description.pod_cidr.clone();
        tasks.spawn(node::hand_over_pod_cidr(runtime, known.clone(), pod_cidr));
        tasks.spawn(show_node(known.clone(), views.clone()));
        tasks.spawn(obey_time_to_live(known.clone(), self.objects));
        tasks.spawn(node::run(NodeDoors {
            api: api.clone(),
            events,
            clock: clock.clone(),
            settings: description.settings,
            facts: description.facts,
            watched,
            known: known_sender,
            startup: description.startup,
        }));

        let (period_sender, periods) = watch::channel(driver_periods::Periods::new());
        let (follower, mut any_driver) = (work.clone(), description.drivers.clone());
        tasks.spawn(async move {
            // Most nodes have no driver that anybody would have to ask.
            if any_driver.wait_for(|it| !it.is_empty()).await.is_ok() {
                driver_periods::run(follower, period_sender).await;
            }
        });
        tasks.spawn(ferrolet_volumes::follow_limits(ferrolet_volumes::LimitDoors {
            drivers: description.plugins,
            registered: description.drivers.clone(),
            periods,
        }));
        tasks.spawn(ferrolet_volumes::publish_drivers(ferrolet_volumes::NodeDoors {
            api: api.clone(),
            storage: Arc::new(ApiStorage::new(work.clone(), node_name.clone())),
            drivers: description.drivers,
        }));

        // Pods: nothing is taken before the node is known, because admission looks at it.
        let (api_updates, from_api) = mpsc::channel(8);
        let (api_pods_sender, api_pods) = watch::channel(None);
        let mut known_first = known.clone();
        let source_clock = clock;
        tasks.spawn(async move {
            if known_first.wait_for(Option::is_some).await.is_ok() {
                pods_source::run(work, &node_name, source_clock, api_updates).await;
            }
        });
        let notes = ApiNotes {
            reporter,
            offline: self.offline,
            api_pods: api_pods_sender,
            api: api.clone(),
            views,
        };
        tasks.spawn(pass_on(from_api, updates, notes));
        tasks.spawn(mirror::run(MirrorDoors {
            api,
            statics: self.static_pods,
            api_pods,
            node: known,
            translations: self.translations,
        }));
        // Every loop lives as long as the agent: one that ends is a fault, which the caller tells.
        if let Some(Err(error)) = tasks.join_next().await {
            tracing::error!(%error, "A part of the agent that talks to the cluster failed");
        }
    }
}

fn pace(loaded: &Loaded) -> Pace {
    let config = &loaded.config;
    let limited =
        |per_second: u32, burst: u32| Rate::Limited { per_second: f64::from(per_second), burst };
    Pace {
        work: if config.api.per_second == 0 {
            Rate::Unlimited
        } else {
            limited(config.api.per_second, config.api.burst)
        },
        events: config
            .events
            .per_second
            .map_or(Rate::Unlimited, |rate| limited(rate, config.events.burst)),
        heartbeat_timeout: config.node.status_update_frequency.min(config.node.lease_duration),
    }
}

/// Who else wants to know what pods the API has.
struct ApiNotes {
    reporter: Arc<StatusReporter>,
    offline: Option<Offline>,
    api_pods: watch::Sender<Option<Vec<ferrolet_types::Pod>>>,
    api: Arc<dyn ClusterApi>,
    views: Arc<NodeViews>,
}

impl ApiNotes {
    /// Reads the node anew when the labels that are known would turn away a pod that was not there before.
    async fn settle_doubts(&self, pods: &[ferrolet_types::Pod], seen: &mut BTreeSet<PodUid>) {
        let has_doubts =
            pods.iter().any(|pod| !seen.contains(&pod.uid()) && self.views.doubts(pod));
        *seen = pods.iter().map(|pod| pod.uid()).collect();
        if has_doubts {
            match self.api.get_node().await {
                Ok(node) => self.views.show(Arc::new(node)),
                // Then the pod is judged by what is known.
                Err(error) => tracing::warn!(%error, "The node cannot be read"),
            }
        }
    }
}

/// Passes the API's pods on to the merge, and shows them to the reporter, the copies and the mirrors.
async fn pass_on(
    mut from: mpsc::Receiver<SourceUpdate>,
    to: mpsc::Sender<SourceUpdate>,
    notes: ApiNotes,
) {
    let mut seen = BTreeSet::new();
    while let Some(update) = from.recv().await {
        let pods: Vec<ferrolet_types::Pod> = update.pods.iter().map(|it| it.pod.clone()).collect();
        notes.settle_doubts(&pods, &mut seen).await;
        notes.reporter.note_api_set(&pods);
        if let Some(offline) = &notes.offline {
            offline.note_api_set(&pods);
        }
        notes.api_pods.send_replace(Some(pods));
        if to.send(update).await.is_err() {
            return;
        }
    }
    to.closed().await;
}

/// Keeps what pods see of the node equal to the API's copy.
async fn show_node(mut known: watch::Receiver<Option<Arc<Node>>>, views: Arc<NodeViews>) {
    loop {
        let node = known.borrow_and_update().clone();
        if let Some(node) = node {
            views.show(node);
        }
        if known.changed().await.is_err() {
            return;
        }
    }
}

/// Lets cached objects age as long as the cluster says: a large one asks for more patience.
async fn obey_time_to_live(mut known: watch::Receiver<Option<Arc<Node>>>, objects: Arc<Objects>) {
    loop {
        let told = known.borrow_and_update().as_ref().and_then(|node| {
            let annotations = node.metadata.annotations.as_ref()?;
            annotations.get(TIME_TO_LIVE)?.parse().ok()
        });
        if let Some(seconds) = told {
            objects.set_time_to_live(Duration::from_secs(seconds));
        }
        if known.changed().await.is_err() {
            return;
        }
    }
}
