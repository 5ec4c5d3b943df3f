//! The API server as the reporting loops know it, in memory: pods and one node, with identities and
//! resource versions.
//!
//! Keeps what the real one promises: creation refuses a name that is taken, a patch or deletion
//! refuses another identity, every change raises the resource version and shows in the watches. It
//! can be down, slow, or refuse the next requests. What was asked of it, and when, stays in
//! [`FakeClusterApi::requests`]. Refuses: validation, defaults, admission, garbage collection.

mod feeds;
mod merge;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrolet_ports::{ApiError, ApiErrorKind, ClusterApi, Fut};
use ferrolet_types::{GracePeriod, Pod, PodKey, PodUid, Timestamp, pod::PodView as _};
use k8s_openapi::api::core::v1::{self as api, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

pub use feeds::{FakeFeeds, NoServices};

/// Wall time of deletions and creations: 2026-01-01T00:00:00Z plus what tokio's clock has elapsed.
const BEGINNING: i64 = 1_767_225_600;

/// One request as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// When it arrived.
    pub at: Instant,
    /// `patch pod status`, `create node`, …
    pub verb: &'static str,
    /// What it was about: `namespace/name`, or the node's name.
    pub name: String,
    /// The body of a patch.
    pub patch: Option<Value>,
    /// Whether it did what it should.
    pub is_ok: bool,
}

/// An API server in memory. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct FakeClusterApi {
    inner: Arc<Inner>,
}

struct Inner {
    origin: Instant,
    state: Mutex<State>,
    pods: watch::Sender<Vec<Pod>>,
    node: watch::Sender<Option<Arc<Node>>>,
    requests: watch::Sender<usize>,
    is_up: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    node_name: String,
    version: u64,
    n_made: u64,
    pods: BTreeMap<PodKey, Pod>,
    node: Option<Arc<Node>>,
    is_down: bool,
    latency: Duration,
    lag: Duration,
    refusals: VecDeque<ApiErrorKind>,
    requests: Vec<Request>,
    n_under_way: usize,
    most_under_way: usize,
    n_reconnects: usize,
}

impl FakeClusterApi {
    /// An empty cluster whose one node, once it registers, has that name.
    pub fn new(node_name: &str) -> Self {
        let state = State { node_name: node_name.to_owned(), ..State::default() };
        Self {
            inner: Arc::new(Inner {
                origin: Instant::now(),
                state: Mutex::new(state),
                pods: watch::Sender::new(Vec::new()),
                node: watch::Sender::new(None),
                requests: watch::Sender::new(0),
                is_up: watch::Sender::new(true),
            }),
        }
    }

    /// Stops or starts the server.
    pub fn set_down(&self, is_down: bool) {
        self.locked(|state| state.is_down = is_down);
        self.inner.is_up.send_replace(!is_down);
    }

    /// Makes what its feeds tell arrive that late.
    pub fn set_lag(&self, lag: Duration) {
        self.locked(|state| state.lag = lag);
    }

    /// Waits until what is stored has reached those who watch.
    async fn delivered(&self) {
        let lag = self.locked(|state| state.lag);
        if !lag.is_zero() {
            tokio::time::sleep(lag).await;
        }
        // The sender lives as long as the server.
        let _ = self.inner.is_up.subscribe().wait_for(|is_up| *is_up).await;
    }

    /// Makes every request take that long.
    pub fn set_latency(&self, latency: Duration) {
        self.locked(|state| state.latency = latency);
    }

    /// Refuses one more of the next requests in that way.
    pub fn refuse_next(&self, kind: ApiErrorKind) {
        self.locked(|state| state.refusals.push_back(kind));
    }

    /// Puts a pod there, as somebody else's request would; it keeps its UID if it has one. Answers
    /// with what is stored.
    pub fn put_pod(&self, pod: &api::Pod) -> Pod {
        self.change(|state, _| state.store_pod(pod.clone()))
    }

