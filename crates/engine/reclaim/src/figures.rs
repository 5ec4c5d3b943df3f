//! Figures of what the node takes back, in upstream's names: images removed, and the line of logs
//! to rotate.
//!
//! One set for the process (ADR 0018). In: what is put in line, begun and ended. Out: [`figures`],
//! which also tells how long work has been going on at the moment somebody asks.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use ferrolet_ports::{Measured, Sample, SampleValue, Tally};
use tokio::time::Instant;

/// What upstream calls the line.
const ROTATIONS: &str = "kubelet_log_rotate_manager";
/// Upstream's bounds for lines, in seconds.
const BOUNDS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// What is counted, and since when what is not over is going on.
pub struct ReclaimFigures {
    tally: Tally,
    under_way: Mutex<UnderWay>,
}

struct UnderWay {
    n_begun: u64,
    since: BTreeMap<u64, Instant>,
}

static KEPT: ReclaimFigures = ReclaimFigures {
    tally: Tally::new(),
    under_way: Mutex::new(UnderWay { n_begun: 0, since: BTreeMap::new() }),
};

/// What was taken back on this node.
pub fn figures() -> &'static ReclaimFigures {
    // Upstream shows its lines from the start, and so do we.
    queued(0);
    &KEPT
}

/// An image was removed because of its age, or for the sake of space.
pub(crate) fn image_removed(reason: &str) {
    let family = "kubelet_image_garbage_collected_total";
    KEPT.tally.add(family, &[reason], 1.0);
}

/// Logs are put in line to be rotated.
pub(crate) fn queued(n_logs: usize) {
    let n_logs = n_logs as f64;
    KEPT.tally.add("workqueue_adds_total", &[ROTATIONS], n_logs);
    KEPT.tally.add("workqueue_depth", &[ROTATIONS], n_logs);
    KEPT.tally.add("workqueue_retries_total", &[ROTATIONS], 0.0);
}

/// One log's turn, in line since `queued`.
pub(crate) async fn turn<T>(queued: Instant, work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let waited = began.duration_since(queued).as_secs_f64();
    let tally = &KEPT.tally;
    tally.add("workqueue_depth", &[ROTATIONS], -1.0);
    let family = "workqueue_queue_duration_seconds";
    tally.observe(family, &[ROTATIONS], &BOUNDS, waited);
    let number = KEPT.begin(began);
    let done = work.await;
    KEPT.end(number);
    let took = began.elapsed().as_secs_f64();
    let family = "workqueue_work_duration_seconds";
    tally.observe(family, &[ROTATIONS], &BOUNDS, took);
    done
}

/// A log has to be tried again.
pub(crate) fn again() {
    KEPT.tally.add("workqueue_retries_total", &[ROTATIONS], 1.0);
}

impl ReclaimFigures {
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
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measured for ReclaimFigures {
    fn samples(&self) -> Vec<Sample> {
        let mut samples = self.tally.samples();
        let ages: Vec<f64> = {
            let under_way = self.lock();
            let since = under_way.since.values();
            since.map(|it| it.elapsed().as_secs_f64()).collect()
        };
        for (family, value) in [
            (
                "workqueue_longest_running_processor_seconds",
                ages.iter().copied().fold(0.0, f64::max),
            ),
            ("workqueue_unfinished_work_seconds", ages.iter().sum()),
        ] {
            samples.push(Sample {
                family,
                labels: vec![ROTATIONS.to_owned()],
                value: SampleValue::Number(value),
            });
        }
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn work_that_goes_on_is_shown_with_its_age() {
        let figures = ReclaimFigures {
            tally: Tally::new(),
            under_way: Mutex::new(UnderWay { n_begun: 0, since: BTreeMap::new() }),
        };
        let ages = |figures: &ReclaimFigures| -> Vec<SampleValue> {
            figures.samples().into_iter().map(|it| it.value).collect()
        };
        let first = figures.begin(Instant::now());
        tokio::time::advance(Duration::from_secs(3)).await;
        figures.begin(Instant::now());
        tokio::time::advance(Duration::from_secs(1)).await;
        let number = SampleValue::Number;
        assert_eq!(ages(&figures), [number(4.0), number(5.0)]);
        figures.end(first);
        assert_eq!(ages(&figures), [number(1.0), number(1.0)]);
    }
}
