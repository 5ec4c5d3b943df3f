//! A stand-in for an API server, where a real one is too heavy: in a virtual machine whose
//! processor is emulated.
//!
//! It keeps whatever it is given, numbers the versions, answers lists and watches, and merges
//! patches without asking what they mean. Enough for one agent to join and to be handed pods;
//! nothing is validated, nobody is asked who they are, and nothing is ever deleted. What a real API
//! server does with pods is the business of the tests in the groups `cluster_…`. Ends with the
//! process.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::thread;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

type Reply = Response<BoxBody<Bytes, Infallible>>;

/// A running stand-in.
pub struct StandIn {
    port: u16,
    shelf: Arc<Shelf>,
}

struct Shelf {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<Key, Stored>,
}

/// The collection's name, the namespace and the name.
type Key = (String, String, String);

struct Stored {
    version: u64,
    object: Value,
}

/// What a path and its query ask for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    /// As objects of the collection call it: `v1`, `coordination.k8s.io/v1`.
    api_version: String,
    collection: String,
    namespace: String,
    name: Option<String>,
    /// From this version on, without an end.
    watches_from: Option<u64>,
    /// Only the object of this name.
    only: Option<String>,
}

impl StandIn {
    /// Starts to answer on loopback.
    pub fn start() -> Result<StandIn> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        listener.set_nonblocking(true)?;
        let shelf = Arc::new(Shelf { state: Mutex::default(), changed: watch::Sender::new(0) });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let shared = Arc::clone(&shelf);
        thread::spawn(move || runtime.block_on(listen(listener, shared)));
        Ok(StandIn { port, shelf })
    }

    /// A kubeconfig that leads here.
    #[must_use]
    pub fn kubeconfig(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{}", self.port)}}],
            "users": [{"name": "u", "user": {"token": "anybody"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        })
    }

    /// Takes an object in, as somebody with kubectl would put it there.
    pub fn put(&self, collection: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let key = (collection.to_owned(), namespace.to_owned(), name.to_owned());
        self.shelf.store(key, object);
    }

    /// The object of this name, if there is one.
    #[must_use]
    pub fn find(&self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (collection.to_owned(), namespace.to_owned(), name.to_owned());
        let state = self.shelf.lock();
        state.objects.get(&key).map(|it| it.object.clone())
    }
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn store(&self, key: Key, mut object: Value) -> Value {
        let mut state = self.lock();
        state.version += 1;
        let version = state.version;
        let known = state.objects.get(&key);
        let uid = known.map(|it| it.object["metadata"]["uid"].clone());
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = uid.unwrap_or_else(|| json!(format!("stand-in-{version}")));
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        metadata["resourceVersion"] = json!(version.to_string());
        let stored = Stored { version, object: object.clone() };
        state.objects.insert(key, stored);
        drop(state);
        self.changed.send_replace(version);
        object
    }

    fn answer(&self, method: &Method, asked: &Asked, body: Value) -> Reply {
        let Some(name) = &asked.name else {
            return match *method {
                Method::POST => self.create(asked, body),
                _ => reply(StatusCode::OK, &self.list(asked)),
            };
        };
        let key = (asked.collection.clone(), asked.namespace.clone(), name.clone());
        let found = self.lock().objects.get(&key).map(|it| it.object.clone());
        let Some(mut object) = found else {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        };
        match *method {
            Method::GET => reply(StatusCode::OK, &object),
            Method::PUT => reply(StatusCode::OK, &self.store(key, body)),
            Method::PATCH => {
                merge(&mut object, body);
                reply(StatusCode::OK, &self.store(key, object))
            }
            _ => failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
        }
    }

    fn create(&self, asked: &Asked, object: Value) -> Reply {
        let Some(name) = object["metadata"]["name"].as_str() else {
            // A review or a token: whoever asks is told what they said.
            return reply(StatusCode::CREATED, &object);
        };
        let key = (asked.collection.clone(), asked.namespace.clone(), name.to_owned());
        if self.lock().objects.contains_key(&key) {
            return failure(StatusCode::CONFLICT, "AlreadyExists");
        }
        reply(StatusCode::CREATED, &self.store(key, object))
    }

    fn list(&self, asked: &Asked) -> Value {
        let state = self.lock();
        let items: Vec<&Value> = state.changes(asked, 0).into_iter().map(|it| &it.object).collect();
        json!({
            "apiVersion": asked.api_version,
            "kind": format!("{}List", kind_of(&asked.collection)),
            "metadata": {"resourceVersion": state.version.to_string()},
            "items": items,
        })
    }

    /// Sends what changes from a version on, until nobody listens.
    async fn tell(self: Arc<Self>, asked: Asked, mut since: u64, lines: mpsc::Sender<Bytes>) {
        let mut changed = self.changed.subscribe();
        loop {
            let news: Vec<String> = {
                let state = self.lock();
                let changes = state.changes(&asked, since);
                since = state.version;
                let line = |it: &&Stored| {
                    format!("{}\n", json!({"type": "MODIFIED", "object": it.object}))
                };
                changes.iter().map(line).collect()
            };
            for line in news {
                if lines.send(Bytes::from(line)).await.is_err() {
                    return;
                }
            }
            // Cancel-safe: whatever is missed here is found by its version.
            tokio::select! {
                _ = changed.changed() => {}
                () = lines.closed() => return,
            }
        }
    }
}

impl State {
    /// What is newer than a version, the oldest first.
    fn changes(&self, asked: &Asked, since: u64) -> Vec<&Stored> {
        let is_asked_for = |(key, stored): &(&Key, &Stored)| {
            let (collection, namespace, name) = key;
            *collection == asked.collection
                && (asked.namespace.is_empty() || *namespace == asked.namespace)
                && asked.only.as_ref().is_none_or(|it| it == name)
                && stored.version > since
        };
        let mut found: Vec<&Stored> =
            self.objects.iter().filter(is_asked_for).map(|(_, stored)| stored).collect();
        found.sort_by_key(|it| it.version);
        found
    }
}