    /// Takes a pod away, as somebody else's request would.
    pub fn remove_pod(&self, key: &PodKey) {
        self.change(|state, _| state.pods.remove(key));
    }

    /// Changes a stored pod, as somebody else's request would.
    pub fn edit_pod(&self, key: &PodKey, edit: impl FnOnce(&mut api::Pod)) {
        self.change(|state, _| {
            if let Some(pod) = state.pods.get(key) {
                let mut pod = api::Pod::clone(pod);
                edit(&mut pod);
                state.store_pod(pod);
            }
        });
    }

    /// A stored pod.
    pub fn pod(&self, key: &PodKey) -> Option<Pod> {
        self.locked(|state| state.pods.get(key).cloned())
    }

    /// Puts the node there, as somebody else's request would.
    pub fn put_node(&self, node: &Node) {
        self.change(|state, _| state.store_node(node.clone()));
    }

    /// Changes the stored node, as somebody else's request would.
    pub fn edit_node(&self, edit: impl FnOnce(&mut Node)) {
        self.change(|state, _| {
            if let Some(node) = &state.node {
                let mut node = Node::clone(node);
                edit(&mut node);
                state.store_node(node);
            }
        });
    }

    /// Takes the node away, as `kubectl delete node` would.
    pub fn remove_node(&self) {
        self.change(|state, _| state.node = None);
    }

    /// The stored node.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.locked(|state| state.node.clone())
    }

    /// Every pod, again at each change; like a watch, it is silent while the server is down.
    pub fn watch_pods(&self) -> watch::Receiver<Vec<Pod>> {
        self.inner.pods.subscribe()
    }

    /// The node, again at each change.
    pub fn watch_node(&self) -> watch::Receiver<Option<Arc<Node>>> {
        self.inner.node.subscribe()
    }

    /// Every request so far, in the order of their ends.
    pub fn requests(&self) -> Vec<Request> {
        self.locked(|state| state.requests.clone())
    }

    /// The most requests that were under way at once.
    pub fn most_under_way(&self) -> usize {
        self.locked(|state| state.most_under_way)
    }

    /// How often the heartbeat's connections were dropped.
    pub fn n_reconnects(&self) -> usize {
        self.locked(|state| state.n_reconnects)
    }

    /// Waits until `is_true` holds, looking again after every request and change; panics, naming
    /// `what`, when patience ends.
    pub async fn until(
        &self,
        what: &str,
        patience: Duration,
        mut is_true: impl FnMut(&Self) -> bool,
    ) {
        let deadline = Instant::now() + patience;
        let mut requests = self.inner.requests.subscribe();
        let (mut pods, mut node) = (self.watch_pods(), self.watch_node());
        while !is_true(self) {
            let has_news = async {
                tokio::select! {
                    _ = requests.changed() => {}
                    _ = pods.changed() => {}
                    _ = node.changed() => {}
                }
            };
            let is_late = tokio::time::timeout_at(deadline, has_news).await.is_err();
            assert!(
                !is_late || is_true(self),
                "waited {patience:?} in vain for: {what}; the requests: {:#?}",
                self.requests()
            );
        }
    }

    fn now(&self) -> Time {
        Time(Timestamp::from_second(BEGINNING).after(self.inner.origin.elapsed()).0)
    }

    fn locked<T>(&self, access: impl FnOnce(&mut State) -> T) -> T {
        let locked = self.inner.state.lock();
        access(&mut locked.unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what is stored and tells the watches.
    fn change<T>(&self, change: impl FnOnce(&mut State, Time) -> T) -> T {
        let now = self.now();
        let (answer, pods, node) = self.locked(|state| {
            let answer = change(state, now);
            let pods: Vec<Pod> = state.pods.values().cloned().collect();
            (answer, pods, state.node.clone())
        });
        self.inner.pods.send_if_modified(|known| {
            let is_new = *known != pods;
            *known = pods;
            is_new
        });
        self.inner.node.send_if_modified(|known| {
            let is_new = *known != node;
            *known = node;
            is_new
        });
        answer
    }

    /// One request: its way there, what it does, its way back.
    async fn serve<T>(
        &self,
        verb: &'static str,
        name: String,
        patch: Option<&Value>,
        deed: impl FnOnce(&mut State, Time) -> Result<T, (ApiErrorKind, String)>,
    ) -> Result<T, ApiError> {
        let latency = self.locked(|state| {
            state.n_under_way += 1;
            state.most_under_way = state.most_under_way.max(state.n_under_way);
            state.latency
        });
        let guard = UnderWay(self);
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        drop(guard);
        let answer = self.change(|state, now| {
            if state.is_down {
                let message = "connect: connection refused".to_owned();
                return Err((ApiErrorKind::Unavailable, message));
            }
            match state.refusals.pop_front() {
                Some(kind) => Err((kind, "refused by the test".to_owned())),
                None => deed(state, now),
            }
        });
        let request = Request {
            at: Instant::now(),
            verb,
            name: name.clone(),
            patch: patch.cloned(),
            is_ok: answer.is_ok(),
        };
        self.locked(|state| state.requests.push(request));
        self.inner.requests.send_modify(|n| *n += 1);
        answer.map_err(|(kind, message)| ApiError {
            attempt: format!("{verb} {name}"),
            kind,
            message,
            code: None,
            causes: Vec::new(),
        })
    }

    fn node_name(&self) -> String {
        self.locked(|state| state.node_name.clone())
    }
}

/// Counts a request as under way until it is answered or abandoned.
struct UnderWay<'a>(&'a FakeClusterApi);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.locked(|state| state.n_under_way -= 1);
    }
}

