//! Figures of looking at the runtime, in the names of upstream's PLEG.
//!
//! One tally for the process (ADR 0018). In: listings that ended and streams that were opened. Out:
//! [`figures`], and [`LastListing`], which tells at each scrape when the last listing was.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{Clock, Measured, Sample, SampleValue, Tally};

use crate::ListingHealth;

static KEPT: Tally = Tally::new();

/// How the runtime was looked at.
pub fn figures() -> &'static Tally {
    // Hints wait for their reader and are never dropped; upstream shows that from the start, and so
    // do we.
    KEPT.add("kubelet_pleg_discard_events", &[], 0.0);
    &KEPT
}

/// When the runtime was last listed, as a figure.
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
        let sample = self.health.age().map(|age| Sample {
            family: "kubelet_pleg_last_seen_seconds",
            labels: Vec::new(),
            value: SampleValue::Number(now - age.as_secs() as f64),
        });
        sample.into_iter().collect()
    }
}

/// A listing ended, so long after the one before it.
pub(crate) fn listed(took: Duration, since_last: Option<Duration>) {
    let bounds = &Tally::SECONDS;
    let took = took.as_secs_f64();
    KEPT.observe("kubelet_pleg_relist_duration_seconds", &[], bounds, took);
    if let Some(interval) = since_last {
        let family = "kubelet_pleg_relist_interval_seconds";
        KEPT.observe(family, &[], bounds, interval.as_secs_f64());
    }
}

/// The event stream was asked for and opened, or not.
pub(crate) fn stream(took: Duration, is_open: bool) {
    if is_open {
        KEPT.add("kubelet_evented_pleg_connection_success_count", &[], 1.0);
        let family = "kubelet_evented_pleg_connection_latency_seconds";
        KEPT.observe(family, &[], &Tally::SECONDS, took.as_secs_f64());
    } else {
        KEPT.add("kubelet_evented_pleg_connection_error_count", &[], 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_and_streams_are_counted_apart() {
        listed(Duration::from_millis(20), None);
        listed(Duration::from_millis(20), Some(Duration::from_secs(60)));
        stream(Duration::from_millis(1), true);
        stream(Duration::from_millis(1), false);
        let families: Vec<&str> = figures().samples().iter().map(|it| it.family).collect();
        for family in [
            "kubelet_pleg_relist_duration_seconds",
            "kubelet_pleg_relist_interval_seconds",
            "kubelet_evented_pleg_connection_success_count",
            "kubelet_evented_pleg_connection_latency_seconds",
            "kubelet_evented_pleg_connection_error_count",
            "kubelet_pleg_discard_events",
        ] {
            assert!(families.contains(&family), "{family}");
        }
    }
}
