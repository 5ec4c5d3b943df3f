//! A node of a cluster: what its parts and the API server have to say to each other.
//!
//! ```text
//!  feeds.node ─► report::node ─► NodeState ─┬─► admission, workers, mirrors       feeds.pods ─► pass_on ─► merge
//!                                           └─► age of objects, range of pods'                  ├─► report
//!                                               addresses                                       └─► copies on disk
//! ```
//!
//! Everything that speaks in the node's name waits until it has joined. Pods are taken once the
//! node is known, because admission looks at it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ferrolet_node::NodeState;
use ferrolet_node_engine::NodeHandle;
use ferrolet_ports::{
    ClaimObjects, Clock, ClusterApi, ClusterFeeds, ClusterLookups, ClusterObjects, Events, Fut,
    NodeCopies, Part, StatusSink, once_open,
};
use ferrolet_report::{
    ApiPods, Report,
    node::{self, NodeDoors, ReportSettings, Startup},
};
use ferrolet_resources::is_chosen;
use ferrolet_sources::offline::Offline;
use ferrolet_types::{
    Pod, PodUid, SourceUpdate,
    pod::{Phase, PodView as _},
};
use tokio::sync::{mpsc, watch};

use crate::{ClusterDoors, PluginDoors};

/// The annotation by which the cluster says how old cached objects may become.
const TIME_TO_LIVE: &str = "node.alpha.kubernetes.io/ttl";

/// The cluster with what the agent puts before it.
pub(crate) struct Cluster {
    doors: ClusterDoors,
    offline: Option<Offline>,
    pub(crate) report: Report,
    /// What pods refer to, as whoever starts them asks for it.
    pub(crate) objects: Arc<dyn ClusterObjects>,
    /// Services and runtime classes.
    pub(crate) lookups: Arc<dyn ClusterLookups>,
    /// Where statuses go.
    pub(crate) statuses: Arc<dyn StatusSink>,
}

/// What the cluster is told of the node.
pub(crate) struct NodeDescription {
    pub(crate) node: NodeHandle,
    pub(crate) report: ReportSettings,
    pub(crate) startup: Startup,
}

