//! Hands the pods' network range to the runtime: the configured one, and the cluster's when it gives
//! one out. A loop of its own: a runtime that hangs must not keep the node's status from being sent.

use std::{sync::Arc, time::Duration};

use ferrolet_node::NodeState;
use ferrolet_ports::Runtime;
use k8s_openapi::api::core::v1::Node;
use tokio::{sync::watch, time::sleep};

/// Pause before a runtime that refused is told again.
const RETRY: Duration = Duration::from_secs(5);

/// Tells the runtime each range once, until the watch ends. `configured` counts until the cluster
/// says otherwise, and on a node on its own.
pub async fn hand_over_pod_cidr(
    runtime: Arc<dyn Runtime>,
    mut node: watch::Receiver<Arc<NodeState>>,
    configured: Option<String>,
) {
    let mut told: Option<String> = None;
    loop {
        let given = node.borrow_and_update().object.as_deref().and_then(ranges);
        let cidr = given.or_else(|| told.is_none().then(|| configured.clone()).flatten());
        let mut is_told = true;
        if let Some(cidr) = cidr.filter(|cidr| told.as_ref() != Some(cidr)) {
            match runtime.set_pod_cidr(&cidr).await {
                Ok(()) => {
                    tracing::info!(newPodCIDR = %cidr, "Updating Pod CIDR");
                    told = Some(cidr);
                }
                Err(error) => {
                    tracing::error!(%error, "Error updating pod CIDR");
                    is_told = false;
                }
            }
        }
        // Both are cancel-safe: a change that is not seen stays, and a pause that is cut short is
        // only a pause.
        tokio::select! {
            changed = node.changed() => if changed.is_err() { return },
            () = sleep(RETRY), if !is_told => {}
        }
    }
}

/// All ranges in the form that runtimes take.
fn ranges(node: &Node) -> Option<String> {
    let all = node.spec.as_ref()?.pod_cidrs.as_ref()?;
    (!all.is_empty()).then(|| all.join(","))
}
