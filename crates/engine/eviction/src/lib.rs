//! The watch over the node's means: it looks, gives up what can be given up, and says who goes.
//!
//! ```text
//!  every 10 s, or when the kernel's alarm rings
//!    means ─► observe ─► eviction::look ─► pressures ─► NodeState: conditions, admission
//!                                     │ a threshold is due
//!                                     v
//!       EvictionThresholdMet ─► Collectors: dead containers, unused images ─► means again: enough?
//!                                     │ no
//!                                     v
//!       Usage ─► candidates ─► eviction::rank ─► the first: Eviction to the sync loop ─► until its cgroup is gone, 30 s
//! ```
//!
//! What is short, what follows and who goes is decided in `ferrolet_eviction`; `observe`,
//! `candidates` and `lines` translate, `run` waits and asks. Between shortages a look reads a
//! handful of files and no pod. Refuses: ending a pod itself, limits of single pods (`reclaim`),
//! taints (the API server's controllers set them from the conditions).
#![forbid(unsafe_code)]

mod candidates;
mod lines;
mod observe;
#[cfg(test)]
mod oracle;
mod part;
mod run;
#[cfg(test)]
mod tests;

pub use part::{Doors, Policy, Settings, build};
