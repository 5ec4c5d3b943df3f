//! How many pulls may begin in a second: a bucket of tokens, filled at `registryPullQPS`, holding
//! `registryBurst`.

use std::sync::Mutex;

use tokio::time::Instant;

/// Pulls per second, and how many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullRate {
    /// Per second.
    pub per_second: u32,
    /// After a pause.
    pub burst: u32,
}

/// The bucket.
pub(super) struct Bucket {
    rate: PullRate,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    pub(super) fn new(rate: PullRate) -> Self {
        let full = f64::from(rate.burst);
        Self { rate, state: Mutex::new((full, Instant::now())) }
    }

    /// Takes a token; false when there is none.
    pub(super) fn take(&self) -> bool {
        let mut state = self.state.lock().expect("no panic while the lock is held");
        let (tokens, since) = *state;
        let now = Instant::now();
        let grown = now.duration_since(since).as_secs_f64() * f64::from(self.rate.per_second);
        let tokens = (tokens + grown).min(f64::from(self.rate.burst));
        let is_there = tokens >= 1.0;
        *state = (if is_there { tokens - 1.0 } else { tokens }, now);
        is_there
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// QPS and burst.
    #[tokio::test(start_paused = true)]
    async fn a_burst_empties_the_bucket_and_time_fills_it() {
        let bucket = Bucket::new(PullRate { per_second: 2, burst: 3 });
        let taken = || (0..10).filter(|_| bucket.take()).count();
        assert_eq!(taken(), 3);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(taken(), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken(), 3);
    }
}
