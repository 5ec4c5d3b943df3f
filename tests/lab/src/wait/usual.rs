//! How long each wait of each test usually takes, and which one took much longer this time.
//!
//! A wait that still ends in time but takes five times as long as ever before is the first sign of
//! a slower agent or of a test that is about to become flaky. The history is a file in the cache
//! directory; who keeps no cache has no history and is told nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// How many earlier times are kept of a wait.
const N_KEPT: usize = 9;
/// Fewer do not make a habit.
const N_LEAST: usize = 3;
/// How much longer than usual is worth a word.
const FACTOR: u32 = 5;
/// Shorter waits vary with the machine's load alone.
const FLOOR: Duration = Duration::from_millis(1000);

/// Milliseconds by wait, oldest first.
pub type History = BTreeMap<String, Vec<u64>>;

/// A wait that took much longer than it usually does.
#[derive(Debug, PartialEq, Eq)]
pub struct Slow {
    pub wait: String,
    pub took: Duration,
    pub usual: Duration,
}

/// Compares the waits of a run with their history, and adds them to it.
pub fn compare(history: &mut History, waits: &[(String, Duration)]) -> Vec<Slow> {
    let mut slow = Vec::new();
    for (wait, took) in waits {
        let earlier = history.entry(wait.clone()).or_default();
        if let Some(usual) = median(earlier)
            && *took >= usual.max(FLOOR) * FACTOR
        {
            slow.push(Slow { wait: wait.clone(), took: *took, usual });
        }
        earlier.push(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let n_over = earlier.len().saturating_sub(N_KEPT);
        earlier.drain(..n_over);
    }
    slow
}

fn median(times: &[u64]) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    (sorted.len() >= N_LEAST).then(|| Duration::from_millis(sorted[sorted.len() / 2]))
}

/// The history in a file; an unreadable one is an empty one, because it only serves comparison.
#[must_use]
pub fn read(path: &Path) -> History {
    let bytes = std::fs::read(path).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

pub fn write(path: &Path, history: &History) -> Result<()> {
    let next = path.with_extension("next");
    std::fs::write(&next, serde_json::to_vec(history)?)
        .and_then(|()| std::fs::rename(&next, path))
        .with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_wait_is_slow_at_five_times_its_median_and_a_floor() {
        let cases = [
            (vec![2000, 2000, 9000], 10_000, Some(2000)),
            (vec![2000, 2000, 9000], 9_999, None),
            (vec![10, 10, 10], 4_999, None),
            (vec![10, 10, 10], 5_000, Some(10)),
            (vec![10, 10], 60_000, None),
            (vec![], 60_000, None),
        ];
        for (earlier, took, usual) in cases {
            let mut history = History::from([("w".to_owned(), earlier.clone())]);
            let slow = compare(&mut history, &[("w".to_owned(), ms(took))]);
            let seen = slow.first().map(|it| u64::try_from(it.usual.as_millis()).unwrap());
            assert_eq!(seen, usual, "{earlier:?}, then {took}");
        }
    }

    #[test]
    fn the_newest_times_are_kept() {
        let mut history = History::new();
        for n in 0..20 {
            compare(&mut history, &[("w".to_owned(), ms(n))]);
        }
        assert_eq!(history["w"], (11..20).collect::<Vec<u64>>());
    }
}
