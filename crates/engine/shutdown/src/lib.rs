//! How pods end when the machine goes down (`shutdownGracePeriod` and its kin).
//!
//! ```text
//!  listen ─► long enough a delay? ─► hold the machine up ─► it goes down ─► node says so, takes no pod
//!    ▲ 1 s                                  ▲                                       │
//!    └── the bus is gone                    └── it stays up after all ◄── groups of pods end, lowest priority first
//!                                                                                   │ all have ended
//!                                                                                   v
//!                                                                           the machine may go down
//! ```
//!
//! [`plan`] says who ends when, with how much grace; it is pure. [`run`] owns the conversation with
//! the manager of power (port [`Power`](ferrolet_ports::Power)) and what is remembered of the last
//! shutdown (`graceful_node_shutdown_state`). Pods are ended by the sync loop, to which orders go;
//! when nothing is left of one it is heard through [`Ended`]. Refuses: judging pods, and speaking to
//! the API server. Upstream: `pkg/kubelet/nodeshutdown`.
#![forbid(unsafe_code)]

mod ended;
mod part;
mod plan;
mod record;
mod run;
#[cfg(test)]
mod tests;

pub use ended::Ended;
pub use part::{Doors, Settings, Shutdown, build};
pub use plan::{ShutdownGroup, two_phases};