/// Who talks with the cluster.
pub(crate) struct Talkers {
    pub(crate) description: NodeDescription,
    pub(crate) updates: mpsc::Sender<SourceUpdate>,
    pub(crate) events: Arc<dyn Events>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Cluster {
    /// Puts the report and the copies of an earlier life before the cluster.
    pub(crate) async fn open(
        doors: ClusterDoors,
        node: watch::Receiver<Arc<NodeState>>,
        clock: Arc<dyn Clock>,
    ) -> (Self, Part) {
        let (report, part) = ferrolet_report::build(ferrolet_report::Doors {
            api: doors.api.clone(),
            node,
            joined: doors.joined.clone(),
            clock,
        });
        let (mut objects, mut lookups) = (doors.objects.clone(), doors.lookups.clone());
        let mut statuses = report.statuses.clone();
        let offline = match &doors.copies {
            Some(copies) => Some(Offline::open(copies.clone()).await),
            None => None,
        };
        if let Some(offline) = &offline {
            objects = offline.objects(objects);
            lookups = offline.lookups(lookups);
            statuses = offline.sink(statuses);
        }
        (Self { doors, offline, report, objects, lookups, statuses }, part)
    }

    /// What volumes need of the cluster, and the loop that follows how often drivers are asked.
    pub(crate) fn volume_doors(
        &self,
        plugins: &PluginDoors,
    ) -> (ferrolet_volumes::ClusterDoors, Part) {
        let (period_sender, periods) = watch::channel(Default::default());
        let (feeds, mut registered) = (self.doors.feeds.clone(), plugins.registered.clone());
        let following = async move {
            // Most nodes have no driver that anybody would have to ask.
            if registered.wait_for(|it| !it.is_empty()).await.is_ok() {
                feeds.driver_periods(period_sender).await;
            }
        };
        let joined = self.doors.joined.clone();
        let part = Part::new("volumes").with_loop(once_open(joined.clone(), following));
        let doors = ferrolet_volumes::ClusterDoors {
            api: self.doors.api.clone(),
            objects: self.objects.clone(),
            storage: self.doors.storage.clone(),
            changes: self.doors.feeds.object_changes(),
            periods,
            joined,
        };
        (doors, part)
    }

    /// What claims of dynamic resources need of the cluster.
    pub(crate) fn claim_doors(&self) -> (Arc<dyn ClaimObjects>, watch::Receiver<bool>) {
        (self.doors.claims.clone(), self.doors.joined.clone())
    }

    /// Puts the loops together by which node and cluster learn of each other.
    pub(crate) fn part(self, talkers: Talkers) -> Part {
        let Talkers { description, updates, events, clock } = talkers;
        let ClusterDoors { api, feeds, joined, .. } = self.doors;
        let mut part = Part::new("cluster");
        if let Some(offline) = &self.offline {
            // Before anything that waits for the server.
            part.add_loop(offline.clone().run(self.lookups, updates.clone()));
        }
        let state = description.node.subscribe();
        let copies: Arc<dyn NodeCopies> = Arc::new(description.node);
        let (watched_sender, watched) = watch::channel(None);
        let keeping = node::run(NodeDoors {
            api: api.clone(),
            events,
            clock,
            report: description.report,
            node: state.clone(),
            watched,
            copies: copies.clone(),
            startup: description.startup,
        });
        let notes = ApiNotes {
            pods: self.report.api_pods.clone(),
            offline: self.offline,
            api,
            node: state.clone(),
            copies,
        };
        let (api_updates, from_api) = mpsc::channel(8);
        let mut known_first = state.clone();
        let pods = feeds.pods(api_updates);
        let taking = async move {
            if known_first.wait_for(|node| node.object.is_some()).await.is_ok() {
                pods.await;
            }
        };
        let mut add =
            |run: Fut<'static, ()>| part.loops.push(Box::pin(once_open(joined.clone(), run)));
        add(feeds.node(watched_sender));
        add(Box::pin(keeping));
        add(Box::pin(obey_time_to_live(state, feeds)));
        add(Box::pin(taking));
        add(Box::pin(pass_on(from_api, updates, notes)));
        part
    }
}

/// Who else wants to know what pods the API has.
struct ApiNotes {
    pods: ApiPods,
    offline: Option<Offline>,
    api: Arc<dyn ClusterApi>,
    node: watch::Receiver<Arc<NodeState>>,
    copies: Arc<dyn NodeCopies>,
}

impl ApiNotes {
    /// Reads the node anew when the labels that are known would turn away a pod that was not there
    /// before.
    async fn settle_doubts(&self, pods: &[Pod], seen: &mut BTreeSet<PodUid>) {
        let state = self.node.borrow().clone();
        let has_doubts =
            pods.iter().any(|pod| !seen.contains(&pod.uid()) && is_doubtful(pod, &state));
        *seen = pods.iter().map(|pod| pod.uid()).collect();
        if has_doubts {
            match self.api.get_node().await {
                Ok(node) => self.copies.learn(Arc::new(node)),
                // Then the pod is judged by what is known.
                Err(error) => tracing::warn!(%error, "The node cannot be read"),
            }
        }
    }
}

/// Passes the API's pods on to the merge, and shows them to the report and the copies.
async fn pass_on(
    mut from: mpsc::Receiver<SourceUpdate>,
    to: mpsc::Sender<SourceUpdate>,
    notes: ApiNotes,
) {
    let mut seen = BTreeSet::new();
    while let Some(update) = from.recv().await {
        let pods: Vec<Pod> = update.pods.iter().map(|it| it.pod.clone()).collect();
        notes.settle_doubts(&pods, &mut seen).await;
        // The copy of a pod that could not be read is all that there is of it.
        if let Some(offline) = notes.offline.as_ref().filter(|_| update.unreadable.is_empty()) {
            offline.note_api_set(&pods);
        }
        notes.pods.note(pods);
        if to.send(update).await.is_err() {
            return;
        }
    }
    to.closed().await;
}

/// True when a pod would be turned away because of the node's labels, so that those had better be
/// the newest: the node may have got them a moment before it got the pod.
fn is_doubtful(pod: &Pod, node: &NodeState) -> bool {
    let is_ending =
        pod.deletion_time().is_some() || pod.api_phase().is_some_and(Phase::is_terminal);
    !is_ending && !pod.is_mirror() && !is_chosen(pod, node)
}

/// Lets cached objects age as long as the cluster says: a large one asks for more patience.
async fn obey_time_to_live(
    mut node: watch::Receiver<Arc<NodeState>>,
    feeds: Arc<dyn ClusterFeeds>,
) {
    loop {
        let told = node.borrow_and_update().object.as_ref().and_then(|node| {
            let annotations = node.metadata.annotations.as_ref()?;
            annotations.get(TIME_TO_LIVE)?.parse().ok()
        });
        if let Some(seconds) = told {
            feeds.set_object_age(Duration::from_secs(seconds));
        }
        if node.changed().await.is_err() {
            return;
        }
    }
}
