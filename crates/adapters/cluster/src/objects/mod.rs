//! Secrets and config maps that pods of this node refer to, by one of three strategies.
//!
//! Only what a registered pod names is ever read: the node authorizer refuses everything else. With
//! [`Strategy::Watch`] each object has a watch of its own over the shared connection, kept while
//! some pod refers to it and ended early for immutable objects; with [`Strategy::Cache`] an object
//! is read again once it is older than the node's time to live; with [`Strategy::Get`] each time.
//! Changes are announced, so that a volume can be written anew within a second. Owns: the
//! references and the copies. Refuses: objects that nobody registered.

mod table;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use ferrolet_ports::{ApiError, ClusterObjects, Fut, ObjectChange, ObjectKind, Token, TokenAsk};
use ferrolet_types::{Pod, PodUid, pod::PodView as _, references};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use tokio::sync::broadcast;

use crate::{
    client::{Client, Place},
    early::patiently,
    tokens::Tokens,
};
use table::Table;

/// Changes that a slow listener may fall behind by; after that it is told that it missed some.
const CHANGES: usize = 256;

/// How an object's changes are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By a watch on each object.
    Watch,
    /// By reading it again after this long.
    Cache(Duration),
    /// By reading it each time.
    Get,
}

/// The objects of this node's pods.
pub struct Objects {
    client: Client,
    tokens: Tokens,
    secrets: Mutex<Table<Secret>>,
    config_maps: Mutex<Table<ConfigMap>>,
    changes: broadcast::Sender<ObjectChange>,
}

impl Objects {
    /// Nothing registered yet.
    pub fn new(client: Client, tokens: Tokens, strategy: Strategy) -> Self {
        let (changes, _) = broadcast::channel(CHANGES);
        Self {
            client,
            tokens,
            secrets: Mutex::new(Table::new(ObjectKind::Secret, strategy)),
            config_maps: Mutex::new(Table::new(ObjectKind::ConfigMap, strategy)),
            changes,
        }
    }

    /// Tells of every change from now on; with the watch strategy only, the others have nothing to
    /// tell.
    pub fn changes(&self) -> broadcast::Receiver<ObjectChange> {
        self.changes.subscribe()
    }

    /// Where others that follow objects for pods tell of changes, to the same listeners.
    pub fn announcer(&self) -> broadcast::Sender<ObjectChange> {
        self.changes.clone()
    }

    /// Sets the age after which [`Strategy::Cache`] reads again: the node's annotation
    /// `node.alpha.kubernetes.io/ttl`.
    pub fn set_time_to_live(&self, span: Duration) {
        lock(&self.secrets).set_time_to_live(span);
        lock(&self.config_maps).set_time_to_live(span);
    }
}

impl ClusterObjects for Objects {
    fn register(&self, pod: &Pod) {
        let (uid, found) = (pod.uid(), references(pod));
        let namespace = pod.key().namespace;
        let mut secrets = lock(&self.secrets);
        secrets.register(&uid, &namespace, found.secrets, &self.client, &self.changes);
        let mut config_maps = lock(&self.config_maps);
        config_maps.register(&uid, &namespace, found.config_maps, &self.client, &self.changes);
    }

    fn unregister(&self, uid: &PodUid) {
        lock(&self.secrets).unregister(uid);
        lock(&self.config_maps).unregister(uid);
        self.tokens.forget(uid);
    }

    fn get_secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Arc<Secret>, ApiError>> {
        Box::pin(table::get(&self.secrets, &self.client, namespace, name))
    }

    fn get_config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Arc<ConfigMap>, ApiError>> {
        Box::pin(table::get(&self.config_maps, &self.client, namespace, name))
    }

    /// Read each time: only image credentials ask for one, and rarely.
    fn get_service_account<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<ServiceAccount, ApiError>> {
        Box::pin(async move {
            let place = Place::one::<ServiceAccount>(Some(namespace), name);
            patiently(|| self.client.get(&place)).await
        })
    }

    fn get_token<'a>(&'a self, ask: &'a TokenAsk) -> Fut<'a, Result<Token, ApiError>> {
        Box::pin(self.tokens.get(ask))
    }
}

fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(|held| held.into_inner())
}
