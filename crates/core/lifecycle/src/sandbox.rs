//! Whether a pod needs another sandbox.

use ferrolet_types::{
    SandboxId,
    observed::{NetworkMode, PodObservation},
    pod::PodView,
};
use k8s_openapi::api::core::v1::Pod;

/// What a pod's sandbox looks like from where a container would start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxNeed {
    /// This one will do.
    Usable(SandboxId),
    /// There was never one.
    First,
    /// What is there must go first.
    Replace {
        /// Counts on from the newest.
        attempt: u32,
        /// What is wrong with it, as the pod's condition says it.
        why: &'static str,
    },
}

/// Looks at the sandboxes of a pod and says whether the newest can be used.
pub fn sandbox_need(pod: &Pod, seen: &PodObservation) -> SandboxNeed {
    let Some(newest) = seen.newest_sandbox() else {
        return SandboxNeed::First;
    };
    let replace = |why| SandboxNeed::Replace { attempt: newest.attempt + 1, why };
    let n_ready = seen.sandboxes.iter().filter(|sandbox| sandbox.is_ready).count();
    let wanted = if pod.is_host_network() { NetworkMode::Node } else { NetworkMode::Pod };
    if n_ready > 1 {
        replace("multiple pod sandboxes are ready")
    } else if !newest.is_ready {
        replace("pod sandbox is not ready")
    } else if newest.network != wanted {
        replace("network namespace mode changed")
    } else if wanted == NetworkMode::Pod && newest.ips.is_empty() {
        replace("pod sandbox has no IP address")
    } else {
        SandboxNeed::Usable(newest.id.clone())
    }
}
