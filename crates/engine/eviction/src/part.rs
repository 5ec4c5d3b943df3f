//! The watch put together.

use std::{sync::Arc, time::Duration};

use ferrolet_config::config::Threshold;
use ferrolet_node::Pressure;
use ferrolet_ports::{
    Clock, Collectors, Events, GrantsView, MemoryAlarm, NodeMeans, Part, PodsView, RuntimeDisk,
    Usage,
};
use ferrolet_types::Eviction;
use tokio::sync::{mpsc, watch};

use crate::run::Watch;

/// When pods are put out.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The configured thresholds.
    pub thresholds: Vec<Threshold>,
    /// How long a pressure condition outlives its cause.
    pub transition: Duration,
    /// The longest grace given to a pod at a soft threshold; `None` for the pod's own.
    pub max_pod_grace: Option<Duration>,
}

/// How the watch goes about it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When pods are put out; may change while the agent runs.
    pub policy: watch::Receiver<Policy>,
    /// What pods may use together is enforced, so that it can run short by itself.
    pub is_pods_enforced: bool,
    /// Memory that is set aside in huge pages and therefore not available.
    pub huge_page_bytes: u64,
}

/// Who is asked and told.
pub struct Doors {
    /// What is left.
    pub means: Arc<dyn NodeMeans>,
    /// The kernel's word on memory.
    pub alarm: Arc<dyn MemoryAlarm>,
    /// What pods use.
    pub usage: Arc<dyn Usage>,
    /// Where the runtime's stores are, and what containers wrote.
    pub stores: Arc<dyn RuntimeDisk>,
    /// What gives back at once.
    pub collectors: Arc<dyn Collectors>,
    /// Who is there.
    pub pods: Arc<dyn PodsView>,
    /// What they were granted.
    pub grants: Arc<dyn GrantsView>,
    /// Who has to go.
    pub evictions: mpsc::Sender<Eviction>,
    /// What the node says.
    pub events: Arc<dyn Events>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// Puts the watch together; answers with what is short on the node, as it changes.
pub fn build(settings: Settings, doors: Doors) -> (watch::Receiver<Pressure>, Part) {
    let (pressure, shown) = watch::channel(Pressure::default());
    let mut part = Part::new("eviction");
    let tally = part.tally();
    part.add_loop(Watch::new(settings, doors, pressure, tally).run());
    (shown, part)
}
