//! What the node's object means for its pods: whether they are taken, where they are, what they may have together.
//!
//! In: copies of the object, from the watch and from answers, in any order. Out: admission's idea of the node and the facts that
//! specifications are made from. Owned by [`Cluster`](super::cluster::Cluster). Refuses: a copy older than the one it shows.

use std::sync::{Arc, Mutex, PoisonError};

use ferrolet_pods::World;
use ferrolet_report::{is_older, node::host_ips};
use ferrolet_resources::{AdmissionNode, is_chosen, parse_amounts};
use ferrolet_types::{
    Pod,
    pod::{Phase, PodView},
};
use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;

/// Shows the newest copy of the node to admission and to the workers.
pub(super) struct NodeViews {
    admission: watch::Sender<Option<AdmissionNode>>,
    world: Arc<World>,
    newest: Mutex<Option<Arc<Node>>>,
}

impl NodeViews {
    pub(super) fn new(
        admission: watch::Sender<Option<AdmissionNode>>,
        world: Arc<World>,
    ) -> Arc<Self> {
        Arc::new(Self { admission, world, newest: Mutex::default() })
    }

    /// Shows this copy, unless a newer one is shown already.
    pub(super) fn show(&self, node: Arc<Node>) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stale = |known: &Arc<Node>| is_older(&node.metadata, &known.metadata);
        if newest.as_ref().is_some_and(is_stale) {
            return;
        }
        self.admission.send_modify(|described| {
            if let Some(described) = described {
                apply(&node, described);
            }
        });
        let allocatable = node.status.as_ref().and_then(|it| it.allocatable.as_ref());
        self.world.describe(host_ips(&node), parse_amounts(allocatable));
        *newest = Some(node);
    }

    /// True when a pod would be turned away because of the node's labels, so that those had better be the newest: the node may
    /// have got them a moment before it got the pod.
    pub(super) fn doubts(&self, pod: &Pod) -> bool {
        let is_ending =
            pod.deletion_time().is_some() || pod.api_phase().is_some_and(Phase::is_terminal);
        let described = self.admission.borrow();
        !is_ending
            && !pod.is_mirror()
            && described.as_ref().is_some_and(|node| !is_chosen(pod, node))
    }
}

/// Brings admission's idea of the node in line with its object.
pub(super) fn apply(node: &Node, described: &mut AdmissionNode) {
    described.labels = node.metadata.labels.clone().unwrap_or_default();
    described.taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let status = node.status.as_ref();
    if let Some(amounts) = status.and_then(|status| status.allocatable.as_ref()) {
        described.allocatable = parse_amounts(Some(amounts));
    }
    let features = status.and_then(|status| status.features.as_ref());
    described.has_supplemental_groups_policy =
        features.and_then(|features| features.supplemental_groups_policy).unwrap_or(false);
}
