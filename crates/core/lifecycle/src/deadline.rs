//! When a pod has been active for long enough.

use std::time::Duration;

use ferrolet_types::{Timestamp, pod::PodView};
use k8s_openapi::api::core::v1::Pod;

/// When a pod that started then must have ended; `None` when it may run for ever.
pub fn deadline(pod: &Pod, started: Timestamp) -> Option<Timestamp> {
    let secs = pod.spec_ref().active_deadline_seconds?;
    Some(started.after(Duration::from_secs(u64::try_from(secs).unwrap_or(0))))
}
