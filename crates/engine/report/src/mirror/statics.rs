//! The books of static pods for their mirrors: who is wanted, who is still ending.
//!
//! Hears from the merge what sources have, and sits between the workers and the reporter: what it
//! sees it passes on unchanged. Mirrors say where their pods came from and when, as the merge notes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ferrolet_ports::{Clock, PodsView, StaticPodsSink, StatusSink, StatusUpdate};
use ferrolet_types::{
    Pod, PodKey, PodUid, SourceUpdate, annotated,
    pod::{PodSource, PodView},
};
use tokio::sync::watch;

use super::{StaticPods, Translations};
use crate::pod_status::StatusReporter;

/// The static pods of this node, as files, URLs and workers tell them.
pub struct Statics {
    clock: Arc<dyn Clock>,
    books: Mutex<Books>,
    out: watch::Sender<StaticPods>,
    reporter: Arc<StatusReporter>,
}

/// The board for callers who know a static pod by its mirror.
pub struct TranslatedPods {
    /// The board.
    pub board: Arc<dyn PodsView>,
    /// Which identities mean each other.
    pub translations: watch::Receiver<Translations>,
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
    /// When each of them was first seen.
    seen: BTreeMap<PodUid, String>,
    alive: BTreeMap<PodUid, PodKey>,
}

impl Statics {
    /// The books, and where the mirrors are told what is in them.
    pub fn new(
        reporter: Arc<StatusReporter>,
        clock: Arc<dyn Clock>,
    ) -> (Arc<Self>, watch::Receiver<StaticPods>) {
        let (out, statics) = watch::channel(StaticPods::default());
        (Arc::new(Self { clock, books: Mutex::default(), out, reporter }), statics)
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
    /// Takes a source's whole set.
    fn note(&mut self, source: PodSource, pods: &[Pod], now: &str) {
        let noted = pods.iter().map(|pod| {
            let seen = self.seen.entry(pod.uid());
            annotated(pod, source, seen.or_insert_with(|| now.to_owned()))
        });
        let noted = noted.collect();
        self.wanted.insert(source, noted);
        let wanted: BTreeSet<PodUid> = self.wanted.values().flatten().map(|it| it.uid()).collect();
        self.seen.retain(|uid, _| wanted.contains(uid));
    }

    fn summary(&self) -> StaticPods {
        let pods: Vec<Pod> = self.wanted.values().flatten().cloned().collect();
        let wanted: BTreeSet<PodUid> = pods.iter().map(|pod| pod.uid()).collect();
        let ending = self.alive.iter().filter(|(uid, _)| !wanted.contains(*uid));
        StaticPods {
            terminating: ending.map(|(_, key)| key.clone()).collect(),
            are_complete: self.configured.iter().all(|source| self.wanted.contains_key(source)),
            pods,
        }
    }
}

impl StaticPodsSink for Statics {
    fn configure(&self, sources: &[PodSource]) {
        self.change(|books| books.configured.extend(sources));
    }

    fn note(&self, update: &SourceUpdate) {
        let now = self.clock.now().to_string();
        let pods: Vec<Pod> = update.pods.iter().map(|it| it.pod.clone()).collect();
        self.change(|books| books.note(update.source, &pods, &now));
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

#[cfg(test)]
mod tests {
    use ferrolet_types::pod::{SEEN_ANNOTATION, SOURCE_ANNOTATION};

    use super::*;

    #[test]
    fn mirrors_say_where_their_pods_came_from_and_when_they_were_first_seen() {
        let mut books = Books::default();
        let pods = |names: &[&str]| -> Vec<Pod> {
            let made = names.iter().map(|name| {
                let pod = serde_json::json!({"metadata": {"name": name, "uid": name}});
                Arc::new(serde_json::from_value(pod).unwrap())
            });
            made.collect()
        };
        let mut check = |source: PodSource, names: &[&str], now: &str, expected: &[&str]| {
            books.note(source, &pods(names), now);
            let told = books.summary().pods.into_iter().map(|pod| {
                let note = |key: &str| pod.annotation(key).unwrap_or_default().to_owned();
                let (source, seen) = (note(SOURCE_ANNOTATION), note(SEEN_ANNOTATION));
                format!("{} {source} {seen}", pod.uid())
            });
            assert_eq!(told.collect::<Vec<_>>(), expected, "{now}");
        };
        check(PodSource::File, &["a"], "1", &["a file 1"]);
        check(PodSource::File, &["a", "b"], "2", &["a file 1", "b file 2"]);
        let both = ["a file 1", "b file 2", "c http 3"];
        check(PodSource::Http, &["c"], "3", &both);
        check(PodSource::File, &["b"], "4", &["b file 2", "c http 3"]);
        let back = ["a file 5", "b file 2", "c http 3"];
        check(PodSource::File, &["a", "b"], "5", &back);
    }
}
