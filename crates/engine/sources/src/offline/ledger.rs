//! What is known of the pods that may have to start from the disk, and which copies are due. Pure.
//!
//! Owned by [`super::Offline`], which holds it behind one lock. Memory: the pods of this node and
//! what they name; objects are shared with whoever read them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ferrolet_ports::{Token, TokenAsk};
use ferrolet_types::{
    Pod, PodUid, References,
    pod::{Phase, PodView as _},
    references,
};
use k8s_openapi::api::core::v1::{ConfigMap, PodStatus, Secret, Service};

use super::record::{Record, visible};

/// An object's namespace and name.
type Place = (String, String);
/// What the API said about objects; `None` is a no.
type Answers<T> = BTreeMap<Place, Option<Arc<T>>>;

/// The books.
pub(super) struct Ledger {
    pods: BTreeMap<PodUid, Known>,
    /// Pods that have a copy, readable or not, and what is in it when we know.
    stored: BTreeMap<PodUid, Option<u64>>,
    secrets: Answers<Secret>,
    config_maps: Answers<ConfigMap>,
    tokens: BTreeMap<TokenAsk, Token>,
    due: BTreeSet<PodUid>,
    has_api_set: bool,
}

struct Known {
    pod: Pod,
    names: References,
    published: Option<PodStatus>,
    /// From the copy, until the cluster says otherwise.
    services: Vec<Arc<Service>>,
    runtime_handler: Option<String>,
}

/// What shall happen to a pod's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has to run: keep a copy of how it is now.
    Keep,
    /// Nothing is known yet that the copy does not say.
    Wait,
    /// It must not start again: no copy.
    Drop,
}

/// What the cluster tells of itself, asked before the books are opened: whoever answers may look
/// into them, too.
pub(super) struct Told {
    pub(super) services: Option<Vec<Arc<Service>>>,
    /// Handlers by runtime class.
    pub(super) handlers: BTreeMap<String, String>,
}

/// Work for the store.
pub(super) enum Job {
    Write(PodUid, Box<Record>),
    Remove(PodUid),
}

