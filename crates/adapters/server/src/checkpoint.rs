//! `/checkpoint/{namespace}/{pod}/{container}`: writes a running container to an archive below the root directory.
//!
//! Statuses and words are upstream's, also the odd ones: a timeout that is no number is a 404.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use ferrolet_ports::Checkpoints;

use crate::main_routes::Main;
use crate::query::{pairs_of, values};
use crate::refusal::Refusal;
use crate::target::{PodPath, find_pod, has_container, observe, running_container};

/// Who writes checkpoints, and where.
pub struct CheckpointDoors {
    /// The runtime.
    pub runtime: Arc<dyn Checkpoints>,
    /// The directory the archives are in.
    pub directory: PathBuf,
}

#[derive(serde::Deserialize)]
pub(crate) struct CheckpointPath {
    namespace: String,
    pod: String,
    container: String,
}

pub(crate) async fn write(
    State(main): State<Main>,
    Path(path): Path<CheckpointPath>,
    uri: Uri,
) -> Response {
    match written(&main, &path, uri.query().unwrap_or_default()).await {
        Ok(location) => {
            let items = serde_json::json!({"items": [location]}).to_string();
            ([(header::CONTENT_TYPE, "application/json")], items).into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn written(main: &Main, path: &CheckpointPath, query: &str) -> Result<String, Refusal> {
    let Some(doors) = &main.checkpoints else {
        return Err(Refusal::not_found("404 page not found\n"));
    };
    let CheckpointPath {
        namespace,
        pod: name,
        container,
    } = path;
    let pod_path = PodPath {
        namespace: namespace.clone(),
        pod: name.clone(),
        uid: None,
    };
    let pods = main.views.pods.as_ref();
    let pod = find_pod(pods, &pod_path)?;
    if has_container(&pod, container).is_none() {
        let words = format!("container {container} does not exist");
        return Err(Refusal::not_found(words));
    }
    let failed = |why: String| {
        Refusal::failed(format!(
            "checkpointing of {namespace}/{name}/{container} failed ({why})"
        ))
    };
    let timeout = timeout(query)?;
    let timeout = u32::try_from(timeout.max(-1)).map_err(|_| {
        failed("CheckpointContainer requires the timeout value to be > 0".to_owned())
    })?;
    let observed = observe(main.runtime.as_ref(), pods, &pod, &pod_path).await?;
    let id = observed.and_then(|observed| running_container(&observed, container));
    let id = id.ok_or_else(|| failed(format!("container {container} not found")))?;
    let now = main.clock.now().to_second_precision();
    let file = format!("checkpoint-{name}_{namespace}-{container}-{now}.tar");
    let location = doors.directory.join(file);
    let done = doors.runtime.checkpoint(&id, &location, timeout).await;
    done.map_err(|error| failed(error.to_string()))?;
    Ok(location.display().to_string())
}

/// The last value counts. What does not fit 32 bits waits as long as those can say.
fn timeout(query: &str) -> Result<i64, Refusal> {
    let pairs = pairs_of(query);
    let Some(last) = values(&pairs, "timeout").last() else {
        return Ok(0);
    };
    let parsed = last.parse::<i64>();
    parsed
        .map(|it| it.min(i64::from(u32::MAX)))
        .map_err(|_| Refusal::not_found("cannot parse value of timeout parameter"))
}
