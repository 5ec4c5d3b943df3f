//! Upstream's limit for callers of the local services: so many calls at once, refilled at a steady
//! rate.

use std::sync::Mutex;

use tokio::time::Instant;
use tonic::Status;

/// Calls a second, in the long run.
const RATE: f64 = 100.0;
/// Calls at once.
const BURST: f64 = 10.0;

/// A bucket of calls.
#[derive(Debug)]
pub(super) struct Limit {
    left: Mutex<(f64, Instant)>,
}

impl Limit {
    pub(super) fn new() -> Self {
        Self { left: Mutex::new((BURST, Instant::now())) }
    }

    /// Takes one call out of the bucket, or says that there is none.
    pub(super) fn take(&self) -> Result<(), Status> {
        let mut left = self.left.lock().expect("no panic under this lock");
        let now = Instant::now();
        let refilled = left.0 + now.duration_since(left.1).as_secs_f64() * RATE;
        let calls = refilled.min(BURST);
        let is_allowed = calls >= 1.0;
        *left = (if is_allowed { calls - 1.0 } else { calls }, now);
        if is_allowed { Ok(()) } else { Err(Status::resource_exhausted("rejected by rate limit")) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ten_at_once_and_then_one_each_ten_milliseconds() {
        let limit = Limit::new();
        let burst = |limit: &Limit| (0..50).filter(|_| limit.take().is_ok()).count();
        assert_eq!(burst(&limit), 10);
        tokio::time::advance(Duration::from_millis(31)).await;
        assert_eq!(burst(&limit), 3);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(burst(&limit), 10);
    }
}
