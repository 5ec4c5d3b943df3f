//! The loop of the writers, and the handle that others reach the ledger by.

use std::sync::{Arc, Mutex, PoisonError};

use ferrolet_ports::{ApiErrorKind, Clock, ClusterApi, StatusBacklog, StatusSink, StatusUpdate};
use ferrolet_types::{GracePeriod, Pod, PodUid, Timestamp, pod::PodView as _};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use super::{
    ledger::{Job, Ledger, Outcome},
    plan::{may_delete, plan_write},
};

/// The way in: statuses from the workers, pods from the API's watch.
#[derive(Debug, Default)]
pub struct StatusReporter {
    ledger: Mutex<Ledger>,
    has_news: Notify,
}

impl StatusReporter {
    /// An empty one.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The watch shows this copy of a pod; mirror pods too. Whoever says so also says when it is
    /// gone.
    pub fn note_api_pod(&self, pod: &Pod) {
        self.change(|ledger| ledger.note_api_pod(pod, Instant::now()));
    }

    /// The watch shows these pods of this node and no others; mirror pods too.
    pub fn note_api_set(&self, pods: &[Pod]) {
        self.change(|ledger| ledger.note_api_set(pods, Instant::now()));
    }

    /// The watch says that this object is gone.
    pub fn note_api_gone(&self, pod: &Pod) {
        self.change(|ledger| ledger.note_api_gone(pod));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let locked = self.ledger.lock();
        let answer = change(&mut locked.unwrap_or_else(PoisonError::into_inner));
        self.has_news.notify_one();
        answer
    }

    fn quietly<T>(&self, access: impl FnOnce(&mut Ledger) -> T) -> T {
        let locked = self.ledger.lock();
        access(&mut locked.unwrap_or_else(PoisonError::into_inner))
    }
}

impl StatusBacklog for StatusReporter {
    fn n_pending(&self) -> usize {
        self.quietly(|ledger| ledger.n_pending())
    }
}

impl StatusSink for StatusReporter {
    fn publish(&self, update: StatusUpdate) {
        let key = update.pod.key();
        if let Err(error) = self.change(|ledger| ledger.publish(update, Instant::now())) {
            tracing::error!(pod = %key, %error, "Status update on pod aborted");
        }
    }

    fn forget(&self, uid: &PodUid) {
        self.change(|ledger| ledger.forget(uid));
    }
}

/// Writes statuses until dropped, at most `n_writers` at a time.
pub async fn run(
    reporter: Arc<StatusReporter>,
    api: Arc<dyn ClusterApi>,
    clock: Arc<dyn Clock>,
    n_writers: usize,
) {
    let mut writers: JoinSet<(Job, Outcome)> = JoinSet::new();
    loop {
        while writers.len() < n_writers.max(1) {
            let Some(job) = reporter.quietly(|ledger| ledger.take(Instant::now())) else {
                break;
            };
            let (api, now) = (api.clone(), clock.now());
            writers.spawn(async move {
                let outcome = write(&*api, &job, now).await;
                (job, outcome)
            });
        }
        // When every writer is at work, only the end of one makes room: a due timer would wake us
        // in vain, again and again.
        let has_room = writers.len() < n_writers.max(1);
        let wake_at = reporter.quietly(|ledger| ledger.next_wake());
        let wake_at = wake_at.filter(|_| has_room);
        let timer = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A permit that was taken and lost is replaced by the look that the next turn begins
            // with.
            () = reporter.has_news.notified() => {}
            // Joining is cancel-safe: a finished writer stays in the set until it is taken.
            Some(ended) = writers.join_next(), if !writers.is_empty() => match ended {
                Ok((job, outcome)) => {
                    say(&job, &outcome);
                    reporter.quietly(|ledger| ledger.finish(&job, outcome, Instant::now()));
                }
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            () = timer => {}
        }
    }
}

/// One pod's turn: patch what differs, then delete what is over.
async fn write(api: &dyn ClusterApi, job: &Job, now: Timestamp) -> Outcome {
    let key = job.api.key();
    let mut current = job.api.clone();
    if let Some(patch) = plan_write(&job.api, &job.update, now) {
        match api.patch_pod_status(&key, &patch).await {
            Ok(pod) => current = pod,
            Err(error) if error.is_not_found() => return Outcome::Gone,
            Err(error) if error.kind == ApiErrorKind::Conflict => {
                return look_again(api, job).await;
            }
            Err(error) => {
                return Outcome::Failed { written: None, error };
            }
        }
    }
    if !(job.can_delete && may_delete(&current, &job.update)) {
        return Outcome::Written(current);
    }
    let no_grace = Some(GracePeriod::from_secs(0));
    match api.delete_pod(&key, &job.api.uid(), no_grace).await {
        Ok(()) => Outcome::Deleted(current),
        Err(error) if error.is_not_found() || error.kind == ApiErrorKind::Conflict => Outcome::Gone,
        Err(error) => Outcome::Failed { written: Some(current), error },
    }
}

/// A conflict is either another pod under the same name or bad luck: only a look tells.
async fn look_again(api: &dyn ClusterApi, job: &Job) -> Outcome {
    match api.get_pod(&job.api.key()).await {
        Ok(pod) if pod.uid() == job.api.uid() => Outcome::Stale(pod),
        Ok(_) => Outcome::Gone,
        Err(error) if error.is_not_found() => Outcome::Gone,
        Err(error) => Outcome::Failed { written: None, error },
    }
}

fn say(job: &Job, outcome: &Outcome) {
    let (pod, version) = (job.api.key(), job.update.version);
    match outcome {
        Outcome::Written(_) => tracing::debug!(%pod, version, "Status for pod is up-to-date"),
        Outcome::Deleted(_) => tracing::debug!(%pod, "Pod fully terminated and deleted"),
        Outcome::Gone => tracing::debug!(%pod, "Pod does not exist on the server"),
        Outcome::Stale(_) => tracing::debug!(%pod, "Status for pod was written from an old copy"),
        Outcome::Failed { error, .. } => {
            tracing::warn!(%pod, version, %error, "Failed to update status for pod");
        }
    }
}
