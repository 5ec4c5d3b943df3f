//! Metrics of what the node takes back: images removed, and the line of logs to rotate.
//!
//! Counted in the tally of the process: what is put in line, begun and ended. [`rotations`] tells how
//! long work has been going on at the moment somebody asks.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use ferrolet_ports::{
    Measured, Sample,
    metrics::{self, process},
};
use tokio::time::Instant;

/// What upstream calls the line.
const ROTATIONS: &str = "kubelet_log_rotate_manager";
/// Since when rotations that are not over are going on.
pub(crate) struct Rotations(Mutex<UnderWay>);

struct UnderWay {
    n_begun: u64,
    since: BTreeMap<u64, Instant>,
}

static ROTATING: Rotations = Rotations::none();

/// Rotations that are going on.
pub(crate) fn rotations() -> &'static Rotations {
    // Upstream shows its lines from the start, and so do we.
    queued(0);
    &ROTATING
}

/// An image was removed because of its age, or for the sake of space.
pub(crate) fn image_removed(reason: &str) {
    process().add(metrics::KUBELET_IMAGE_GARBAGE_COLLECTED_TOTAL, [reason], 1.0);
}

/// Logs are put in line to be rotated.
pub(crate) fn queued(n_logs: usize) {
    let n_logs = n_logs as f64;
    process().add(metrics::WORKQUEUE_ADDS_TOTAL, [ROTATIONS], n_logs);
    process().adjust(metrics::WORKQUEUE_DEPTH, [ROTATIONS], n_logs);
    process().add(metrics::WORKQUEUE_RETRIES_TOTAL, [ROTATIONS], 0.0);
}

/// One log's turn, in line since `queued`.
pub(crate) async fn turn<T>(queued: Instant, work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let waited = began.duration_since(queued).as_secs_f64();
    let tally = process();
    tally.adjust(metrics::WORKQUEUE_DEPTH, [ROTATIONS], -1.0);
    tally.observe(metrics::WORKQUEUE_QUEUE_DURATION_SECONDS, [ROTATIONS], waited);
    let number = ROTATING.begin(began);
    let done = work.await;
    ROTATING.end(number);
    let took = began.elapsed().as_secs_f64();
    tally.observe(metrics::WORKQUEUE_WORK_DURATION_SECONDS, [ROTATIONS], took);
    done
}

/// A log has to be tried again.
pub(crate) fn again() {
    process().add(metrics::WORKQUEUE_RETRIES_TOTAL, [ROTATIONS], 1.0);
}

impl Rotations {
    const fn none() -> Self {
        Self(Mutex::new(UnderWay { n_begun: 0, since: BTreeMap::new() }))
    }

    fn begin(&self, now: Instant) -> u64 {
        let mut under_way = self.lock();
        under_way.n_begun += 1;
        let number = under_way.n_begun;
        under_way.since.insert(number, now);
        number
    }

    fn end(&self, number: u64) {
        self.lock().since.remove(&number);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, UnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measured for Rotations {
    fn samples(&self) -> Vec<Sample> {
        let ages: Vec<f64> = {
            let under_way = self.lock();
            let since = under_way.since.values();
            since.map(|it| it.elapsed().as_secs_f64()).collect()
        };
        let oldest = ages.iter().copied().fold(0.0, f64::max);
        vec![
            metrics::WORKQUEUE_LONGEST_RUNNING_PROCESSOR_SECONDS.sample([ROTATIONS], oldest),
            metrics::WORKQUEUE_UNFINISHED_WORK_SECONDS.sample([ROTATIONS], ages.iter().sum()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn work_that_goes_on_is_shown_with_its_age() {
        let rotations = Rotations::none();
        let ages = |rotations: &Rotations| -> Vec<f64> {
            rotations.samples().iter().map(|it| it.value.total()).collect()
        };
        let first = rotations.begin(Instant::now());
        tokio::time::advance(Duration::from_secs(3)).await;
        rotations.begin(Instant::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(ages(&rotations), [4.0, 5.0]);
        rotations.end(first);
        assert_eq!(ages(&rotations), [1.0, 1.0]);
    }
}
