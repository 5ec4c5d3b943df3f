//! An API server in memory for tests: objects by path, versions, watches, patches, and ways to
//! fail. It speaks real HTTP/2 over pipes, so clients under test are the real ones and time may be
//! paused.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use ferrolet_ports::{Clock, Fut};
use ferrolet_types::Timestamp;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Body, Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
    time::Instant,
};

use crate::client::{
    Client, ClientOptions, Rate,
    testing::{Bearer, Dial, Stream},
};

/// The server. Clones are the same server.
#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    /// Every change: version, path, event.
    log: Vec<(u64, String, Value)>,
    version: u64,
    oldest: u64,
    requests: Vec<Seen>,
    refusals: VecDeque<(u16, Value)>,
    /// What a cache that has stopped following the store would show, and up to which version.
    cache: Option<(BTreeMap<String, Value>, u64)>,
    is_away: bool,
    is_silent: bool,
    n_dials: usize,
    connections: Vec<AbortHandle>,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) body: Value,
}

impl FakeApi {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), changed: watch::Sender::new(0) }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(Rate::Unlimited)
    }

    pub(crate) fn client_with(&self, rate: Rate) -> Client {
        let options = ClientOptions { rate, timeout: Duration::from_secs(10) };
        Client::over(Arc::new(self.clone()), "http://fake", Bearer::None, options)
    }

    /// Stores an object as somebody else would.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.with(|state| state.store(path, object));
    }

    pub(crate) fn remove(&self, path: &str) {
        self.with(|state| state.remove(path));
    }

    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    pub(crate) fn objects_under(&self, prefix: &str) -> Vec<Value> {
        let state = self.lock();
        let found = state.objects.iter();
        found
            .filter(|(path, _)| path.starts_with(prefix))
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Answers the next request with this status code and body.
    pub(crate) fn refuse_next(&self, code: u16, body: Value) {
        self.lock().refusals.push_back((code, body));
    }

    /// Forgets every change so far: older watches are told so.
    pub(crate) fn compact(&self) {
        let mut state = self.lock();
        state.oldest = state.version;
        state.log.clear();
    }

    /// The cache in front of the store stops following it: who asks for what is at hand is told old
    /// news, who asks for newer versions that they are too large. Consistent reads go past it.
    pub(crate) fn freeze_cache(&self) {
        let mut state = self.lock();
        state.cache = Some((state.objects.clone(), state.version));
    }

    pub(crate) fn thaw_cache(&self) {
        self.lock().cache = None;
    }

    /// Cuts every connection and refuses new ones, until told otherwise.
    pub(crate) fn go_away(&self) {
        let mut state = self.lock();
        state.is_away = true;
        for connection in state.connections.drain(..) {
            connection.abort();
        }
    }

    pub(crate) fn come_back(&self) {
        self.lock().is_away = false;
    }

    /// Accepts requests and never answers them.
    pub(crate) fn fall_silent(&self, is_silent: bool) {
        self.lock().is_silent = is_silent;
    }

    pub(crate) fn n_dials(&self) -> usize {
        self.lock().n_dials
    }

    /// The requests so far as `METHOD path?query`.
    pub(crate) fn lines(&self) -> Vec<String> {
        let state = self.lock();
        state.requests.iter().map(|it| it.line.clone()).collect()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.lock().requests.clone()
    }

    /// Waits until it holds; checks after every request and change, and gives up after an hour of
    /// paused time.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut changed = self.changed.subscribe();
        let deadline = Instant::now() + Duration::from_secs(3600);
        while !holds(self) {
            let waited = tokio::time::timeout_at(deadline, changed.changed()).await;
            assert!(waited.is_ok(), "never: {what}; saw {:#?}", self.lines());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let answer = act(&mut self.lock());
        self.changed.send_modify(|count| *count += 1);
        answer
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Reply> {
        let (head, body) = request.into_parts();
        let bytes = body.collect().await.map(|body| body.to_bytes());
        let body = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or(Value::Null);
        let path = head.uri.path().to_owned();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let line = match query.is_empty() {
            true => format!("{} {path}", head.method),
            false => format!("{} {path}?{query}", head.method),
        };
        let body_seen = body.clone();
        let refusal = self.with(|state| {
            state.requests.push(Seen { line, body: body_seen });
            state.refusals.pop_front()
        });
        if self.lock().is_silent {
            std::future::pending::<()>().await;
        }
        if let Some((code, body)) = refusal {
            return reply(code, &body);
        }
        let query = Query::new(&query);
        if let Some((code, body)) = self.lock().too_new(&query) {
            return reply(code, &body);
        }
        if query.get("watch").is_some() {
            return self.watch(&path, &query);
        }
        let (code, body) = self.with(|state| state.serve(&head.method, &path, &query, body));
        reply(code, &body)
    }

    fn watch(&self, path: &str, query: &Query) -> Response<Reply> {
        let (sender, receiver) = mpsc::channel(64);
        let api = self.clone();
        let (path, selector) = (format!("{path}/"), query.get("fieldSelector"));
        let mut at: u64 =
            query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        let mut changed = self.changed.subscribe();
        tokio::spawn(async move {
            loop {
                changed.mark_unchanged();
                let (is_gone, events) = {
                    let state = api.lock();
                    let fresh = state.log.iter().filter(|(version, place, event)| {
                        *version > at
                            && matches_path(place, &path)
                            && selects(selector.as_deref(), &event["object"])
                    });
                    let fresh: Vec<(u64, Value)> =
                        fresh.map(|(version, _, event)| (*version, event.clone())).collect();
                    (at < state.oldest, fresh)
                };
                if is_gone {
                    let status = json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure",
                        "reason": "Expired", "code": 410, "message": "too old resource version"}});
                    let _ = sender.send(line(&status)).await;
                    return;
                }
                for (version, event) in events {
                    at = version;
                    if sender.send(line(&event)).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    _ = changed.changed() => {}
                    () = sender.closed() => return,
                }
            }
        });
        Response::new(Reply::Stream(receiver))
    }
}

