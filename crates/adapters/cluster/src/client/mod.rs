//! The thin client: typed verbs over HTTP/2 with a rate, a timeout and typed errors.
//!
//! One [`Client`] is one set of connections with one rate; work, events and heartbeat have one
//! each, so that none of them can be late because of another. Clones share everything. Objects are
//! JSON and lose their `managedFields` before they are decoded. Watches and lists that watches
//! begin with do not count against the rate: their number is bounded by what pods refer to, and a
//! pod should not wait for its own status reports. Refuses: retries; the loop that asks knows
//! better.

mod credentials;
mod dial;
mod failure;
mod frames;
mod lines;
mod listed;
mod metrics;
mod place;
mod transport;

#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use ferrolet_ports::{ApiError, ApiErrorKind, ReadFile};
use ferrolet_types::PodUid;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use k8s_openapi::{
    ListableResource,
    apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

pub(crate) use credentials::Told;
pub use dial::AddressError;
pub use frames::Frames;
pub use listed::{Listed, Unreadable};
pub use place::{Place, Selector};

use crate::{answer, decode, kubeconfig::Access, rate::Bucket, tls::Identity};
use credentials::Bearer;
use dial::{Dial, Remote};
use failure::{broken, malformed, retry_after, unsendable};
use place::with_query;
use transport::{Answer, Transport, TransportError};

/// What the server reads in its audit log.
pub const USER_AGENT: &str = "kubelet/v1.37.1 (linux/amd64) ferrolet/0.1.0";
/// A list of everything a node can see is far below this; an answer beyond it is a mistake.
const MAX_ANSWER: usize = 512 << 20;
/// A refusal longer than this is not a `Status`.
const MAX_REFUSAL: usize = 1 << 20;

/// How often a client may ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// As often as it likes.
    Unlimited,
    /// So many a second, and so many at once.
    Limited {
        /// Requests a second.
        per_second: f64,
        /// Requests at once.
        burst: u32,
    },
}

impl Rate {
    fn bucket(self) -> Option<Bucket> {
        match self {
            Self::Unlimited => None,
            Self::Limited { per_second, burst } => Some(Bucket::new(per_second, burst)),
        }
    }
}

/// What distinguishes one client from another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientOptions {
    /// How often it may ask.
    pub rate: Rate,
    /// How long it waits for an answer.
    pub timeout: Duration,
}

/// How a patch is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// Lists are merged by their keys.
    StrategicMerge,
    /// Lists are replaced.
    Merge,
    /// A list of operations.
    Json,
}

impl PatchKind {
    fn content_type(self) -> &'static str {
        match self {
            Self::StrategicMerge => "application/strategic-merge-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
        }
    }
}

/// A client of the API server.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    transport: Transport,
    server: String,
    /// As metrics name it.
    host: String,
    bearer: Bearer,
    bucket: Mutex<Option<Bucket>>,
    began: Instant,
    timeout: Duration,
    /// The last request got no answer.
    is_away: AtomicBool,
    /// How often the server came back.
    returns: watch::Sender<u64>,
}

impl Client {
    /// A client for this server. Opens no connection until the first request.
    pub fn new(
        access: &Access,
        identity: &Identity,
        files: &Arc<dyn ReadFile>,
        options: ClientOptions,
    ) -> Result<Self, AddressError> {
        let dial = Arc::new(Remote::new(access, identity)?);
        let bearer = Bearer::new(&access.credentials, files);
        Ok(Self::over(dial, &access.server, bearer, options))
    }

