//! Probes and hooks put together.

use std::sync::Arc;

use ferrolet_ports::{Hooks, Part, Probing};
use ferrolet_types::probe::ProbeReport;
use tokio::sync::mpsc;

use crate::{Doors, HookRunner, hooks, probes};

/// What workers use, and what they hear.
pub struct Probes {
    /// Takes orders.
    pub probing: Arc<dyn Probing>,
    /// Runs handlers of container lifecycles.
    pub hooks: Arc<dyn Hooks>,
    /// Results that changed.
    pub reports: mpsc::UnboundedReceiver<ProbeReport>,
}

/// Puts both together.
pub fn build(doors: Doors) -> (Probes, Part) {
    hooks::begin();
    let hooks =
        HookRunner::new(doors.runtime.clone(), doors.events.clone(), doors.outbound.clone());
    let mut part = Part::new("probes");
    let (probing, probe_loop, reports) = probes(doors, part.tally());
    part.add_loop(probe_loop.run());
    (Probes { probing: Arc::new(probing), hooks: Arc::new(hooks), reports }, part)
}
