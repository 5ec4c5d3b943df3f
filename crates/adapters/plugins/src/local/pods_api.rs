//! `pods-api/pods-api.sock`: the node's pods with their status, listed, one by one, or as a stream
//! of changes.
//!
//! A watch begins with all pods, then a mark, then changes as the workers publish them. A pod that
//! has ended and left nothing behind counts as deleted, as upstream has it. Changes wait in one
//! ring for all watchers; one that falls behind it is sent away. Until every source of pods has
//! spoken there is no answer: a list that lacks pods is worse than none.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use ferrolet_ports::{
    PodsView, Remains, StatusSink, StatusUpdate,
    metrics::{self, Counter, process},
};
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response};
use hyper::body::Incoming;
use k8s_openapi::{api::core::v1, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use tokio::sync::broadcast;
use tonic::{Code, Status, body::Body, codegen::Service as _};

use super::{LocalSocket, limit::Limit, listen::Answers, pod_bytes::pod_bytes};
use crate::{
    codes::go_name,
    proto::local_alpha::{
        EventType, GetPodRequest, GetPodResponse, ListPodsRequest, ListPodsResponse,
        WatchPodsEvent, WatchPodsRequest,
        pods_server::{Pods, PodsServer},
    },
};

/// Changes that a watcher may be behind.
const RING: usize = 128;
const VERSION: &str = "v1alpha1";

#[derive(Clone, Debug)]
struct Change {
    kind: EventType,
    pod: Pod,
}

/// Takes statuses as they change and passes them on to whoever watches.
#[derive(Debug)]
pub struct PodNews {
    changes: broadcast::Sender<Change>,
    /// Pods that were shown and are not gone yet.
    shown: Mutex<BTreeMap<PodUid, (String, String)>>,
}

impl Default for PodNews {
    fn default() -> Self {
        Self { changes: broadcast::Sender::new(RING), shown: Mutex::default() }
    }
}

impl PodNews {
    fn tell(&self, kind: EventType, pod: Pod) {
        // An error says that nobody watches.
        let _ = self.changes.send(Change { kind, pod });
    }

    fn removed(&self, uid: &PodUid) {
        let mut shown = self.shown.lock().expect("no panic under this lock");
        if let Some((namespace, name)) = shown.remove(uid) {
            let metadata = ObjectMeta {
                namespace: Some(namespace),
                name: Some(name),
                uid: Some(uid.to_string()),
                ..ObjectMeta::default()
            };
            let pod = v1::Pod { metadata, ..v1::Pod::default() };
            self.tell(EventType::Deleted, Arc::new(pod));
        }
    }
}

impl StatusSink for PodNews {
    fn publish(&self, update: StatusUpdate) {
        let (uid, pod) = (update.pod.uid(), update.pod);
        if update.remains == Remains::Settled {
            return self.removed(&uid);
        }
        let metadata = &pod.metadata;
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let names = (name(&metadata.namespace), name(&metadata.name));
        let mut shown = self.shown.lock().expect("no panic under this lock");
        let is_new = shown.insert(uid, names).is_none();
        let kind = if is_new && metadata.deletion_timestamp.is_none() {
            EventType::Added
        } else {
            EventType::Modified
        };
        // Under the lock, so that no watcher hears of an end before a change.
        self.tell(kind, pod);
    }

    fn forget(&self, uid: &PodUid) {
        self.removed(uid);
    }
}

/// The service.
#[derive(Clone)]
pub struct PodsApi {
    pods: Arc<dyn PodsView>,
    news: Arc<PodNews>,
    is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl PodsApi {
    /// A service over these pods and the changes of them; `is_ready` says whether every source of
    /// pods has spoken.
    pub fn new(
        pods: Arc<dyn PodsView>,
        news: Arc<PodNews>,
        is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Self {
        Self { pods, news, is_ready }
    }

    /// Answers on this socket until it is dropped.
    pub async fn serve(self, socket: LocalSocket) {
        let limit = Limit::new();
        let service = self;
        socket.serve(Limited { service, limit }).await;
    }

    fn check_ready(&self) -> Result<(), Status> {
        if (self.is_ready)() {
            Ok(())
        } else {
            Err(Status::failed_precondition("Kubelet is initializing"))
        }
    }

    fn sorted(&self) -> Vec<Pod> {
        let mut pods = self.pods.pods();
        pods.sort_by_cached_key(|pod| pod.uid());
        pods
    }
}

fn marshalled(pod: &Pod) -> Result<Vec<u8>, Status> {
    pod_bytes(pod).map_err(|error| Status::internal(format!("failed to marshal pod: {error}")))
}

fn event(kind: EventType, pod: &Pod) -> Result<WatchPodsEvent, Status> {
    Ok(WatchPodsEvent { r#type: kind.into(), pod: marshalled(pod)? })
}

fn count(counter: Counter<2>, code: Code) {
    let code = go_name(code);
    process().add(metrics::KUBELET_POD_REQUESTS_TOTAL, [VERSION, code], 1.0);
    process().add(counter, [VERSION, code], 1.0);
}

fn counted<T>(
    counter: Counter<2>,
    answer: Result<T, Status>,
) -> Result<tonic::Response<T>, Status> {
    let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
    count(counter, code);
    answer.map(tonic::Response::new)
}

#[tonic::async_trait]
impl Pods for PodsApi {
    type WatchPodsStream = Pin<Box<dyn Stream<Item = Result<WatchPodsEvent, Status>> + Send>>;

    async fn watch_pods(
        &self,
        _: tonic::Request<WatchPodsRequest>,
    ) -> Result<tonic::Response<Self::WatchPodsStream>, Status> {
        let mut watching = Watching { ended: Code::Cancelled };
        self.check_ready().inspect_err(|status| watching.ended = status.code())?;
        // First the ring, then the list: what changes in between is told twice and never missed.
        let changes = self.news.changes.subscribe();
        let first = stream::iter(self.sorted()).map(|pod| event(EventType::Added, &pod));
        let mark =
            WatchPodsEvent { r#type: EventType::InitialSyncComplete.into(), pod: Vec::new() };
        let rest = stream::unfold(Some((changes, watching)), |watched| async move {
            let (mut changes, mut watching) = watched?;
            match changes.recv().await {
                Ok(change) => Some((event(change.kind, &change.pod), Some((changes, watching)))),
                Err(_fell_behind) => {
                    watching.ended = Code::ResourceExhausted;
                    process().add(metrics::KUBELET_POD_WATCH_EVENTS_DROPPED_TOTAL, [], 1.0);
                    let status = Status::resource_exhausted("watch client channel closed");
                    Some((Err(status), None))
                }
            }
        });
        let events = first.chain(stream::iter([Ok(mark)])).chain(rest);
        Ok(tonic::Response::new(Box::pin(events)))
    }

    async fn list_pods(
        &self,
        _: tonic::Request<ListPodsRequest>,
    ) -> Result<tonic::Response<ListPodsResponse>, Status> {
        let listed = self.check_ready().and_then(|()| {
            let pods: Result<_, Status> = self.sorted().iter().map(marshalled).collect();
            Ok(ListPodsResponse { pods: pods? })
        });
        counted(metrics::KUBELET_POD_REQUESTS_LIST_TOTAL, listed)
    }

    async fn get_pod(
        &self,
        request: tonic::Request<GetPodRequest>,
    ) -> Result<tonic::Response<GetPodResponse>, Status> {
        let asked = request.into_inner().pod_uid;
        let found = self.check_ready().and_then(|()| {
            let mut pods = self.pods.pods().into_iter();
            let pod = pods.find(|pod| pod.metadata.uid.as_deref() == Some(&asked));
            let missing = || Status::not_found(format!("pod with UID {asked} not found"));
            let pod = marshalled(&pod.ok_or_else(missing)?)?;
            Ok(GetPodResponse { pod })
        });
        counted(metrics::KUBELET_POD_REQUESTS_GET_TOTAL, found)
    }
}

/// A watch under way, counted when it ends.
struct Watching {
    ended: Code,
}

impl Drop for Watching {
    fn drop(&mut self) {
        count(metrics::KUBELET_POD_REQUESTS_WATCH_TOTAL, self.ended);
    }
}

/// The service behind its limit, which is for single calls.
struct Limited {
    service: PodsApi,
    limit: Limit,
}

impl Answers for Limited {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let is_watch = request.uri().path().ends_with("/WatchPods");
        if !is_watch && let Err(status) = self.limit.take() {
            return status.into_http();
        }
        let answered = PodsServer::new(self.service.clone()).call(request).await;
        answered.unwrap_or_else(|never| match never {})
    }
}
