//! Collections that the node keeps a copy of: services for environment variables, runtime classes
//! for their handlers.
//!
//! One task feeds each; others read snapshots. What nobody reads (labels, annotations, status) is
//! not kept.

use std::{
    collections::BTreeMap,
    sync::{Arc, RwLock},
};

use k8s_openapi::{
    api::{core::v1::Service, node::v1::RuntimeClass},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use tokio::sync::{mpsc, watch as latest};

use crate::{
    client::Client,
    watch::{self, Scope, WatchEvent, Watched},
};

/// An object that the node keeps.
pub trait Slim: Watched + Sync {
    /// The object without what nobody here reads.
    fn slim(self) -> Self;
}

impl Slim for Service {
    fn slim(mut self) -> Self {
        self.status = None;
        self.metadata = only_names(self.metadata);
        self
    }
}

impl Slim for RuntimeClass {
    fn slim(mut self) -> Self {
        self.metadata = only_names(self.metadata);
        self
    }
}

fn only_names(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta { name: meta.name, namespace: meta.namespace, ..ObjectMeta::default() }
}

type Objects<K> = BTreeMap<(String, String), Arc<K>>;

/// A copy of a collection. Clones read the same copy.
pub struct Kept<K> {
    objects: Arc<RwLock<Objects<K>>>,
    is_synced: latest::Sender<bool>,
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        Self { objects: Arc::clone(&self.objects), is_synced: self.is_synced.clone() }
    }
}

impl<K> Default for Kept<K> {
    fn default() -> Self {
        Self { objects: Arc::default(), is_synced: latest::Sender::new(false) }
    }
}

impl<K: Slim> Kept<K> {
    /// Feeds the copy until the task is dropped.
    pub async fn run(self, client: Client) {
        let (sink, mut events) = mpsc::channel(16);
        let feed = async {
            while let Some(event) = events.recv().await {
                self.apply(event);
            }
        };
        tokio::join!(watch::run::<K>(client, Scope::default(), sink), feed);
    }

    /// Waits until the collection has been read once.
    pub async fn synced(&self) {
        let mut is_synced = self.is_synced.subscribe();
        // The sender is `self`, so it outlives the wait.
        let _ = is_synced.wait_for(|is_synced| *is_synced).await;
    }

    /// True once the collection has been read.
    pub fn is_synced(&self) -> bool {
        *self.is_synced.borrow()
    }

    /// One object; no namespace for those of the cluster.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let key = (namespace.unwrap_or_default().to_owned(), name.to_owned());
        self.read().get(&key).map(Arc::clone)
    }

    /// Every object, in the order of namespace and name.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().values().map(Arc::clone).collect()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(|held| held.into_inner())
    }

    fn apply(&self, event: WatchEvent<K>) {
        let mut objects = self.objects.write().unwrap_or_else(|held| held.into_inner());
        match event {
            WatchEvent::Restarted { objects: all, unreadable } => {
                let is_there = |(namespace, name): &(String, String)| {
                    unreadable.iter().any(|it| it.namespace == *namespace && it.name == *name)
                };
                objects.retain(|key, _| is_there(key));
                objects
                    .extend(all.into_iter().map(|object| (key(&object), Arc::new(object.slim()))));
                drop(objects);
                self.is_synced.send_replace(true);
            }
            WatchEvent::Applied(object) => {
                objects.insert(key(&object), Arc::new(object.slim()));
            }
            WatchEvent::Deleted(object) => {
                objects.remove(&key(&object));
            }
        }
    }
}

impl Kept<RuntimeClass> {
    /// The runtime's name for a class; `None` when there is no such class.
    pub fn handler(&self, class: &str) -> Option<String> {
        self.get(None, class).map(|class| class.handler.clone())
    }
}

fn key<K: Watched>(object: &K) -> (String, String) {
    let meta = object.metadata();
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    (part(&meta.namespace), part(&meta.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::FakeApi;

    #[tokio::test(start_paused = true)]
    async fn services_and_classes_are_there_once_synced_and_follow_changes() {
        let api = FakeApi::new();
        api.put(
            "/api/v1/namespaces/n/services/a",
            json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n",
                "annotations": {"big": "text"}}, "spec": {"clusterIP": "10.0.0.1"}, "status": {}}),
        );
        let classes = "/apis/node.k8s.io/v1/runtimeclasses/kata";
        let class = |handler: &str| json!({"kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1", "metadata": {"name": "kata"}, "handler": handler});
        api.put(classes, class("kata-qemu"));
        let (services, runtimes) = (Kept::<Service>::default(), Kept::<RuntimeClass>::default());
        assert!(!services.is_synced());
        tokio::spawn(services.clone().run(api.client()));
        tokio::spawn(runtimes.clone().run(api.client()));
        tokio::join!(services.synced(), runtimes.synced());
        let service = services.get(Some("n"), "a").unwrap();
        assert_eq!(service.metadata.annotations, None);
        assert_eq!(service.spec.as_ref().unwrap().cluster_ip.as_deref(), Some("10.0.0.1"));
        assert_eq!(runtimes.handler("kata").as_deref(), Some("kata-qemu"));
        assert_eq!(runtimes.handler("gone"), None);
        api.put(classes, class("kata-fc"));
        while runtimes.handler("kata").as_deref() != Some("kata-fc") {
            tokio::task::yield_now().await;
        }
        api.remove("/api/v1/namespaces/n/services/a");
        while !services.all().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
