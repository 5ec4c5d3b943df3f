//! How the runtime feels, asked every few seconds.

use std::{sync::Arc, time::Duration};

use ferrolet_node::RuntimeHealth;
use ferrolet_ports::Runtime;
use tokio::time::{Instant, sleep, timeout};

use crate::NodeHandle;

/// Upstream asks this often.
const PERIOD: Duration = Duration::from_secs(5);
/// Until the first good answer we ask much more often: nothing can start before it. After two
/// minutes, upstream's patience, whoever keeps it away will take longer still.
const IMPATIENT_FIRST: Duration = Duration::from_millis(50);
const IMPATIENT_LAST: Duration = Duration::from_millis(200);
const IMPATIENT_FOR: Duration = Duration::from_secs(120);
/// A runtime that does not say who it is does not keep us from asking how it feels.
const VERSION: Duration = Duration::from_secs(2);

/// Asks the runtime how it feels, for ever, and who it is, until it has said so.
pub async fn watch_runtime(runtime: Arc<dyn Runtime>, node: NodeHandle) {
    let mut pause = IMPATIENT_FIRST;
    let began = Instant::now();
    let mut was_well = false;
    loop {
        let known = node.state();
        let facts = &known.facts;
        // Both at once: pods wait for the first answer.
        let unknown_version = async {
            match facts.runtime_version {
                None => timeout(VERSION, runtime.version()).await.ok()?.ok(),
                Some(_) => None,
            }
        };
        let (answer, version) = tokio::join!(runtime.status(), unknown_version);
        let answer = answer.map_err(|error| error.to_string());
        let health = facts.runtime.after(answer, node.clock().now());
        let is_well = health.is_well();
        if let Some(version) = version {
            node.update(|facts| facts.runtime_version = Some(version));
        }
        if facts.runtime != health {
            report(&health);
            node.update(|facts| facts.runtime = health);
        }
        was_well |= is_well;
        let longest =
            if was_well || began.elapsed() > IMPATIENT_FOR { PERIOD } else { IMPATIENT_LAST };
        pause = if is_well { PERIOD } else { (pause * 2).min(longest) };
        sleep(pause).await;
        if is_well {
            pause = IMPATIENT_FIRST;
        }
    }
}

fn report(health: &RuntimeHealth) {
    match health {
        RuntimeHealth::Never { error: None, .. } => {}
        RuntimeHealth::Never { error: Some(error), .. } | RuntimeHealth::Silent { error, .. } => {
            tracing::error!(error, "Container runtime does not answer");
        }
        RuntimeHealth::Answered(_) if health.is_well() => {
            tracing::info!("Container runtime is ready");
        }
        RuntimeHealth::Answered(status) => {
            for (what, condition) in [("runtime", &status.runtime), ("network", &status.network)] {
                if !condition.is_ok {
                    tracing::warn!(what, reason = %condition.reason, message = %condition.message, "Container runtime is not ready");
                }
            }
        }
    }
}
