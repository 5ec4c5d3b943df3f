//! What flows from the API server for as long as the agent lives.
//!
//! Each feed is a future that the assembly runs: it sends what there is, again at each change, and
//! ends only when nobody listens any more. An API server that is away makes it silent, not end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_types::SourceUpdate;
use k8s_openapi::api::core::v1::Node;
use tokio::sync::{broadcast, mpsc, watch};

use crate::{Fut, ObjectChange};

/// The watches of a node.
pub trait ClusterFeeds: Send + Sync {
    /// The pods that are bound to this node.
    fn pods(&self, updates: mpsc::Sender<SourceUpdate>) -> Fut<'static, ()>;
    /// This node; `None` while it does not exist.
    fn node(&self, seen: watch::Sender<Option<Arc<Node>>>) -> Fut<'static, ()>;
    /// How often the cluster wants each CSI driver asked for its limits.
    fn driver_periods(
        &self,
        periods: watch::Sender<BTreeMap<String, Duration>>,
    ) -> Fut<'static, ()>;
    /// Changes of objects that pods refer to.
    fn object_changes(&self) -> broadcast::Receiver<ObjectChange>;
    /// Lets copies of such objects become that old, where they are not watched.
    fn set_object_age(&self, age: Duration);
}