impl State {
    fn stamp(&mut self, metadata: &mut ObjectMeta, kind: &str) {
        self.version += 1;
        metadata.resource_version = Some(self.version.to_string());
        if metadata.uid.is_none() {
            self.n_made += 1;
            metadata.uid = Some(format!("{kind}-{}", self.n_made));
        }
    }

    fn store_pod(&mut self, mut pod: api::Pod) -> Pod {
        self.stamp(&mut pod.metadata, "pod");
        let pod: Pod = Arc::new(pod);
        self.pods.insert(pod.key(), pod.clone());
        pod
    }

    fn store_node(&mut self, mut node: Node) -> Arc<Node> {
        self.stamp(&mut node.metadata, "node");
        let node = Arc::new(node);
        self.node = Some(node.clone());
        node
    }

    fn find_pod(&self, key: &PodKey) -> Result<Pod, (ApiErrorKind, String)> {
        let found = self.pods.get(key).cloned();
        found.ok_or_else(|| (ApiErrorKind::NotFound, format!("pods \"{}\" not found", key.name)))
    }

    fn patch_node(&mut self, patch: &Value) -> Result<Node, (ApiErrorKind, String)> {
        let Some(node) = &self.node else {
            let message = format!("nodes \"{}\" not found", self.node_name);
            return Err((ApiErrorKind::NotFound, message));
        };
        let node = merge::apply(&**node, patch).map_err(|it| (ApiErrorKind::BadRequest, it))?;
        Ok(Node::clone(&self.store_node(node)))
    }
}

fn has_identity(pod: &Pod, uid: &str) -> Result<(), (ApiErrorKind, String)> {
    if pod.uid().as_str() == uid {
        return Ok(());
    }
    let message = format!(
        "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
        pod.uid()
    );
    Err((ApiErrorKind::Conflict, message))
}

impl ClusterApi for FakeClusterApi {
    fn get_pod<'a>(&'a self, key: &'a PodKey) -> Fut<'a, Result<Pod, ApiError>> {
        let deed = |state: &mut State, _| state.find_pod(key);
        Box::pin(self.serve("get pod", key.to_string(), None, deed))
    }