impl State {
    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        let before = self.objects.insert(path.to_owned(), object.clone());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        let event = json!({"type": kind, "object": object});
        self.log.push((self.version, path.to_owned(), event));
        object
    }

    fn remove(&mut self, path: &str) -> Option<Value> {
        let mut object = self.objects.remove(path)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let event = json!({"type": "DELETED", "object": object});
        self.log.push((self.version, path.to_owned(), event));
        Some(object)
    }

    fn serve(&mut self, method: &Method, path: &str, query: &Query, body: Value) -> (u16, Value) {
        let object_path =
            path.strip_suffix("/status").or_else(|| path.strip_suffix("/approval")).unwrap_or(path);
        match *method {
            Method::GET => match self.objects.get(path) {
                Some(object) => (200, object.clone()),
                None if is_collection(path) => (200, self.list(path, query)),
                None => no(404, "NotFound"),
            },
            Method::POST if path.ends_with("/token") => {
                let secs = body["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
                self.version += 1;
                let expires = now().after(Duration::from_secs(secs.unsigned_abs()));
                let token = format!("token-{}", self.version);
                let status = json!({"token": token, "expirationTimestamp": expires.to_string()});
                (201, json!({"metadata": {}, "spec": body["spec"], "status": status}))
            }
            Method::POST => {
                let mut object = body;
                if object["metadata"]["name"].is_null() {
                    let prefix = object["metadata"]["generateName"].as_str().unwrap_or("x-");
                    object["metadata"]["name"] = json!(format!("{prefix}{}", self.version + 1));
                }
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{path}/{name}");
                if self.objects.contains_key(&path) {
                    return no(409, "AlreadyExists");
                }
                (201, self.store(&path, object))
            }
            Method::PUT => match self.objects.get(object_path) {
                None => no(404, "NotFound"),
                Some(current)
                    if current["metadata"]["resourceVersion"]
                        != body["metadata"]["resourceVersion"] =>
                {
                    no(409, "Conflict")
                }
                Some(_) => (200, self.store(object_path, body)),
            },
            Method::PATCH => match self.objects.get(object_path).cloned() {
                None => no(404, "NotFound"),
                Some(mut current) => {
                    merge(&mut current, body);
                    (200, self.store(object_path, current))
                }
            },
            Method::DELETE => {
                let wanted = body["preconditions"]["uid"].as_str();
                match self.objects.get(path) {
                    None => no(404, "NotFound"),
                    Some(object)
                        if wanted.is_some() && object["metadata"]["uid"].as_str() != wanted =>
                    {
                        no(409, "Conflict")
                    }
                    Some(_) => (200, self.remove(path).unwrap_or_default()),
                }
            }
            _ => no(405, "MethodNotAllowed"),
        }
    }

    /// The refusal of a version that the cache has not reached.
    fn too_new(&self, query: &Query) -> Option<(u16, Value)> {
        let wanted: u64 = query.get("resourceVersion")?.parse().ok()?;
        let (_, reached) = self.cache.as_ref().filter(|(_, reached)| wanted > *reached)?;
        let message = format!("Too large resource version: {wanted}, current: {reached}");
        let (code, mut status) = no(504, "Timeout");
        status["message"] = json!(message);
        status["details"] = json!({"retryAfterSeconds": 1, "causes": [
            {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
        Some((code, status))
    }

    fn list(&self, path: &str, query: &Query) -> Value {
        let prefix = format!("{path}/");
        let selector = query.get("fieldSelector");
        let at_hand = (&self.objects, self.version);
        let (objects, version) = match (&self.cache, query.get("resourceVersion")) {
            (Some((objects, version)), Some(_)) => (objects, *version),
            _ => at_hand,
        };
        let items: Vec<&Value> = objects
            .iter()
            .filter(|(place, object)| {
                matches_path(place, &prefix) && selects(selector.as_deref(), object)
            })
            .map(|(_, object)| object)
            .collect();
        // The real server says what kind of list it is, and the decoder insists on it.
        let (kind, api_version) = match path.rsplit('/').next().unwrap_or_default() {
            "pods" => ("PodList", "v1"),
            "secrets" => ("SecretList", "v1"),
            "configmaps" => ("ConfigMapList", "v1"),
            "services" => ("ServiceList", "v1"),
            "nodes" => ("NodeList", "v1"),
            "runtimeclasses" => ("RuntimeClassList", "node.k8s.io/v1"),
            "certificatesigningrequests" => {
                ("CertificateSigningRequestList", "certificates.k8s.io/v1")
            }
            "clustertrustbundles" => ("ClusterTrustBundleList", "certificates.k8s.io/v1"),
            other => panic!("no list kind for {other}"),
        };
        let version = version.to_string();
        json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": version}, "items": items})
    }
}

/// `/api/v1/pods/` also covers every namespace's pods.
fn matches_path(path: &str, prefix: &str) -> bool {
    if path.starts_with(prefix) {
        return true;
    }
    let collection = prefix.trim_end_matches('/').rsplit('/').next();
    let parts: Vec<&str> = path.rsplitn(3, '/').collect();
    !prefix.contains("/namespaces/") && parts.get(1).copied() == collection
}

fn is_collection(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    let known = [
        "pods",
        "secrets",
        "configmaps",
        "services",
        "nodes",
        "runtimeclasses",
        "certificatesigningrequests",
        "clustertrustbundles",
    ];
    known.contains(&last)
}

fn selects(selector: Option<&str>, object: &Value) -> bool {
    let Some((field, value)) = selector.and_then(|selector| selector.split_once('=')) else {
        return true;
    };
    let pointer = format!("/{}", field.replace('.', "/"));
    object.pointer(&pointer).and_then(Value::as_str) == Some(value)
}

fn merge(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(&key);
                } else {
                    merge(target.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (target, patch) => *target = patch,
    }
}

fn no(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": reason});
    (code, status)
}

fn reply(code: u16, body: &Value) -> Response<Reply> {
    let body = Reply::Whole(Some(Bytes::from(body.to_string())));
    Response::builder().status(code).body(body).unwrap()
}

fn line(event: &Value) -> Bytes {
    Bytes::from(format!("{event}\n"))
}

struct Query(Vec<(String, String)>);

impl Query {
    fn new(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        let plain = |text: &str| text.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
        Self(pairs.map(|(key, value)| (key.to_owned(), plain(value))).collect())
    }

    fn get(&self, key: &str) -> Option<String> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.clone())
    }
}

enum Reply {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(receiver) => {
                receiver.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }
}

impl Dial for FakeApi {
    fn peer(&self) -> String {
        "the fake".to_owned()
    }

    fn dial(&self) -> Fut<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let is_away = {
                let mut state = self.lock();
                state.n_dials += 1;
                state.is_away
            };
            if is_away {
                self.changed.send_modify(|count| *count += 1);
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (near, far) = tokio::io::duplex(1 << 20);
            let api = self.clone();
            let served = tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let api = api.clone();
                    async move { Ok::<_, Infallible>(api.answer(request).await) }
                });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .max_concurrent_streams(100)
                    .serve_connection(TokioIo::new(far), service);
                let _ = server.await;
            });
            self.lock().connections.push(served.abort_handle());
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

/// The fake server's idea of now: a fixed start plus what tokio's clock has elapsed.
pub(crate) fn now() -> Timestamp {
    TokioClock.now()
}

/// A wall clock that follows tokio's, paused or not.
pub(crate) struct TokioClock;

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        thread_local!(static BEGAN: Instant = Instant::now());
        Timestamp::from_second(1_800_000_000).after(BEGAN.with(Instant::elapsed))
    }
}
