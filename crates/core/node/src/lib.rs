//! What the node is: how much it has, what of it pods may have, where it is, how it feels, and how
//! all that reads as the API's `Node`.
//!
//! ```text
//!  NodeSettings ─┐                     ┌─ object      labels, taints, annotations; what an existing node must get
//!  NodeFacts ────┼─► pure functions ───┼─ status      addresses, amounts, conditions, images, versions
//!  API's node ───┘                     └─ what changed, and whether the API should hear of it at once
//! ```
//!
//! In: settings, which never change, facts, which do, and the API's copy, which others may have
//! changed; the three together are the [`NodeState`] that everybody reads. Out: the node as it
//! should be. Refuses: reading the machine, judging pressure, sending
//! anything.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod addresses;
mod amounts;
mod conditions;
mod example;
mod facts;
mod object;
mod runtime;
mod settings;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod topology;
mod tunables;

pub use addresses::{AddressError, host_ips, looks_up_name};
pub use amounts::{allocatable, capacity, reservation, reservation_faults};
pub use conditions::{ready_message, runtime_faults};
pub use facts::{
    DeviceResources, HostAddresses, HugePages, Machine, NodeFacts, NodeImage, Pressure,
};
pub use object::{NodePlan, adopt_node, new_node, update_node};
pub use runtime::{
    CgroupDriver, RuntimeCondition, RuntimeHandler, RuntimeHealth, RuntimeStatus, RuntimeVersion,
};
pub use settings::{HardEviction, NodeSettings, Threshold};
pub use state::NodeState;
pub use status::{NodeStatusPlan, has_changed, is_ready, is_urgent, node_status};
pub use topology::{CpuCore, MachineTopology, NumaNode};
pub use tunables::{TUNABLES, Tunable, TunablePlan, TunablePolicy, plan_tunable};
