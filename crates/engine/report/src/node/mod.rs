//! The node in the API: registered, and kept equal to what it is.
//!
//! ```text
//!  NodeSettings ─┐
//!  NodeFacts ────┼─► ferrolet_node: the node as it should be ─► patch     only what changed travels
//!  API's node ───┘                                              cadence   when a status is sent
//!  run   the loop: register, report, register again        hand_over_pod_cidr   the pods' network range to the runtime
//! ```
//!
//! A change of readiness or pressure is sent at once; everything else waits for the next
//! computation, so that a busy node does not become a busy API server. Refuses: leases, deciding
//! what the node is.

mod cadence;
mod patch;
mod pod_cidr;
mod run;
mod say;
mod startup;
#[cfg(test)]
mod tests;

pub use patch::plan_node_patch;
pub use pod_cidr::hand_over_pod_cidr;
pub use run::{NodeDoors, ReportSettings, run};
pub use say::{allocatable_enforced, allocatable_not_enforced, starting};
pub use startup::Startup;
