//! The two loops of a node that can start offline: one keeps the copies, one stands in for the API.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ferrolet_ports::{
    ClusterLookups, ClusterObjects, HostError, OfflineStore, Retry, StatusSink, StoredCopy,
};
use ferrolet_types::{Pod, PodUid, SourceUpdate, SourcedPod, pod::PodSource};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::sleep,
};

use super::{
    doors,
    ledger::{Job, Ledger, Told},
    record::Record,
};

/// How long the API is waited for before its pods start without it.
const HEAD_START: Duration = Duration::from_secs(10);
/// The pause between two rounds of writing: the first change is written at once, a crowd of them
/// together. Short, because what is not written when the power fails is not there afterwards.
const PACE: Duration = Duration::from_millis(100);
/// The pause after a store that refused.
const PAUSE: Duration = Duration::from_secs(30);
/// No more pods than this are read back; a node never has as many.
const MOST_COPIES: usize = 2048;

/// The copies of this node's pods, and what stands in for the API from them.
#[derive(Clone)]
pub struct Offline {
    shared: Arc<Shared>,
    store: Arc<dyn OfflineStore>,
    spoken: Arc<watch::Sender<bool>>,
}

/// The books behind their lock.
pub(super) struct Shared {
    ledger: Mutex<Ledger>,
    has_work: Notify,
}

impl Shared {
    pub(super) fn look<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = change(&mut ledger);
        if ledger.has_work() {
            self.has_work.notify_one();
        }
        answer
    }
}

impl Offline {
    /// Reads what an earlier life left. A copy that cannot be read is named in a warning and passed
    /// over.
    pub async fn open(store: Arc<dyn OfflineStore>) -> Self {
        let mut ledger = Ledger::new();
        match store.read_all().await {
            Ok(copies) => load(&mut ledger, copies),
            Err(error) => tracing::warn!(%error, "Copies of pods cannot be read"),
        }
        Self {
            shared: Arc::new(Shared { ledger: Mutex::new(ledger), has_work: Notify::new() }),
            store,
            spoken: Arc::new(watch::channel(false).0),
        }
    }

    /// The cluster's objects, noted, and answered from the notes while it gives no answer.
    pub fn objects(&self, inner: Arc<dyn ClusterObjects>) -> Arc<dyn ClusterObjects> {
        let shared = self.shared.clone();
        Arc::new(doors::Objects { inner, shared })
    }

    /// The cluster's services and runtime classes, or the noted ones before it has spoken.
    pub fn lookups(&self, inner: Arc<dyn ClusterLookups>) -> Arc<dyn ClusterLookups> {
        let shared = self.shared.clone();
        Arc::new(doors::Lookups { inner, shared })
    }

    /// The way of statuses to the reporter, noted.
    pub fn sink(&self, inner: Arc<dyn StatusSink>) -> Arc<dyn StatusSink> {
        let shared = self.shared.clone();
        Arc::new(doors::Sink { inner, shared })
    }

    /// The API has these pods for this node and no others. To be told before anybody acts on them.
    pub fn note_api_set(&self, pods: &[Pod]) {
        self.shared.change(|ledger| ledger.note_api_set(pods));
        self.spoken.send_replace(true);
    }

    /// Keeps the copies, and stands in for an API that does not speak. Runs until dropped.
    pub async fn run(self, lookups: Arc<dyn ClusterLookups>, updates: mpsc::Sender<SourceUpdate>) {
        tokio::join!(self.stand_in(updates), self.keep(lookups.as_ref()));
    }

    async fn stand_in(&self, updates: mpsc::Sender<SourceUpdate>) {
        let mut spoken = self.spoken.subscribe();
        let first = spoken.wait_for(|has_spoken| *has_spoken);
        if tokio::time::timeout(HEAD_START, first).await.is_ok() {
            return;
        }
        let pods = self.shared.look(Ledger::startable);
        tracing::warn!(
            n_pods = pods.len(),
            "The API server is away, starting pods from their copies on disk"
        );
        let origin: Arc<str> = "offline".into();
        let sourced = pods.into_iter().map(|pod| SourcedPod { origin: origin.clone(), pod });
        let update = SourceUpdate {
            source: PodSource::Api,
            pods: sourced.collect(),
            unreadable: BTreeSet::new(),
            is_provisional: true,
        };
        // Without a merge there is no agent left to tell.
        updates.send(update).await.ok();
    }

    async fn keep(&self, lookups: &dyn ClusterLookups) {
        loop {
            self.shared.has_work.notified().await;
            let classes = self.shared.look(Ledger::classes_due).into_iter();
            let told = Told {
                services: lookups.services(),
                handlers: classes
                    .filter_map(|class| Some((class.clone(), lookups.runtime_handler(&class)?)))
                    .collect(),
            };
            let jobs = self.shared.change(|ledger| ledger.take_jobs(&told));
            let mut undone = Vec::new();
            for job in jobs {
                let (uid, done) = self.perform(job).await;
                if let Err(error) = done {
                    let is_hopeless = error.retry == Retry::Never;
                    tracing::warn!(%error, pod_uid = %uid, "Copy of a pod is not up to date");
                    undone.extend((!is_hopeless).then_some(uid));
                }
            }
            sleep(PACE).await;
            if !undone.is_empty() {
                sleep(PAUSE).await;
                self.shared.change(|ledger| ledger.put_back(undone));
            }
        }
    }

    async fn perform(&self, job: Job) -> (PodUid, Result<(), HostError>) {
        match job {
            Job::Remove(uid) => {
                let done = self.remove(&uid).await;
                (uid, done)
            }
            Job::Write(uid, record) => {
                let done = self.write(&uid, &record).await;
                // One that can be tried again stays as it was: an older copy is better than none.
                if done.as_ref().is_err_and(|error| error.retry == Retry::Never) {
                    self.remove(&uid).await.ok();
                }
                (uid, done)
            }
        }
    }

    async fn remove(&self, uid: &PodUid) -> Result<(), HostError> {
        self.store.remove(uid).await?;
        self.shared.change(|ledger| ledger.note_removed(uid));
        Ok(())
    }

    async fn write(&self, uid: &PodUid, record: &Record) -> Result<(), HostError> {
        let content = record.encode().map_err(|error| HostError {
            attempt: format!("write the copy of pod {uid}"),
            cause: error.to_string(),
            retry: Retry::Never,
        })?;
        let digest = digest(&content);
        if self.shared.look(|ledger| ledger.is_stored(uid, digest)) {
            return Ok(());
        }
        self.store.write(uid, &content).await?;
        self.shared.change(|ledger| ledger.note_written(uid.clone(), digest));
        Ok(())
    }
}

fn load(ledger: &mut Ledger, copies: Vec<StoredCopy>) {
    if copies.len() > MOST_COPIES {
        let n_copies = copies.len();
        tracing::warn!(n_copies, most = MOST_COPIES, "Too many copies of pods, reading the first");
    }
    for StoredCopy { uid, content } in copies.into_iter().take(MOST_COPIES) {
        let read = content.map_err(|error| error.to_string()).and_then(|content| {
            match Record::decode(&uid, &content) {
                Ok(record) => Ok((record, digest(&content))),
                Err(error) => Err(error.to_string()),
            }
        });
        match read {
            Ok((record, digest)) => ledger.load(record, digest),
            Err(cause) => {
                tracing::warn!(pod_uid = %uid, cause, "Copy of a pod is unreadable, passing over it");
                ledger.note_unreadable(uid);
            }
        }
    }
}

/// Tells equal copies apart from different ones; of no use after the process.
fn digest(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}
