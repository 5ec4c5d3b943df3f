//! The node's wall clock, and the only place that asks for it.

use std::time::{SystemTime, UNIX_EPOCH};

use ferrolet_ports::Clock;
use ferrolet_types::Timestamp;

/// Wall time as the kernel tells it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock port that everyone else is sent to"
    )]
    fn now(&self) -> Timestamp {
        // A clock set before 1970 or beyond 2262 is a broken machine; the epoch says so more
        // plainly than a panic.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .and_then(|since| i64::try_from(since.as_nanos()).ok())
            .and_then(Timestamp::from_nanos)
            .unwrap_or_else(|| Timestamp::from_second(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_has_left_the_epoch_behind_and_does_not_run_backwards() {
        let first = SystemClock.now();
        assert!(first > Timestamp::from_second(1_700_000_000));
        assert!(SystemClock.now() >= first);
    }
}
