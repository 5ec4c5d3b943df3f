//! The shutdown put together.

use std::sync::Arc;

use ferrolet_ports::{Clock, Events, Part, PodsView, Power, StateFiles, StatusBacklog};
use ferrolet_types::Eviction;
use tokio::sync::{mpsc, watch};

use crate::{Ended, ShutdownGroup, run::run};

/// How pods end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Groups of pods; none means that pods die with the machine.
    pub groups: Vec<ShutdownGroup>,
    /// The last shutdown is remembered and shown in the metrics (feature
    /// `GracefulNodeShutdownBasedOnPodPriority`).
    pub keeps_record: bool,
}

/// Who is asked and told.
pub struct Doors {
    /// Whoever says that the machine goes down.
    pub power: Arc<dyn Power>,
    /// Who is there.
    pub pods: Arc<dyn PodsView>,
    /// Who has to go.
    pub evictions: mpsc::Sender<Eviction>,
    /// What is left of them.
    pub ended: Arc<Ended>,
    /// Statuses that the cluster does not know yet; none without a cluster.
    pub backlog: Option<Arc<dyn StatusBacklog>>,
    /// Where the last shutdown is remembered.
    pub state_files: Arc<dyn StateFiles>,
    /// Where the node's events go.
    pub events: Arc<dyn Events>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// What others need of it.
pub struct Shutdown {
    /// Why the node is not ready and takes no pod; `None` while the machine stays up.
    pub fault: watch::Receiver<Option<String>>,
}

/// Puts it together; a node without groups has nothing to do.
pub fn build(settings: Settings, doors: Doors) -> (Shutdown, Part) {
    let (fault_sender, fault) = watch::channel(None);
    let mut part = Part::new("shutdown");
    if !settings.groups.is_empty() {
        let tally = part.tally();
        part.add_loop(run(settings, doors, fault_sender, tally));
    }
    (Shutdown { fault }, part)
}
