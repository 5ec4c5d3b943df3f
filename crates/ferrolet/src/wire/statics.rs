//! The books of static pods for their mirrors: who is wanted, who is still ending.
//!
//! Sits between the sources and the merge, and between the workers and the reporter: what it sees it passes on unchanged.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ferrolet_pods::Board;
use ferrolet_ports::{PodsView, StatusSink, StatusUpdate};
use ferrolet_report::{
    mirror::{StaticPods, Translations},
    pod_status::StatusReporter,
};
use ferrolet_types::{
    Pod, PodKey, PodUid, SourceUpdate,
    pod::{PodSource, PodView},
};
use tokio::sync::{mpsc, watch};

/// The static pods of this node, as files, URLs and workers tell them.
pub(super) struct Statics {
    books: Mutex<Books>,
    out: watch::Sender<StaticPods>,
    reporter: Arc<StatusReporter>,
}

/// The board for callers who know a static pod by its mirror.
pub(super) struct TranslatedPods {
    pub(super) board: Arc<Board>,
    pub(super) translations: watch::Receiver<Translations>,
}

impl PodsView for TranslatedPods {
    fn pods(&self) -> Vec<Pod> {
        self.board.pods()
    }

    fn local_uid(&self, uid: &str) -> PodUid {
        self.translations.borrow().to_local(&PodUid::from(uid))
    }
}

#[derive(Default)]
struct Books {
    configured: BTreeSet<PodSource>,
    wanted: BTreeMap<PodSource, Vec<Pod>>,
    alive: BTreeMap<PodUid, PodKey>,
}

impl Statics {
    pub(super) fn new(reporter: Arc<StatusReporter>) -> (Arc<Self>, watch::Receiver<StaticPods>) {
        let (out, statics) = watch::channel(StaticPods::default());
        (
            Arc::new(Self {
                books: Mutex::default(),
                out,
                reporter,
            }),
            statics,
        )
    }

    /// Says which sources there are; mirrors count as orphaned only after all of them have spoken.
    pub(super) fn configure(&self, sources: &[PodSource]) {
        self.change(|books| {
            books
                .configured
                .extend(sources.iter().filter(|source| **source != PodSource::Api))
        });
    }

    /// Passes updates on to the merge, and notes them.
    pub(super) async fn pass_on(
        self: Arc<Self>,
        mut from: mpsc::Receiver<SourceUpdate>,
        to: mpsc::Sender<SourceUpdate>,
    ) {
        while let Some(update) = from.recv().await {
            let pods = update.pods.iter().map(|it| it.pod.clone()).collect();
            self.change(|books| books.wanted.insert(update.source, pods));
            if to.send(update).await.is_err() {
                return;
            }
        }
        // Every source has ended with the agent; the merge must not take that for an end of pods.
        to.closed().await;
    }

    fn change<T>(&self, edit: impl FnOnce(&mut Books) -> T) {
        let mut books: MutexGuard<'_, Books> =
            self.books.lock().unwrap_or_else(PoisonError::into_inner);
        edit(&mut books);
        let now = books.summary();
        self.out.send_if_modified(|known| {
            let is_new = *known != now;
            *known = now;
            is_new
        });
    }
}

impl Books {
    fn summary(&self) -> StaticPods {
        let pods: Vec<Pod> = self.wanted.values().flatten().cloned().collect();
        let wanted: BTreeSet<PodUid> = pods.iter().map(|pod| pod.uid()).collect();
        let ending = self.alive.iter().filter(|(uid, _)| !wanted.contains(*uid));
        StaticPods {
            terminating: ending.map(|(_, key)| key.clone()).collect(),
            are_complete: self
                .configured
                .iter()
                .all(|source| self.wanted.contains_key(source)),
            pods,
        }
    }
}

impl StatusSink for Statics {
    fn publish(&self, update: StatusUpdate) {
        if update.pod.is_static() {
            self.change(|books| books.alive.insert(update.pod.uid(), update.pod.key()));
        }
        self.reporter.publish(update);
    }

    fn forget(&self, uid: &PodUid) {
        self.change(|books| books.alive.remove(uid));
        self.reporter.forget(uid);
    }
}