    fn create_pod<'a>(&'a self, pod: &'a Pod) -> Fut<'a, Result<Pod, ApiError>> {
        let deed = |state: &mut State, now| {
            if state.pods.contains_key(&pod.key()) {
                let message = format!("pods \"{}\" already exists", pod.key().name);
                return Err((ApiErrorKind::AlreadyExists, message));
            }
            let mut made = api::Pod::clone(pod);
            made.metadata.uid = None;
            made.metadata.creation_timestamp = Some(now);
            made.status =
                Some(api::PodStatus { phase: Some("Pending".to_owned()), ..Default::default() });
            Ok(state.store_pod(made))
        };
        Box::pin(self.serve("create pod", pod.key().to_string(), None, deed))
    }

    fn patch_pod_status<'a>(
        &'a self,
        key: &'a PodKey,
        patch: &'a Value,
    ) -> Fut<'a, Result<Pod, ApiError>> {
        let deed = |state: &mut State, _| {
            let pod = state.find_pod(key)?;
            if let Some(uid) = patch["metadata"]["uid"].as_str() {
                has_identity(&pod, uid)?;
            }
            let pod = merge::apply(&*pod, patch).map_err(|it| (ApiErrorKind::BadRequest, it))?;
            Ok(state.store_pod(pod))
        };
        Box::pin(self.serve("patch pod status", key.to_string(), Some(patch), deed))
    }

    fn delete_pod<'a>(
        &'a self,
        key: &'a PodKey,
        uid: &'a PodUid,
        grace: Option<GracePeriod>,
    ) -> Fut<'a, Result<(), ApiError>> {
        let deed = move |state: &mut State, now| {
            let pod = state.find_pod(key)?;
            has_identity(&pod, uid.as_str())?;
            let grace = grace.unwrap_or_else(|| pod.grace_period());
            if grace.0.is_zero() {
                state.pods.remove(key);
            } else {
                let mut pod = api::Pod::clone(&pod);
                pod.metadata.deletion_timestamp = Some(now);
                pod.metadata.deletion_grace_period_seconds = Some(grace.as_secs());
                state.store_pod(pod);
            }
            Ok(())
        };
        Box::pin(self.serve("delete pod", key.to_string(), None, deed))
    }

    fn get_node(&self) -> Fut<'_, Result<Node, ApiError>> {
        let deed = |state: &mut State, _| match &state.node {
            Some(node) => Ok(Node::clone(node)),
            None => Err((ApiErrorKind::NotFound, "node not found".to_owned())),
        };
        Box::pin(self.serve("get node", self.node_name(), None, deed))
    }

    fn create_node<'a>(&'a self, node: &'a Node) -> Fut<'a, Result<Node, ApiError>> {
        let deed = |state: &mut State, now| {
            if state.node.is_some() {
                let message = "node already exists".to_owned();
                return Err((ApiErrorKind::AlreadyExists, message));
            }
            let mut made = node.clone();
            made.metadata.uid = None;
            made.metadata.creation_timestamp = Some(now);
            Ok(Node::clone(&state.store_node(made)))
        };
        Box::pin(self.serve("create node", self.node_name(), None, deed))
    }

    fn patch_node<'a>(&'a self, patch: &'a Value) -> Fut<'a, Result<Node, ApiError>> {
        let deed = |state: &mut State, _| state.patch_node(patch);
        Box::pin(self.serve("patch node", self.node_name(), Some(patch), deed))
    }

    fn patch_node_status<'a>(&'a self, patch: &'a Value) -> Fut<'a, Result<Node, ApiError>> {
        let deed = |state: &mut State, _| state.patch_node(patch);
        Box::pin(self.serve("patch node status", self.node_name(), Some(patch), deed))
    }

    fn reconnect(&self) {
        self.locked(|state| state.n_reconnects += 1);
    }
}
