//! `/checkpoint/{namespace}/{pod}/{container}`: writes a running container to an archive below the
//! root directory.
//!
//! Statuses and words are upstream's, also the odd ones: a timeout that is no number is a 404.
//! Unlike upstream's kubelet it writes nothing onto a disk that is nearly full: archives are as
//! large as what runs, nobody removes them, and pods would be evicted for them (CVE-2025-0426).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use ferrolet_ports::{Checkpoints, FileRoom};
use tokio::sync::Mutex;

use crate::main_routes::Main;
use crate::query::{pairs_of, values};
use crate::refusal::Refusal;
use crate::target::{PodPath, find_pod, has_container, observe, running_container};

/// The part of a disk, in percent, that checkpoints leave free: with less the node evicts pods,
/// unless it is configured otherwise.
const LEFT_FREE: u64 = 10;

/// How long a checkpoint waits for others before it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Who writes checkpoints, and where.
pub struct CheckpointDoors {
    runtime: Arc<dyn Checkpoints>,
    directory: PathBuf,
    /// One is written at a time: the next one counts the room that this one leaves.
    turn: Mutex<()>,
}

impl CheckpointDoors {
    /// Written by this runtime into archives in this directory.
    pub fn new(runtime: Arc<dyn Checkpoints>, directory: PathBuf) -> Self {
        Self { runtime, directory, turn: Mutex::new(()) }
    }
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
    let CheckpointPath { namespace, pod: name, container } = path;
    let pod_path = PodPath { namespace: namespace.clone(), pod: name.clone(), uid: None };
    let pod = find_pod(main.views.pods.as_ref(), &pod_path)?;
    if has_container(&pod, container).is_none() {
        let words = format!("container {container} does not exist");
        return Err(Refusal::not_found(words));
    }
    let failed = |why: String| {
        Refusal::failed(format!("checkpointing of {namespace}/{name}/{container} failed ({why})"))
    };
    let timeout = timeout(query)?;
    let timeout = u32::try_from(timeout.max(-1)).map_err(|_| {
        failed("CheckpointContainer requires the timeout value to be > 0".to_owned())
    })?;
    let observed = observe(main, &pod, &pod_path).await?;
    let id = observed.and_then(|observed| running_container(&observed, container));
    let id = id.ok_or_else(|| failed(format!("container {container} not found")))?;
    let _turn = tokio::time::timeout(PATIENCE, doors.turn.lock())
        .await
        .map_err(|_elapsed| failed("others are being written, and take long".to_owned()))?;
    if is_nearly_full(main, doors).await {
        let words = format!("less than {LEFT_FREE} % of the disk are free");
        return Err(failed(words));
    }
    let now = main.clock.now().to_second_precision();
    let file = format!("checkpoint-{name}_{namespace}-{container}-{now}.tar");
    let location = doors.directory.join(file);
    let done = doors.runtime.checkpoint(&id, &location, timeout).await;
    done.map_err(|error| failed(error.to_string()))?;
    Ok(location.display().to_string())
}

/// True when the disk of the archives has no room for more. A disk that cannot be looked at may
/// have.
async fn is_nearly_full(main: &Main, doors: &CheckpointDoors) -> bool {
    let Some(figures) = &main.figures else {
        return false;
    };
    // The directory itself is the runtime's to make.
    let place = doors.directory.parent().unwrap_or(&doors.directory);
    let room = figures.usage.room_at(&place.display().to_string()).await;
    room.is_ok_and(|room| !has_room(&room))
}

fn has_room(room: &FileRoom) -> bool {
    let free = u128::from(room.available) * 100;
    free >= u128::from(room.capacity) * u128::from(LEFT_FREE)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_disk_stays_free() {
        for (capacity, available, expected) in [
            (100, 100, true),
            (100, 10, true),
            (100, 9, false),
            (u64::MAX, u64::MAX / 2, true),
            (u64::MAX, 0, false),
            // A file system that does not say how large it is has no end.
            (0, 0, true),
        ] {
            let room = FileRoom { capacity, available, ..FileRoom::default() };
            assert_eq!(has_room(&room), expected, "{available} of {capacity}");
        }
    }
}