/// Decides about one pod's copy. A status that we published counts even if the API has never seen
/// it.
pub(super) fn judge(pod: &Pod, published: Option<&PodStatus>) -> Verdict {
    let phases = [published.and_then(Phase::of), pod.api_phase()];
    let is_over = phases.into_iter().flatten().any(Phase::is_terminal);
    if pod.is_mirror() || pod.is_static() || pod.deletion_time().is_some() || is_over {
        return Verdict::Drop;
    }
    match published {
        Some(_) => Verdict::Keep,
        None => Verdict::Wait,
    }
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            pods: BTreeMap::new(),
            stored: BTreeMap::new(),
            secrets: BTreeMap::new(),
            config_maps: BTreeMap::new(),
            tokens: BTreeMap::new(),
            due: BTreeSet::new(),
            has_api_set: false,
        }
    }

    /// Takes in a copy of an earlier life.
    pub(super) fn load(&mut self, record: Record, digest: u64) {
        let pod: Pod = Arc::new(record.pod);
        let (uid, namespace) = (pod.uid(), pod.key().namespace);
        let place = |name| (namespace.to_string(), name);
        let secrets = record.secrets.into_iter();
        self.secrets.extend(secrets.map(|(name, object)| (place(name), object)));
        let config_maps = record.config_maps.into_iter();
        self.config_maps.extend(config_maps.map(|(name, object)| (place(name), object)));
        self.tokens.extend(record.tokens);
        self.stored.insert(uid.clone(), Some(digest));
        let known = Known {
            names: references(&pod),
            published: None,
            services: record.services,
            runtime_handler: record.runtime_handler,
            pod,
        };
        self.pods.insert(uid, known);
    }

    /// There is a copy that nobody can read; it is replaced or removed when the API has spoken.
    pub(super) fn note_unreadable(&mut self, uid: PodUid) {
        self.stored.insert(uid, None);
    }

    /// The pods that have to run as far as their copies say.
    pub(super) fn startable(&self) -> Vec<Pod> {
        let pods = self.pods.values().map(|known| &known.pod);
        pods.filter(|pod| judge(pod, None) != Verdict::Drop).cloned().collect()
    }

    /// True once the API has told its own set.
    pub(super) fn has_api_set(&self) -> bool {
        self.has_api_set
    }

    /// The API has these pods for this node and no others.
    pub(super) fn note_api_set(&mut self, pods: &[Pod]) {
        self.has_api_set = true;
        let mut before = std::mem::take(&mut self.pods);
        for pod in pods.iter().filter(|pod| !pod.is_mirror()) {
            let uid = pod.uid();
            let known = match before.remove(&uid) {
                Some(known) if Arc::ptr_eq(&known.pod, pod) => known,
                known => {
                    self.due.insert(uid.clone());
                    let names = references(pod);
                    let known = known.unwrap_or_else(|| Known {
                        pod: pod.clone(),
                        names: References::default(),
                        published: None,
                        services: Vec::new(),
                        runtime_handler: None,
                    });
                    Known { pod: pod.clone(), names, ..known }
                }
            };
            self.pods.insert(uid, known);
        }
        let strays = self.stored.keys().filter(|uid| !self.pods.contains_key(*uid));
        self.due.extend(strays.cloned());
        if !before.is_empty() {
            self.forget_unnamed();
        }
    }

    /// A worker published a pod's status.
    pub(super) fn note_status(&mut self, uid: &PodUid, status: Option<&PodStatus>) {
        if let Some(known) = self.pods.get_mut(uid)
            && known.published.as_ref() != status
        {
            known.published = status.cloned();
            self.due.insert(uid.clone());
        }
    }

    /// The API answered about a secret.
    pub(super) fn note_secret(&mut self, namespace: &str, name: &str, answer: Option<Arc<Secret>>) {
        if is_news(&mut self.secrets, namespace, name, answer) {
            self.mark(namespace, |names| names.secrets.contains(name));
        }
    }

    /// The API answered about a config map.
    pub(super) fn note_config_map(
        &mut self,
        namespace: &str,
        name: &str,
        answer: Option<Arc<ConfigMap>>,
    ) {
        if is_news(&mut self.config_maps, namespace, name, answer) {
            self.mark(namespace, |names| names.config_maps.contains(name));
        }
    }

    /// The API gave out a token.
    pub(super) fn note_token(&mut self, ask: &TokenAsk, token: &Token) {
        let Some((_, uid)) = &ask.bound_pod else {
            return;
        };
        if self.pods.contains_key(uid) && self.tokens.get(ask) != Some(token) {
            self.tokens.insert(ask.clone(), token.clone());
            self.due.insert(uid.clone());
        }
    }

    pub(super) fn secret(&self, namespace: &str, name: &str) -> Option<Option<Arc<Secret>>> {
        let place = (namespace.to_owned(), name.to_owned());
        self.secrets.get(&place).cloned()
    }

    pub(super) fn config_map(&self, namespace: &str, name: &str) -> Option<Option<Arc<ConfigMap>>> {
        let place = (namespace.to_owned(), name.to_owned());
        self.config_maps.get(&place).cloned()
    }

    pub(super) fn token(&self, ask: &TokenAsk) -> Option<Token> {
        self.tokens.get(ask).cloned()
    }

    /// Every service that some copy names, each once; `None` without any copy.
    pub(super) fn services(&self) -> Option<Vec<Arc<Service>>> {
        let all = self.pods.values().flat_map(|known| &known.services);
        let by_place: BTreeMap<_, _> =
            all.map(|it| ((&it.metadata.namespace, &it.metadata.name), it.clone())).collect();
        (!self.pods.is_empty()).then(|| by_place.into_values().collect())
    }

    /// The handler that a copy has for this runtime class.
    pub(super) fn runtime_handler(&self, class: &str) -> Option<String> {
        let mut pods = self.pods.values();
        pods.find_map(|known| {
            let is_its = class_of(&known.pod) == Some(class);
            known.runtime_handler.clone().filter(|_| is_its)
        })
    }

    pub(super) fn has_work(&self) -> bool {
        !self.due.is_empty()
    }

    /// The runtime classes of pods whose copies are due.
    pub(super) fn classes_due(&self) -> BTreeSet<String> {
        let pods = self.due.iter().filter_map(|uid| self.pods.get(uid));
        pods.filter_map(|it| class_of(&it.pod).map(str::to_owned)).collect()
    }

    /// Everything that is due, taken.
    pub(super) fn take_jobs(&mut self, told: &Told) -> Vec<Job> {
        let due = std::mem::take(&mut self.due);
        let jobs = due.into_iter().filter_map(|uid| {
            let verdict = self
                .pods
                .get(&uid)
                .map_or(Verdict::Drop, |it| judge(&it.pod, it.published.as_ref()));
            match verdict {
                Verdict::Wait => None,
                Verdict::Drop => self.stored.contains_key(&uid).then_some(Job::Remove(uid)),
                Verdict::Keep => {
                    let record = self.record(&uid, told)?;
                    Some(Job::Write(uid, Box::new(record)))
                }
            }
        });
        jobs.collect()
    }

    /// Puts work back that could not be done.
    pub(super) fn put_back(&mut self, uids: impl IntoIterator<Item = PodUid>) {
        self.due.extend(uids);
    }

    /// True when the copy on disk already says exactly this.
    pub(super) fn is_stored(&self, uid: &PodUid, digest: u64) -> bool {
        self.stored.get(uid) == Some(&Some(digest))
    }

    pub(super) fn note_written(&mut self, uid: PodUid, digest: u64) {
        self.stored.insert(uid, Some(digest));
    }

    pub(super) fn note_removed(&mut self, uid: &PodUid) {
        self.stored.remove(uid);
    }

    fn record(&self, uid: &PodUid, told: &Told) -> Option<Record> {
        let known = self.pods.get(uid)?;
        let namespace = known.pod.key().namespace;
        let mut pod = (*known.pod).clone();
        if known.published.is_some() {
            pod.status.clone_from(&known.published);
        }
        let services = match &told.services {
            Some(services) => visible(&pod, services),
            None => known.services.clone(),
        };
        let handler = class_of(&pod).and_then(|class| told.handlers.get(class).cloned());
        let tokens = self.tokens.iter().filter(|(ask, _)| is_bound_to(ask, uid));
        Some(Record {
            secrets: named(&self.secrets, &namespace, &known.names.secrets),
            config_maps: named(&self.config_maps, &namespace, &known.names.config_maps),
            tokens: tokens.map(|(ask, token)| (ask.clone(), token.clone())).collect(),
            services,
            runtime_handler: handler.or_else(|| known.runtime_handler.clone()),
            pod,
        })
    }

    fn mark(&mut self, namespace: &str, names_it: impl Fn(&References) -> bool) {
        let pods = self.pods.iter();
        let affected = pods
            .filter(|(_, it)| &*it.pod.key().namespace == namespace && names_it(&it.names))
            .map(|(uid, _)| uid.clone());
        self.due.extend(affected);
    }

    /// Drops what no pod names any more.
    fn forget_unnamed(&mut self) {
        let (mut secrets, mut config_maps) = (BTreeSet::new(), BTreeSet::new());
        for known in self.pods.values() {
            let namespace = known.pod.key().namespace.to_string();
            let place = |name: &String| (namespace.clone(), name.clone());
            secrets.extend(known.names.secrets.iter().map(place));
            config_maps.extend(known.names.config_maps.iter().map(place));
        }
        self.secrets.retain(|place, _| secrets.contains(place));
        self.config_maps.retain(|place, _| config_maps.contains(place));
        let pods = &self.pods;
        self.tokens.retain(|ask, _| {
            let bound = ask.bound_pod.as_ref();
            bound.is_some_and(|(_, uid)| pods.contains_key(uid))
        });
    }
}

fn class_of(pod: &k8s_openapi::api::core::v1::Pod) -> Option<&str> {
    pod.spec_ref().runtime_class_name.as_deref()
}

fn is_bound_to(ask: &TokenAsk, uid: &PodUid) -> bool {
    ask.bound_pod.as_ref().is_some_and(|(_, bound)| bound == uid)
}

fn is_news<T: PartialEq>(
    answers: &mut Answers<T>,
    namespace: &str,
    name: &str,
    answer: Option<Arc<T>>,
) -> bool {
    let place = (namespace.to_owned(), name.to_owned());
    if answers.get(&place) == Some(&answer) {
        return false;
    }
    answers.insert(place, answer);
    true
}

fn named<T>(
    answers: &Answers<T>,
    namespace: &str,
    names: &BTreeSet<String>,
) -> BTreeMap<String, Option<Arc<T>>> {
    let names = names.iter();
    names
        .filter_map(|name| {
            let place = (namespace.to_owned(), name.clone());
            Some((name.clone(), answers.get(&place)?.clone()))
        })
        .collect()
}