    pub(crate) fn over(
        dial: Arc<dyn Dial>,
        server: &str,
        bearer: Bearer,
        options: ClientOptions,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                transport: Transport::new(dial),
                host: metrics::host_of(server),
                server: server.to_owned(),
                bearer,
                bucket: Mutex::new(options.rate.bucket()),
                began: Instant::now(),
                timeout: options.timeout,
                is_away: AtomicBool::new(false),
                returns: watch::Sender::new(0),
            }),
        }
    }

    /// Changes when the server answers again after it did not, so that nobody has to wait out a
    /// long pause.
    pub(crate) fn returns(&self) -> watch::Receiver<u64> {
        self.shared.returns.subscribe()
    }

    /// Asks at another rate from now on.
    pub fn set_rate(&self, rate: Rate) {
        *self.shared.bucket.lock().unwrap_or_else(|held| held.into_inner()) = rate.bucket();
    }

    /// Stops using every open connection: the next request opens a new one, with the certificate
    /// that is current then.
    pub fn reconnect(&self) {
        self.shared.transport.reconnect();
    }

    /// Reads one object.
    pub async fn get<K: DeserializeOwned>(&self, place: &Place) -> Result<K, ApiError> {
        self.ask(Method::GET, place.path(), None).await
    }

    /// Reads a path as text.
    pub async fn get_text(&self, place: &Place) -> Result<String, ApiError> {
        let attempt = attempt(&Method::GET, place.path());
        let body = self.exchange(Method::GET, place.path(), None).await?;
        String::from_utf8(body).map_err(|error| malformed(attempt, &error))
    }

    /// Reads a collection. An empty version asks for the newest, any other one for something no
    /// older.
    pub async fn list<K>(
        &self,
        place: &Place,
        selector: &Selector,
        version: &str,
    ) -> Result<Listed<K>, ApiError>
    where
        K: ListableResource + DeserializeOwned,
    {
        let version = Some(version).filter(|version| !version.is_empty());
        let query = [
            ("fieldSelector", selector.fields.as_deref()),
            ("labelSelector", selector.labels.as_deref()),
            ("resourceVersion", version),
        ];
        let path = with_query(place.path(), &query);
        let attempt = attempt(&Method::GET, &path);
        let mut body = self.limited(self.send(Method::GET, &path, None)).await?;
        listed::read(&mut body).map_err(|error| malformed(attempt, &error))
    }

    /// Creates an object in a collection, or posts to a subresource.
    pub async fn create<B: Serialize, K: DeserializeOwned>(
        &self,
        place: &Place,
        object: &B,
    ) -> Result<K, ApiError> {
        let body = encode(&Method::POST, place.path(), object)?;
        let body = Some(("application/json", body));
        self.ask(Method::POST, place.path(), body).await
    }

    /// Replaces an object.
    pub async fn replace<B: Serialize, K: DeserializeOwned>(
        &self,
        place: &Place,
        object: &B,
    ) -> Result<K, ApiError> {
        let body = encode(&Method::PUT, place.path(), object)?;
        let body = Some(("application/json", body));
        self.ask(Method::PUT, place.path(), body).await
    }

    /// Patches an object.
    pub async fn patch<K: DeserializeOwned>(
        &self,
        place: &Place,
        kind: PatchKind,
        patch: &Value,
    ) -> Result<K, ApiError> {
        let body = encode(&Method::PATCH, place.path(), patch)?;
        let body = Some((kind.content_type(), body));
        self.ask(Method::PATCH, place.path(), body).await
    }

    /// Deletes an object, only if it has this identity when one is given.
    pub async fn delete(
        &self,
        place: &Place,
        uid: Option<&PodUid>,
        grace_secs: Option<i64>,
    ) -> Result<(), ApiError> {
        let options = DeleteOptions {
            grace_period_seconds: grace_secs,
            preconditions: uid
                .map(|uid| Preconditions { uid: Some(uid.to_string()), resource_version: None }),
            ..DeleteOptions::default()
        };
        let body = encode(&Method::DELETE, place.path(), &options)?;
        let body = Some(("application/json", body));
        self.exchange(Method::DELETE, place.path(), body).await?;
        Ok(())
    }

    /// Deletes the objects of a collection that are meant.
    pub async fn delete_all(&self, place: &Place, selector: &Selector) -> Result<(), ApiError> {
        let query = [
            ("fieldSelector", selector.fields.as_deref()),
            ("labelSelector", selector.labels.as_deref()),
        ];
        let path = with_query(place.path(), &query);
        self.exchange(Method::DELETE, &path, None).await?;
        Ok(())
    }

    /// Opens a watch on a collection from this version on.
    pub async fn watch(
        &self,
        place: &Place,
        selector: &Selector,
        version: &str,
        server_timeout: Duration,
    ) -> Result<Frames, ApiError> {
        let seconds = server_timeout.as_secs().to_string();
        let query = [
            ("watch", Some("1")),
            ("allowWatchBookmarks", Some("true")),
            ("fieldSelector", selector.fields.as_deref()),
            ("labelSelector", selector.labels.as_deref()),
            ("resourceVersion", Some(version)),
            ("timeoutSeconds", Some(seconds.as_str())),
        ];
        let path = with_query(place.path(), &query);
        let attempt = attempt(&Method::GET, &path);
        // Taken before the request, so that a reconnect during it is not missed.
        let epoch = self.shared.transport.epoch();
        let answer = self.timed(&attempt, self.open(Method::GET, &path, None)).await?;
        Ok(Frames::new(attempt, answer, epoch))
    }

    async fn ask<K: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<K, ApiError> {
        let attempt = attempt(&method, path);
        let mut body = self.exchange(method, path, body).await?;
        decode::decode(&mut body).map_err(|error| malformed(attempt, &error))
    }

    /// One request that counts against the rate.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Vec<u8>, ApiError> {
        let wait = {
            let mut bucket = self.shared.bucket.lock().unwrap_or_else(|held| held.into_inner());
            bucket.as_mut().map(|bucket| bucket.reserve(self.shared.began.elapsed()))
        };
        if let Some(wait) = wait {
            metrics::waited(&self.shared.host, method.as_str(), wait);
            if !wait.is_zero() {
                sleep(wait).await;
            }
        }
        self.limited(self.send(method, path, body)).await
    }

    /// Boxes a future: the chain of requests is deep and every caller's future would carry it
    /// whole.
    async fn limited<T>(
        &self,
        work: impl Future<Output = Result<T, ApiError>> + Send,
    ) -> Result<T, ApiError> {
        Box::pin(work).await
    }

    /// A request and its whole answer, within the timeout.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Vec<u8>, ApiError> {
        let attempt = attempt(&method, path);
        let whole = async {
            let answer = self.open(method.clone(), path, body).await?;
            let body = collect(&attempt, answer.response.into_body(), MAX_ANSWER).await?;
            metrics::answered(&self.shared.host, method.as_str(), body.len());
            Ok(body)
        };
        self.timed(&attempt, whole).await
    }

    /// A request up to the head of a good answer. Answers that say no are read and become errors.
    async fn open(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Answer, ApiError> {
        let attempt = attempt(&method, path);
        let n_sent = body.as_ref().map_or(0, |(_, body)| body.len());
        let bearer = self.shared.bearer.header().await;
        let request = self.request(method.clone(), path, bearer, body);
        let request = request.map_err(|error| unsendable(attempt.clone(), &error))?;
        let began = Instant::now();
        let sent = self.shared.transport.send(request).await;
        let code = sent.as_ref().ok().map(|it| it.response.status().as_u16());
        let (host, took) = (&self.shared.host, began.elapsed());
        metrics::asked(host, method.as_str(), code, n_sent, took);
        if sent.is_err() {
            self.shared.is_away.store(true, Ordering::Relaxed);
        }
        let answer = sent.map_err(|error| broken(&attempt, &error))?;
        let status = answer.response.status();
        if status.is_success() {
            if self.shared.is_away.swap(false, Ordering::Relaxed) {
                self.shared.returns.send_modify(|count| *count += 1);
            }
            return Ok(answer);
        }
        if status == StatusCode::UNAUTHORIZED {
            self.shared.bearer.refused();
        }
        let retry_after = retry_after(answer.response.headers());
        let body = collect(&attempt, answer.response.into_body(), MAX_REFUSAL).await?;
        Err(answer::refusal(attempt, status.as_u16(), retry_after, &body))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        bearer: Option<HeaderValue>,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.shared.server))
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, "application/json");
        if let Some(bearer) = bearer {
            request = request.header(header::AUTHORIZATION, bearer);
        }
        match body {
            Some((kind, body)) => request.header(header::CONTENT_TYPE, kind).body(Full::from(body)),
            None => request.body(Full::default()),
        }
    }

    /// Gives up after the timeout; silence that long may be a dead connection, so the next request
    /// takes another.
    async fn timed<T>(
        &self,
        attempt: &str,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        match timeout(self.shared.timeout, work).await {
            Ok(result) => result,
            Err(_) => {
                self.shared.transport.retire();
                self.shared.is_away.store(true, Ordering::Relaxed);
                Err(ApiError {
                    attempt: attempt.to_owned(),
                    kind: ApiErrorKind::Timeout,
                    message: format!("no answer within {:?}", self.shared.timeout),
                    code: None,
                    causes: Vec::new(),
                })
            }
        }
    }
}

async fn collect(attempt: &str, mut body: Incoming, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(attempt, &TransportError::Send(error)))?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > limit {
                let reason = format!("the answer is longer than {limit} bytes");
                return Err(malformed(attempt.to_owned(), &reason));
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

fn encode<B: Serialize>(method: &Method, path: &str, object: &B) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(object).map_err(|error| unsendable(attempt(method, path), &error))
}

fn attempt(method: &Method, path: &str) -> String {
    let path = path.split('?').next().unwrap_or(path);
    format!("{method} {path}")
}

/// What the fake server in memory needs to stand in for a real one.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use super::{
        credentials::Bearer,
        dial::{Dial, Stream},
        lines::Lines,
        listed::read as read_list,
    };
}
