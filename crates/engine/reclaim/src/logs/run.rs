//! The loop of log rotation.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use ferrolet_ports::{Clock, HostError, LogReopen, LogStore, Runtime, RuntimeError};
use ferrolet_types::{ContainerId, PodUid};
use futures::{StreamExt as _, stream};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::metrics;

use super::plan::{Coverage, Policy, Watch, Work, rotation, to_compress};

/// Names of rotated logs differ from one second to the next.
const A_SECOND: Duration = Duration::from_secs(1);

/// The doors of log rotation.
pub struct Doors {
    /// The logs.
    pub store: Arc<dyn LogStore>,
    /// Who writes them.
    pub runtime: Arc<dyn Runtime>,
    /// Moves the writer on.
    pub reopen: Arc<dyn LogReopen>,
    /// Wall time, for names.
    pub clock: Arc<dyn Clock>,
}

/// Why a log was not rotated.
#[derive(Debug, thiserror::Error)]
enum RotateError {
    #[error("find its container: {0}")]
    Find(RuntimeError),
    #[error(transparent)]
    File(#[from] HostError),
    #[error("failed to reopen container log: {0}")]
    Reopen(RuntimeError),
}

/// What came of a full log.
enum Outcome {
    Rotated,
    /// Nobody writes it.
    Settled,
    /// A file of this very second is in the way.
    Later,
    /// Something refused; the next look at all logs tries again.
    Failed,
}

/// Rotates logs for ever, by the policy that is in force; none leaves them alone.
pub async fn run(doors: Doors, mut policies: watch::Receiver<Option<Policy>>) {
    let doors = Arc::new(doors);
    loop {
        let policy = *policies.borrow_and_update();
        match policy {
            Some(policy) => rotate_by(policy, doors.clone(), &mut policies).await,
            None => {
                if policies.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        }
    }
}

/// Rotates logs until there is another policy. What is being compressed then is waited for.
async fn rotate_by(
    policy: Policy,
    doors: Arc<Doors>,
    policies: &mut watch::Receiver<Option<Policy>>,
) {
    let rotator = Arc::new(Rotator {
        doors,
        policy,
        compressing: Mutex::default(),
        workers: Semaphore::new(policy.max_workers.max(1)),
    });
    let (mut watch, mut hot, mut work) = (Watch::default(), Vec::new(), JoinSet::new());
    let (mut looked, mut looked_at_all) = (Instant::now(), None::<Instant>);
    loop {
        while work.try_join_next().is_some() {}
        let is_time = looked_at_all.is_none_or(|at| at.elapsed() >= policy.interval);
        let all = if is_time || hot.is_empty() { Coverage::All } else { Coverage::Hot };
        let store = &rotator.doors.store;
        let found = match all {
            Coverage::All => store.logs().await,
            Coverage::Hot => store.sizes(&hot).await,
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "Failed to look at container logs");
                sleep(policy.interval).await;
                continue;
            }
        };
        let now = Instant::now();
        let look = watch.look(&policy, &found, now.duration_since(looked), all);
        looked = now;
        if all == Coverage::All {
            looked_at_all = Some(now);
        }
        metrics::queued(look.due.len());
        let rotated: Vec<(String, Outcome)> = stream::iter(look.due)
            .map(|path| metrics::turn(now, rotator.rotate(path)))
            .buffer_unordered(policy.max_workers.max(1))
            .collect()
            .await;
        for path in look.missing {
            if rotator.find_writer_a_file(&path).await {
                watch.forget(&path);
            }
        }
        hot = look.hot;
        let mut next = look.next;
        for (path, outcome) in rotated {
            match outcome {
                Outcome::Rotated => {
                    watch.rotated(&path);
                    // What filled a log once may do it again, as fast.
                    next = next.min(policy.interval / 10);
                    hot.push(path.clone());
                    work.spawn(rotator.clone().compress(path));
                }
                Outcome::Settled => watch.settle(&path),
                Outcome::Later => {
                    metrics::again();
                    next = next.min(A_SECOND);
                    hot.push(path);
                }
                Outcome::Failed => metrics::again(),
            }
        }
        let since_all = looked_at_all.map_or(policy.interval, |at| at.elapsed());
        let until_all = policy.interval.saturating_sub(since_all);
        let pause = if hot.is_empty() { next } else { next.min(until_all) };
        // Both are cancel-safe: a pause, and a change that is remembered.
        tokio::select! {
            () = sleep(pause) => {}
            Ok(()) = policies.changed() => {
                while work.join_next().await.is_some() {}
                return;
            }
        }
    }
}

