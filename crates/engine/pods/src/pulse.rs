//! The health of the sync loop: it turned not long ago.

use std::{sync::Mutex, time::Duration};

use ferrolet_ports::HealthCheck;
use tokio::time::Instant;

/// Upstream's shortest threshold.
const SHORTEST_THRESHOLD: Duration = Duration::from_secs(300);

/// When the sync loop last turned.
#[derive(Debug)]
pub struct LoopHealth {
    last: Mutex<Option<Instant>>,
    threshold: Duration,
}

impl LoopHealth {
    /// A loop that counts as stuck after twice `sync_frequency`, or five minutes if that is longer.
    pub fn new(sync_frequency: Duration) -> Self {
        Self { last: Mutex::new(None), threshold: SHORTEST_THRESHOLD.max(sync_frequency * 2) }
    }

    /// How often the loop turns at least, so that silence means trouble.
    pub(crate) fn period(&self) -> Duration {
        self.threshold / 10
    }

    pub(crate) fn beat(&self) {
        *self.last.lock().expect("no panic while the lock is held") = Some(Instant::now());
    }
}

impl HealthCheck for LoopHealth {
    fn name(&self) -> &'static str {
        "syncloop"
    }

    fn check(&self) -> Result<(), String> {
        match *self.last.lock().expect("no panic while the lock is held") {
            Some(last) if last.elapsed() > self.threshold => {
                Err(format!("sync Loop took longer than expected: {}s", last.elapsed().as_secs()))
            }
            _ => Ok(()),
        }
    }
}
