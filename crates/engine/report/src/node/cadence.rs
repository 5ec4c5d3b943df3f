//! When a status is sent although nothing changed. Pure: chance and time are handed in.
//!
//! After a change the next plain report comes at a random moment between half and one and a half
//! periods, so that nodes which changed together do not report together; from then on the period is
//! fixed.

use std::time::Duration;

use tokio::time::Instant;

/// How far apart two computations may drift.
const TICK_JITTER: f64 = 0.04;

/// When the last report was sent and when the next is due.
#[derive(Debug)]
pub(crate) struct Cadence {
    frequency: Duration,
    due: Option<Instant>,
}

impl Cadence {
    pub(crate) fn new(frequency: Duration) -> Self {
        Self { frequency, due: None }
    }

    /// True when a report is due; always before the first.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now)
    }

    /// A report was sent; `chance` lies between 0 and 1.
    pub(crate) fn sent(&mut self, now: Instant, has_changed: bool, chance: f64) {
        let factor = if has_changed || self.due.is_none() { 0.5 + chance } else { 1.0 };
        self.due = Some(now + self.frequency.mul_f64(factor));
    }
}

/// The pause until the next computation.
pub(crate) fn tick(frequency: Duration, chance: f64) -> Duration {
    frequency.mul_f64(1.0 + TICK_JITTER * chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_report_after_a_change_is_spread_and_later_ones_are_not() {
        let start = Instant::now();
        let after = |secs| start + Duration::from_secs(secs);
        let mut cadence = Cadence::new(Duration::from_secs(300));
        assert!(cadence.is_due(start));
        cadence.sent(start, false, 0.0);
        assert!(!cadence.is_due(after(149)) && cadence.is_due(after(150)));
        cadence.sent(after(150), false, 0.9);
        assert!(!cadence.is_due(after(449)) && cadence.is_due(after(450)));
        cadence.sent(after(450), true, 0.75);
        assert!(!cadence.is_due(after(824)) && cadence.is_due(after(825)));
    }
}