struct Rotator {
    doors: Arc<Doors>,
    policy: Policy,
    /// Logs whose older files are being compressed.
    compressing: Mutex<BTreeSet<String>>,
    workers: Semaphore,
}

impl Rotator {
    async fn rotate(&self, path: String) -> (String, Outcome) {
        match self.try_rotate(&path).await {
            Ok(outcome) => (path, outcome),
            Err(error) => {
                tracing::error!(path, %error, "Failed to rotate log for container");
                (path, Outcome::Failed)
            }
        }
    }

    async fn try_rotate(&self, path: &str) -> Result<Outcome, RotateError> {
        let Some(id) = self.writer(path).await.map_err(RotateError::Find)? else {
            return Ok(Outcome::Settled);
        };
        let store = &self.doors.store;
        let name = file_name(path);
        let beside = store.rotated(path).await?;
        let work = if self.lock().contains(path) { Work::Compressing } else { Work::Idle };
        let plan = rotation(&self.policy, name, &beside, work, self.doors.clock.now());
        let Some(to) = plan.to else {
            return Ok(Outcome::Later);
        };
        for excess in &plan.remove {
            store.remove(path, excess).await?;
        }
        store.rename(path, name, &to).await?;
        if let Err(error) = self.doors.reopen.reopen_log(&id).await {
            // Back, so that the writer and its readers go on with one file.
            store.rename(path, &to, name).await?;
            return Err(RotateError::Reopen(error));
        }
        tracing::debug!(path, to, "Container log is rotated");
        Ok(Outcome::Rotated)
    }

    /// Lets the writer of a log that somebody removed begin a new one, as upstream does; false when
    /// it could not be done yet.
    async fn find_writer_a_file(&self, path: &str) -> bool {
        let done = match self.writer(path).await {
            Ok(None) => return true,
            Ok(Some(id)) => self.doors.reopen.reopen_log(&id).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => tracing::warn!(path, "Container log was gone and is begun anew"),
            Err(error) => {
                tracing::error!(path, %error, "Container log is gone and cannot be begun anew");
            }
        }
        // Once the file is back, the next look sees it.
        false
    }

    /// The running container that writes a log.
    async fn writer(&self, path: &str) -> Result<Option<ContainerId>, RuntimeError> {
        let Some(uid) = pod_of(path) else {
            return Ok(None);
        };
        let seen = self.doors.runtime.observe_pod(&uid).await?;
        let mut containers = seen.containers.into_iter();
        let writer = containers.find(|it| it.state.is_running() && it.log_path == path);
        Ok(writer.map(|it| it.id))
    }

    /// Compresses what earlier rotations left, all but the newest.
    async fn compress(self: Arc<Self>, path: String) {
        if !self.lock().insert(path.clone()) {
            return;
        }
        let _worker = self.workers.acquire().await;
        if let Err(error) = self.compress_older(&path).await {
            tracing::warn!(path, %error, "Rotated logs cannot be compressed");
        }
        self.lock().remove(&path);
    }

    async fn compress_older(&self, path: &str) -> Result<(), HostError> {
        let store = &self.doors.store;
        for name in to_compress(store.rotated(path).await?) {
            store.compress(path, &name).await?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.compressing.lock().expect("no panic while the lock is held")
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The pod whose log this is: its directory's name ends with the identity.
fn pod_of(path: &str) -> Option<PodUid> {
    let directory = Path::new(path).parent()?.parent()?.file_name()?.to_str()?;
    let uid = directory.rsplit('_').next()?;
    (!uid.is_empty()).then(|| PodUid::from(uid))
}
