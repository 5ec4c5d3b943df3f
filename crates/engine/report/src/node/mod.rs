//! The node in the API: registered, described, and kept up to date.
//!
//! ```text
//!  NodeSettings ─┐                     ┌─ object      labels, taints, annotations; what an existing node must get
//!  NodeFacts ────┼─► pure functions ───┼─ status      addresses, amounts, conditions, images, versions
//!  API's node ───┘                     └─ patch       only what changed travels
//!                                       cadence       when a status is sent
//!  run   the loop: register, report, register again        hand_over_pod_cidr   the pods' network range to the runtime
//! ```
//!
//! A change of readiness or pressure is sent at once; everything else waits for the next computation, so that a busy node does
//! not become a busy API server. Refuses: leases, reading the machine (facts are handed in), judging pressure.

mod addresses;
mod amounts;
mod cadence;
mod conditions;
mod facts;
mod object;
mod patch;
mod pod_cidr;
mod run;
mod say;
mod startup;
mod status;
#[cfg(test)]
mod tests;

pub use addresses::{AddressError, host_ips, looks_up_name};
pub use amounts::{allocatable, capacity, reservation};
pub use conditions::{ready_message, runtime_faults};
pub use facts::{
    DeviceResources, HardEviction, HostAddresses, HugePages, Machine, NodeFacts, NodeSettings,
    Pressure, RuntimeAnswer, Threshold,
};
pub use object::{node_object, reconcile_existing};
pub use patch::plan_node_patch;
pub use pod_cidr::hand_over_pod_cidr;
pub use run::{NodeDoors, run};
pub use say::{allocatable_enforced, allocatable_not_enforced, starting};
pub use startup::Startup;
pub use status::{NodeStatusPlan, node_status};
