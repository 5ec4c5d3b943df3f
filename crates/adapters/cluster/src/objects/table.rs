//! The objects of one kind: who refers to each, and what is known of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use ferrolet_ports::{ApiError, ApiErrorKind};
use ferrolet_types::PodUid;
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, timeout_at},
};

use super::{ObjectChange, ObjectKind, Strategy, lock};
use crate::{
    client::{Client, Place},
    early::{PATIENCE, patiently},
    single::{self, Followed, Found},
};

/// How long the first answer to a new watch is waited for, as with upstream.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

type Key = (String, String);

/// The table.
pub(super) struct Table<K> {
    kind: ObjectKind,
    strategy: Strategy,
    entries: BTreeMap<Key, Entry<K>>,
    by_pod: BTreeMap<PodUid, BTreeSet<Key>>,
}

struct Entry<K> {
    n_pods: usize,
    copy: Held<K>,
}

/// What is known of an object.
enum Held<K> {
    /// A task keeps this up to date; it ends when this is dropped.
    Followed(watch::Receiver<Found<K>>),
    /// It was read at that time.
    Read(Option<(Instant, Arc<K>)>),
}

impl<K: Followed> Table<K> {
    pub(super) fn new(kind: ObjectKind, strategy: Strategy) -> Self {
        Self { kind, strategy, entries: BTreeMap::new(), by_pod: BTreeMap::new() }
    }

    pub(super) fn set_time_to_live(&mut self, span: Duration) {
        if let Strategy::Cache(current) = &mut self.strategy {
            *current = span;
        }
    }

    /// Refers to these names from now on, and to no others of before.
    pub(super) fn register(
        &mut self,
        uid: &PodUid,
        namespace: &str,
        names: BTreeSet<String>,
        client: &Client,
        changes: &broadcast::Sender<ObjectChange>,
    ) {
        let keys: BTreeSet<Key> =
            names.into_iter().map(|name| (namespace.to_owned(), name)).collect();
        let before = self.by_pod.remove(uid).unwrap_or_default();
        for key in keys.difference(&before) {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.n_pods += 1;
                // A new pod wants to start with what is there now.
                if let Held::Read(copy) = &mut entry.copy {
                    *copy = None;
                }
                continue;
            }
            let copy = match self.strategy {
                Strategy::Watch => Held::Followed(self.follow(key, client, changes)),
                Strategy::Cache(_) | Strategy::Get => Held::Read(None),
            };
            self.entries.insert(key.clone(), Entry { n_pods: 1, copy });
        }
        // After the additions, so that a name in both sets never loses its watch.
        for key in before.difference(&keys) {
            self.release(key);
        }
        if !keys.is_empty() {
            self.by_pod.insert(uid.clone(), keys);
        }
    }

    pub(super) fn unregister(&mut self, uid: &PodUid) {
        for key in self.by_pod.remove(uid).unwrap_or_default() {
            self.release(&key);
        }
    }

    fn release(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.n_pods -= 1;
            if entry.n_pods == 0 {
                self.entries.remove(key);
            }
        }
    }

    fn follow(
        &self,
        key: &Key,
        client: &Client,
        changes: &broadcast::Sender<ObjectChange>,
    ) -> watch::Receiver<Found<K>> {
        let (sender, receiver) = watch::channel(Found::Unknown);
        let (namespace, name) = key.clone();
        let (changes, change) = (
            changes.clone(),
            ObjectChange { kind: self.kind, namespace: namespace.clone(), name: name.clone() },
        );
        let changed = move || {
            // Nobody listening is fine.
            let _ = changes.send(change.clone());
        };
        // Ends when the entry, the only receiver, is dropped.
        tokio::spawn(single::run(client.clone(), Some(namespace), name, sender, changed));
        receiver
    }

    /// True when the copy is good enough, in view of the strategy.
    fn is_fresh(&self, read: Instant, object: &K) -> bool {
        match self.strategy {
            Strategy::Watch | Strategy::Get => false,
            Strategy::Cache(span) => object.is_final() || read.elapsed() < span,
        }
    }
}

/// What to do for one question, decided under the lock and done without it.
enum Plan<K> {
    Wait(watch::Receiver<Found<K>>),
    Use(Arc<K>),
    Read,
}

/// The object, as the strategy has it.
pub(super) async fn get<K: Followed>(
    table: &Mutex<Table<K>>,
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Arc<K>, ApiError> {
    let key = (namespace.to_owned(), name.to_owned());
    let place = Place::one::<K>(Some(namespace), name);
    let error = |kind, message: String| ApiError {
        attempt: format!("GET {}", place.path()),
        kind,
        message,
        code: None,
        causes: Vec::new(),
    };
    let plan = {
        let table = lock(table);
        match table.entries.get(&key).map(|entry| &entry.copy) {
            None => {
                let message = format!("object {namespace:?}/{name:?} not registered");
                return Err(error(ApiErrorKind::BadRequest, message));
            }
            Some(Held::Followed(latest)) => Plan::Wait(latest.clone()),
            Some(Held::Read(Some((read, object)))) if table.is_fresh(*read, object) => {
                Plan::Use(Arc::clone(object))
            }
            Some(Held::Read(_)) => Plan::Read,
        }
    };
    match plan {
        Plan::Use(object) => Ok(object),
        Plan::Wait(mut latest) => match first_answer(&mut latest).await {
            Found::Here(object) => Ok(object),
            Found::Refused(refusal) => Err(refusal),
            Found::Missing => {
                let message = format!("{} {name:?} not found", K::URL_PATH_SEGMENT);
                Err(error(ApiErrorKind::NotFound, message))
            }
            Found::Unknown => {
                let kind = K::KIND.to_lowercase();
                let message =
                    format!("failed to sync {kind} cache: timed out waiting for the condition");
                Err(error(ApiErrorKind::Timeout, message))
            }
        },
        Plan::Read => {
            let object = Arc::new(patiently(|| client.get::<K>(&place)).await?);
            let mut table = lock(table);
            if let Some(entry) = table.entries.get_mut(&key) {
                entry.copy = Held::Read(Some((Instant::now(), Arc::clone(&object))));
            }
            Ok(object)
        }
    }
}

/// Waits for the first answer to a new watch: as long as upstream does, and longer while the server
/// says no, because it may only not know the pod yet.
async fn first_answer<K: Followed>(latest: &mut watch::Receiver<Found<K>>) -> Found<K> {
    let is_answer = |found: &Found<K>| matches!(found, Found::Here(_) | Found::Missing);
    let began = Instant::now();
    for patience in [FIRST_ANSWER, PATIENCE] {
        // A watch that has ended, and a time that has run out, leave what was known last.
        let waited = timeout_at(began + patience, latest.wait_for(is_answer));
        let is_over = waited.await.is_ok();
        if is_over || !matches!(&*latest.borrow(), Found::Refused(_)) {
            break;
        }
    }
    latest.borrow().clone()
}
