//! A token bucket: so many requests at once, then so many a second. Pure; spans since a start the
//! owner chooses.

use std::time::Duration;

/// The bucket.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Duration,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(per_second: f64, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_second, burst, tokens: burst, at: Duration::ZERO }
    }

    /// Takes a token if there is one.
    pub(crate) fn try_take(&mut self, now: Duration) -> bool {
        self.fill(now);
        let has_token = self.tokens >= 1.0;
        if has_token {
            self.tokens -= 1.0;
        }
        has_token
    }

    /// Takes the next token, be it one of the future, and answers how long to wait for it.
    pub(crate) fn reserve(&mut self, now: Duration) -> Duration {
        self.fill(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.per_second).unwrap_or(Duration::MAX)
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_in_step() {
        let mut bucket = Bucket::new(2.0, 3);
        let waits: Vec<u128> = (0..5).map(|_| bucket.reserve(Duration::ZERO).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 500, 1000]);
        assert_eq!(bucket.reserve(Duration::from_secs(1)).as_millis(), 500);
    }

    #[test]
    fn an_empty_bucket_refuses_until_it_fills() {
        let mut bucket = Bucket::new(1.0 / 300.0, 2);
        let taken = |bucket: &mut Bucket, secs: u64| bucket.try_take(Duration::from_secs(secs));
        assert!(taken(&mut bucket, 0) && taken(&mut bucket, 0));
        assert!(!taken(&mut bucket, 299));
        assert!(taken(&mut bucket, 300));
        assert!(!taken(&mut bucket, 301));
    }
}
