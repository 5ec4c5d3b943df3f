//! Notices that the machine grew or shrank: processors and memory that were plugged in or taken out,
//! huge pages set aside, a larger disk.
//!
//! In: the machine, looked at every minute. Out: the node's facts, from which capacity, allocatable
//! amounts and the bounds of the node's cgroups follow by themselves. A machine that does not answer
//! is as it was. Refuses: moving containers; who gave out processors goes by those that it knew.

use std::{sync::Arc, time::Duration};

use ferrolet_node::Machine;
use ferrolet_ports::MachineHost;
use tokio::time::{MissedTickBehavior, interval};

use crate::NodeHandle;

/// The machine is looked at this often.
const PERIOD: Duration = Duration::from_secs(60);

/// Looks for ever.
pub(crate) async fn watch_machine(host: Arc<dyn MachineHost>, node: NodeHandle) {
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one is at once, and the state was made from a look.
    tick.tick().await;
    let mut told = None;
    loop {
        tick.tick().await;
        let error = match host.machine().await {
            Ok(found) => {
                take_over(&node, found);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error.as_ref().filter(|_| error != told) {
            tracing::warn!(error, "The size of the machine is not known any longer");
        }
        told = error;
    }
}

fn take_over(node: &NodeHandle, found: Machine) {
    let known = node.state().facts.machine.clone();
    let Some(known) = known.filter(|known| *known != found) else {
        return;
    };
    let (cpus, memory) = (found.n_cpus, found.memory_bytes);
    if known.n_cpus != cpus || known.memory_bytes != memory || known.huge_pages != found.huge_pages
    {
        let (cpus_before, memory_before) = (known.n_cpus, known.memory_bytes);
        tracing::info!(cpus_before, cpus, memory_before, memory, "The machine is another size");
    }
    if known.topology != found.topology {
        tracing::warn!(
            "Processors or NUMA nodes came or went: containers with processors or memory of their own keep the old ones until the agent starts again"
        );
    }
    node.remeasure(found);
}
