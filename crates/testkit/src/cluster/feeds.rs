//! What flows from the fake API server: its pods and its node, again at each change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ferrolet_ports::{ClusterFeeds, ClusterLookups, Fut, ObjectChange};
use ferrolet_types::{
    Pod, SourceUpdate, SourcedPod,
    pod::{PodSource, PodView as _},
};
use k8s_openapi::api::core::v1::{Node, Service};
use tokio::sync::{broadcast, mpsc, watch};

use crate::{FakeClusterApi, FakeObjects};

/// The feeds of a [`FakeClusterApi`], as a client that follows its watches would have them: whole
/// sets, in order, and silence while the server is down.
pub struct FakeFeeds {
    api: FakeClusterApi,
    objects: FakeObjects,
}

impl FakeFeeds {
    /// Pods and node from the one, changes of what pods refer to from the other.
    pub fn new(api: &FakeClusterApi, objects: &FakeObjects) -> Self {
        Self { api: api.clone(), objects: objects.clone() }
    }
}

fn as_update(pods: &[Pod]) -> SourceUpdate {
    let sourced = pods
        .iter()
        .map(|pod| SourcedPod { origin: pod.key().to_string().into(), pod: pod.clone() });
    SourceUpdate {
        source: PodSource::Api,
        pods: sourced.collect(),
        unreadable: BTreeSet::new(),
        is_provisional: false,
    }
}

impl ClusterFeeds for FakeFeeds {
    fn pods(&self, updates: mpsc::Sender<SourceUpdate>) -> Fut<'static, ()> {
        let (api, mut pods) = (self.api.clone(), self.api.watch_pods());
        Box::pin(async move {
            loop {
                api.delivered().await;
                let update = as_update(&pods.borrow_and_update());
                if updates.send(update).await.is_err() || pods.changed().await.is_err() {
                    return;
                }
            }
        })
    }

    fn node(&self, seen: watch::Sender<Option<Arc<Node>>>) -> Fut<'static, ()> {
        let (api, mut node) = (self.api.clone(), self.api.watch_node());
        Box::pin(async move {
            loop {
                api.delivered().await;
                let now = node.borrow_and_update().clone();
                seen.send_replace(now);
                if node.changed().await.is_err() {
                    return;
                }
            }
        })
    }

    fn driver_periods(
        &self,
        periods: watch::Sender<BTreeMap<String, Duration>>,
    ) -> Fut<'static, ()> {
        Box::pin(async move { periods.closed().await })
    }

    fn object_changes(&self) -> broadcast::Receiver<ObjectChange> {
        self.objects.changes()
    }

    fn set_object_age(&self, _age: Duration) {}
}

/// A cluster without services and runtime classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServices;

impl ClusterLookups for NoServices {
    fn services(&self) -> Option<Vec<Arc<Service>>> {
        Some(Vec::new())
    }

    fn runtime_handler(&self, _class: &str) -> Option<String> {
        None
    }
}
