//! Figures of telling the cluster, in upstream's names.
//!
//! One tally for the process (ADR 0018). In: how long a change of a pod's status was under way.
//! Out: [`figures`].

use std::time::Duration;

use ferrolet_ports::Tally;

/// Upstream's bounds, in seconds.
const BOUNDS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

static KEPT: Tally = Tally::new();

/// How the cluster was told.
pub fn figures() -> &'static Tally {
    &KEPT
}

/// The API has a pod's latest status, so long after the first change that it did not have.
pub(crate) fn status_arrived(took: Duration) {
    let family = "kubelet_pod_status_sync_duration_seconds";
    KEPT.observe(family, &[], &BOUNDS, took.as_secs_f64());
}

/// Parts of the start of a new node, in seconds.
pub(crate) fn startup(parts: &[(&'static str, f64)]) {
    for (family, seconds) in parts {
        KEPT.set(family, &[], *seconds);
    }
}
