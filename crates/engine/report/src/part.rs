//! What the cluster is told, put together: statuses, mirrors, the node.

use std::sync::Arc;

use ferrolet_node::NodeState;
use ferrolet_ports::{
    Clock, ClusterApi, Part, PodsView, StaticPodsSink, StatusBacklog, StatusSink, once_open,
};
use ferrolet_types::Pod;
use tokio::sync::watch;

use crate::{
    mirror::{self, MirrorDoors, Statics, TranslatedPods, Translations},
    pod_status::{self, StatusReporter},
};

/// Statuses written at the same time.
const STATUS_WRITERS: usize = 8;

/// What the loops talk to.
pub struct Doors {
    /// The cluster.
    pub api: Arc<dyn ClusterApi>,
    /// The node.
    pub node: watch::Receiver<Arc<NodeState>>,
    /// True once the node may speak in its own name.
    pub joined: watch::Receiver<bool>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// What others need of the report.
pub struct Report {
    /// Where workers' statuses go.
    pub statuses: Arc<dyn StatusSink>,
    /// Which of them the cluster does not know yet.
    pub backlog: Arc<dyn StatusBacklog>,
    /// Where sources tell their static pods.
    pub static_pods: Arc<dyn StaticPodsSink>,
    /// Who wants to know what pods the API has.
    pub api_pods: ApiPods,
    translations: watch::Receiver<Translations>,
}

/// Hears of the API's pods.
#[derive(Clone)]
pub struct ApiPods {
    reporter: Arc<StatusReporter>,
    shown: watch::Sender<Option<Vec<Pod>>>,
}

impl ApiPods {
    /// The API's whole set.
    pub fn note(&self, pods: Vec<Pod>) {
        self.reporter.note_api_set(&pods);
        self.shown.send_replace(Some(pods));
    }
}

impl Report {
    /// The pods for callers who know a static pod by its mirror.
    pub fn translated(&self, board: Arc<dyn PodsView>) -> Arc<dyn PodsView> {
        Arc::new(TranslatedPods { board, translations: self.translations.clone() })
    }
}

/// Puts the loops about pods together.
pub fn build(doors: Doors) -> (Report, Part) {
    let Doors { api, node, joined, clock } = doors;
    let reporter = StatusReporter::new();
    let (statics, static_pods) = Statics::new(reporter.clone(), clock.clone());
    let (shown, api_pods) = watch::channel(None);
    let (translation_sender, translations) = watch::channel(Translations::default());
    let writing = pod_status::run(reporter.clone(), api.clone(), clock, STATUS_WRITERS);
    let mirroring = mirror::run(MirrorDoors {
        api,
        statics: static_pods,
        api_pods,
        node,
        translations: translation_sender,
    });
    let part = Part::new("report")
        .with_loop(once_open(joined.clone(), writing))
        .with_loop(once_open(joined, mirroring));
    let report = Report {
        statuses: statics.clone(),
        static_pods: statics,
        backlog: reporter.clone(),
        api_pods: ApiPods { reporter, shown },
        translations,
    };
    (report, part)
}
