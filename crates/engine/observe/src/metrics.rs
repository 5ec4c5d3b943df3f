//! Metrics of looking at the runtime, in the names of upstream's PLEG.
//!
//! Counted in the tally of the process: listings that ended and streams that were opened.
//! [`LastListing`] tells at each scrape when the last listing was.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{
    Clock, Measured, Sample,
    metrics::{self, process},
};

use crate::ListingHealth;

/// Shows from the start what upstream shows from the start: hints wait for their reader and are
/// never dropped.
pub(crate) fn begin() {
    process().add(metrics::KUBELET_PLEG_DISCARD_EVENTS, [], 0.0);
}

/// When the runtime was last listed.
pub struct LastListing {
    health: Arc<ListingHealth>,
    clock: Arc<dyn Clock>,
}

impl LastListing {
    /// The listing that `health` knows of, by this clock.
    pub fn new(health: Arc<ListingHealth>, clock: Arc<dyn Clock>) -> Self {
        Self { health, clock }
    }
}

impl Measured for LastListing {
    fn samples(&self) -> Vec<Sample> {
        let now = self.clock.now().0.as_second() as f64;
        let sample = self.health.age().map(|age| {
            metrics::KUBELET_PLEG_LAST_SEEN_SECONDS.sample([], now - age.as_secs() as f64)
        });
        sample.into_iter().collect()
    }
}

/// A listing ended, so long after the one before it.
pub(crate) fn listed(took: Duration, since_last: Option<Duration>) {
    let took = took.as_secs_f64();
    process().observe(metrics::KUBELET_PLEG_RELIST_DURATION_SECONDS, [], took);
    if let Some(interval) = since_last {
        process().observe(
            metrics::KUBELET_PLEG_RELIST_INTERVAL_SECONDS,
            [],
            interval.as_secs_f64(),
        );
    }
}

/// The event stream was asked for and opened, or not.
pub(crate) fn stream(took: Duration, is_open: bool) {
    if is_open {
        process().add(metrics::KUBELET_EVENTED_PLEG_CONNECTION_SUCCESS_COUNT, [], 1.0);
        process().observe(
            metrics::KUBELET_EVENTED_PLEG_CONNECTION_LATENCY_SECONDS,
            [],
            took.as_secs_f64(),
        );
    } else {
        process().add(metrics::KUBELET_EVENTED_PLEG_CONNECTION_ERROR_COUNT, [], 1.0);
    }
}

#[cfg(test)]
mod tests {
    use ferrolet_ports::metrics::Histogram;

    use super::*;

    #[test]
    fn listings_and_streams_are_counted_apart() {
        listed(Duration::from_millis(20), None);
        listed(Duration::from_millis(20), Some(Duration::from_secs(60)));
        stream(Duration::from_millis(1), true);
        stream(Duration::from_millis(1), false);
        begin();
        let n_of = |histogram: Histogram<0>| process().samples_of(histogram).len();
        for histogram in [
            metrics::KUBELET_PLEG_RELIST_DURATION_SECONDS,
            metrics::KUBELET_PLEG_RELIST_INTERVAL_SECONDS,
            metrics::KUBELET_EVENTED_PLEG_CONNECTION_LATENCY_SECONDS,
        ] {
            assert_eq!(n_of(histogram), 1, "{histogram:?}");
        }
        for counter in [
            metrics::KUBELET_EVENTED_PLEG_CONNECTION_SUCCESS_COUNT,
            metrics::KUBELET_EVENTED_PLEG_CONNECTION_ERROR_COUNT,
            metrics::KUBELET_PLEG_DISCARD_EVENTS,
        ] {
            assert_eq!(process().samples_of(counter).len(), 1, "{counter:?}");
        }
    }
}