/// Reads `/api/v1/namespaces/n/pods/p/status?watch=1&…`; a subresource is its object.
fn parse(path: &str, query: &str) -> Option<Asked> {
    let mut words: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
    let api_version = match words.as_slice() {
        ["api", version, ..] => (*version).to_owned(),
        ["apis", group, version, ..] => format!("{group}/{version}"),
        _ => return None,
    };
    words.drain(..if words[0] == "api" { 2 } else { 3 });
    let mut namespace = String::new();
    if let ["namespaces", name, _, ..] = words.as_slice() {
        namespace = (*name).to_owned();
        words.drain(..2);
    }
    let value = |key: &str| {
        query.split('&').find_map(|it| {
            let (name, value) = it.split_once('=')?;
            (name == key).then_some(value)
        })
    };
    let only = value("fieldSelector").and_then(|it| {
        let it = it.replace("%3D", "=");
        it.strip_prefix("metadata.name=").map(str::to_owned)
    });
    let watches = value("watch").is_some_and(|it| matches!(it, "1" | "true"));
    let since = value("resourceVersion").and_then(|it| it.parse().ok());
    Some(Asked {
        api_version,
        collection: (*words.first()?).to_owned(),
        namespace,
        name: words.get(1).map(|it| (*it).to_owned()),
        watches_from: watches.then(|| since.unwrap_or(0)),
        only,
    })
}

/// What the objects of a collection are called.
fn kind_of(collection: &str) -> &str {
    match collection {
        "pods" => "Pod",
        "nodes" => "Node",
        "services" => "Service",
        "secrets" => "Secret",
        "configmaps" => "ConfigMap",
        "leases" => "Lease",
        "runtimeclasses" => "RuntimeClass",
        "csidrivers" => "CSIDriver",
        "csinodes" => "CSINode",
        other => other,
    }
}

/// Lays a patch over an object; null takes a field away.
fn merge(base: &mut Value, change: Value) {
    match (base, change) {
        (Value::Object(base), Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    base.remove(&key);
                } else {
                    merge(base.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (base, change) => *base = change,
    }
}

fn reply(status: StatusCode, body: &Value) -> Reply {
    let body = Full::new(Bytes::from(body.to_string())).boxed();
    with_status(status, body)
}

fn failure(status: StatusCode, reason: &str) -> Reply {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "reason": reason, "message": reason, "code": status.as_u16(),
    });
    reply(status, &body)
}

fn with_status(status: StatusCode, body: BoxBody<Bytes, Infallible>) -> Reply {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A body whose lines come from elsewhere.
struct Lines(mpsc::Receiver<Bytes>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let line = self.0.poll_recv(context);
        line.map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

async fn listen(listener: TcpListener, shelf: Arc<Shelf>) {
    let listener = tokio::net::TcpListener::from_std(listener)
        .expect("the listener does not block and the runtime has a driver");
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let shelf = Arc::clone(&shelf);
        let service = service_fn(move |request| serve(Arc::clone(&shelf), request));
        tokio::spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new());
            // A client that goes away half-way is its own problem.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(shelf: Arc<Shelf>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map(|body| body.to_bytes());
    let body = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or(Value::Null);
    let Some(asked) = parse(head.uri.path(), head.uri.query().unwrap_or_default()) else {
        return Ok(failure(StatusCode::NOT_FOUND, "NotFound"));
    };
    if let Some(since) = asked.watches_from {
        let (lines, body) = mpsc::channel(16);
        tokio::spawn(shelf.tell(asked, since, lines));
        return Ok(with_status(StatusCode::OK, Lines(body).boxed()));
    }
    Ok(shelf.answer(&head.method, &asked, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    #[test]
    fn paths_name_collections_objects_and_watches() {
        let asked = |collection: &str, namespace: &str, name: Option<&str>| Asked {
            api_version: "v1".to_owned(),
            collection: collection.to_owned(),
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
            watches_from: None,
            only: None,
        };
        let check = |path: &str, query: &str, expected: Option<Asked>| {
            assert_eq!(parse(path, query), expected, "{path}?{query}");
        };
        check("/healthz", "", None);
        check("/api/v1/nodes", "", Some(asked("nodes", "", None)));
        check("/api/v1/namespaces/a/pods/p/status", "", Some(asked("pods", "a", Some("p"))));
        check(
            "/apis/coordination.k8s.io/v1/namespaces/n/leases/x",
            "",
            Some(Asked {
                api_version: "coordination.k8s.io/v1".to_owned(),
                ..asked("leases", "n", Some("x"))
            }),
        );
        check(
            "/api/v1/nodes",
            "watch=1&resourceVersion=7&fieldSelector=metadata.name%3Dn",
            Some(Asked {
                watches_from: Some(7),
                only: Some("n".to_owned()),
                ..asked("nodes", "", None)
            }),
        );
    }

    #[test]
    fn what_is_put_there_is_listed_with_a_version() {
        let server = StandIn::start().unwrap();
        let address = format!("127.0.0.1:{}", server.port);
        server.put("pods", json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}));
        let list = http::get(&address, "/api/v1/pods").unwrap();
        let list: Value = serde_json::from_str(&list.body).unwrap();
        assert_eq!(list["kind"], "PodList");
        assert_eq!(list["items"][0]["metadata"]["resourceVersion"], "1");
        let missing = http::get(&address, "/api/v1/namespaces/n/pods/q").unwrap();
        assert_eq!(missing.status, 404);
        assert!(server.find("pods", "n", "p").is_some());
    }
}
