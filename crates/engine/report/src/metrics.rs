//! Metrics of telling the cluster: how long a change of a pod's status was under way, and how long
//! the start of a new node took. Counted in the tally of the process.

use std::time::Duration;

use ferrolet_ports::metrics::{self, Gauge, process};

/// The API has a pod's latest status, so long after the first change that it did not have.
pub(crate) fn status_arrived(took: Duration) {
    process().observe(metrics::KUBELET_POD_STATUS_SYNC_DURATION_SECONDS, [], took.as_secs_f64());
}

/// Parts of the start of a new node, in seconds.
pub(crate) fn startup(parts: &[(Gauge<0>, f64)]) {
    for (gauge, seconds) in parts {
        process().set(*gauge, [], *seconds);
    }
}
