//! When a pod has been active for long enough, and when its end takes too long.

use std::time::Duration;

use ferrolet_types::{GracePeriod, Timestamp, pod::PodView};
use k8s_openapi::api::core::v1::Pod;

/// When a pod that started then must have ended; `None` when it may run for ever.
pub fn deadline(pod: &Pod, started: Timestamp) -> Option<Timestamp> {
    let secs = pod.spec_ref().active_deadline_seconds?;
    Some(started.after(Duration::from_secs(u64::try_from(secs).unwrap_or(0))))
}

/// Whoever has a pod killed waits for that at least so long.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(10);

/// When a kill that began then is told to take too long: after half as much again as its grace.
pub fn kill_is_overdue_at(since: Timestamp, grace: GracePeriod) -> Timestamp {
    since.after((grace.0 + grace.0 / 2).max(SHORTEST_PATIENCE))
}
