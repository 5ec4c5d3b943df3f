//! How the runtime feels, asked every few seconds.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{Runtime, RuntimeStatus};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// Upstream asks this often.
const PERIOD: Duration = Duration::from_secs(5);
/// Until the first good answer we ask much more often: nothing can start before it. After two minutes, upstream's patience,
/// whoever keeps it away will take longer still.
const IMPATIENT_FIRST: Duration = Duration::from_millis(50);
const IMPATIENT_LAST: Duration = Duration::from_millis(200);
const IMPATIENT_FOR: Duration = Duration::from_secs(120);

/// How the runtime feels.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum RuntimeHealth {
    /// It has not answered yet.
    #[default]
    Unknown,
    /// It does not answer.
    Silent(String),
    /// It answered.
    Answered(RuntimeStatus),
}

impl RuntimeHealth {
    /// True when containers can run.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Answered(status) if status.runtime.is_ok)
    }

    /// True when pods can be connected.
    pub fn is_network_ready(&self) -> bool {
        self.network_trouble().is_none()
    }

    /// Why pods cannot be connected, in upstream's words; `None` when they can.
    pub fn network_trouble(&self) -> Option<Arc<str>> {
        let trouble = match self {
            Self::Unknown => "network state unknown".to_owned(),
            Self::Silent(error) => format!("container runtime network not ready: {error}"),
            Self::Answered(status) if status.network.is_ok => return None,
            Self::Answered(status) => format!(
                "container runtime network not ready: NetworkReady=false reason:{} message:{}",
                status.network.reason, status.network.message
            ),
        };
        Some(trouble.into())
    }
}

/// Asks the runtime how it feels until nobody listens any more.
pub async fn watch_health(runtime: Arc<dyn Runtime>, health: watch::Sender<RuntimeHealth>) {
    let mut pause = IMPATIENT_FIRST;
    let began = Instant::now();
    let mut was_well = false;
    while !health.is_closed() {
        let answer = match runtime.status().await {
            Ok(status) => RuntimeHealth::Answered(status),
            Err(error) => RuntimeHealth::Silent(error.to_string()),
        };
        let is_well = answer.is_ready() && answer.is_network_ready();
        health.send_if_modified(|known| {
            let is_new = *known != answer;
            if is_new {
                report(&answer);
                *known = answer;
            }
            is_new
        });
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
        RuntimeHealth::Unknown => {}
        RuntimeHealth::Silent(error) => tracing::error!(error, "Container runtime does not answer"),
        RuntimeHealth::Answered(status) if status.runtime.is_ok && status.network.is_ok => {
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
