//! `/containerLogs/{namespace}/{pod}/{container}`: what a container wrote.
//!
//! The query says which part ([`query`]), the pod's status says which run of the container
//! ([`which`]), the runtime says which file, and the log port reads it piece by piece as the client
//! takes it. A client that goes away ends the reading.

mod query;
mod which;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use ferrolet_pod::bare_container_id;
use ferrolet_ports::{LogAsk, LogPieces, PodsView, StillWritten};

use crate::main_routes::Main;
use crate::refusal::Refusal;
use crate::target::{PodPath, container_status, has_container, observe};

#[derive(serde::Deserialize)]
pub(crate) struct LogPath {
    namespace: String,
    pod: String,
    container: String,
}

pub(crate) async fn answer(
    State(main): State<Main>,
    Path(path): Path<LogPath>,
    uri: Uri,
) -> Response {
    match open(&main, &path, uri.query().unwrap_or_default()).await {
        Ok(pieces) => streamed(pieces),
        Err(refusal) => refusal.into_response(),
    }
}

async fn open(main: &Main, path: &LogPath, query: &str) -> Result<Box<dyn LogPieces>, Refusal> {
    let query = query::parse(query).map_err(refused)?;
    let output = query.output(main.has_split_log_streams)?;
    let pods = &main.views.pods;
    let pod = pods.pod_named(&path.namespace, &path.pod);
    let pod =
        pod.ok_or_else(|| Refusal::not_found(format!("pod {:?} does not exist", path.pod)))?;
    if has_container(&pod, &path.container).is_none() {
        let words = format!("container {:?} not found in pod {:?}", path.container, path.pod);
        return Err(Refusal::not_found(words));
    }
    let status = container_status(&pod, &path.container);
    let id = which::run_of(status, query.previous)
        .map_err(|reason| Refusal::bad(reason.words(&path.container, &path.pod)))?;
    let pod_path = PodPath { namespace: path.namespace.clone(), pod: path.pod.clone(), uid: None };
    let observed = observe(main, &pod, &pod_path).await?;
    let bare_id = bare_container_id(&id);
    let file = observed.into_iter().flat_map(|it| it.containers);
    let file = file
        .filter(|container| container.id.as_str() == bare_id)
        .map(|container| container.log_path)
        .find(|path| !path.is_empty());
    let file =
        file.ok_or_else(|| Refusal::bad(format!("unable to retrieve container logs for {id}")))?;
    let writer =
        Writer { pods: pods.clone(), path: pod_path, container: path.container.clone(), id };
    let ask = LogAsk {
        tail_lines: query.tail_lines,
        since: query.since(main.clock.now()),
        limit_bytes: query.limit_bytes,
        with_timestamps: query.timestamps,
        output,
        follow: query.follow.then(|| Arc::new(writer) as Arc<dyn StillWritten>),
    };
    let opened = main.logs.open(&file, ask).await;
    opened.map_err(|error| Refusal::bad(error.to_string()))
}

fn refused(refusal: query::QueryError) -> Refusal {
    let status = match refusal {
        query::QueryError::Undecodable => StatusCode::BAD_REQUEST,
        query::QueryError::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
    };
    Refusal::new(status, refusal.to_string())
}

pub(crate) fn streamed(pieces: Box<dyn LogPieces>) -> Response {
    let pieces = futures::stream::unfold(Some(pieces), |pieces| async move {
        let mut pieces = pieces?;
        match pieces.next().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(pieces))),
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(err = %error, "Reading a log failed half way");
                Some((Err(error), None))
            }
        }
    });
    let headers = [("content-type", "text/plain; charset=utf-8")];
    (headers, Body::from_stream(pieces)).into_response()
}

/// The container, as the pod's status shows it.
struct Writer {
    pods: Arc<dyn PodsView>,
    path: PodPath,
    container: String,
    id: String,
}

impl StillWritten for Writer {
    fn is_written(&self) -> bool {
        let pod = self.pods.pod_named(&self.path.namespace, &self.path.pod);
        let status = pod.as_ref().and_then(|pod| container_status(pod, &self.container));
        status.is_some_and(|status| {
            let runs = status.state.as_ref().is_some_and(|it| it.running.is_some());
            runs && status.container_id.as_deref() == Some(&self.id)
        })
    }
}
