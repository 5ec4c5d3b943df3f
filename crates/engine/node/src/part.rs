//! The node put together: its state, and what keeps that true on every node.

use std::sync::Arc;

use ferrolet_node::NodeState;
use ferrolet_ports::{Clock, MachineHost, Part, Runtime};

use crate::{NodeHandle, machine::watch_machine, watch_runtime};

/// Who is asked about the node.
pub struct Doors {
    /// Containers.
    pub runtime: Arc<dyn Runtime>,
    /// The machine.
    pub machine: Arc<dyn MachineHost>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
}

/// Puts the node together.
pub fn build(state: NodeState, doors: Doors) -> (NodeHandle, Part) {
    let node = NodeHandle::new(state, doors.clock);
    let part = Part::new("node")
        .with_loop(watch_runtime(doors.runtime, node.clone()))
        .with_loop(watch_machine(doors.machine, node.clone()));
    (node, part)
}
