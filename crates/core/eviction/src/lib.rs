//! Eviction: what a node that runs short of something does about it, decided from values.
//!
//! ```text
//!  thresholds (config) ─► effective_thresholds ─┐
//!  observations, now, Memory ───────────────────┴► look ─► Outlook { memory, pressures, due }
//!                                                              │ due: the first is to be reclaimed
//!                                                              v
//!           node_reclaim: dead containers, unused images ─► still_met? ─► rank ─► one victim ─► Verdict
//! ```
//!
//! Whether a node under pressure takes new pods is admission's business. Nothing here reads a
//! statistic or ends a pod. The same facts give the same answer: where
//! upstream's choice depends on the order of a map, ours follows the order of the signals.
//! Refuses: critical pods as victims; ranking a pod whose statistics are missing before any other.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(test)]
mod life_tests;
mod look;
mod rank;
mod signal;
mod threshold;
mod verdict;

pub use look::{Memory, Observation, Observations, Outlook, look, still_met};
pub use rank::{Candidate, ContainerUse, FileUse, PodUse, rank};
pub use signal::{NodeReclaim, Pressure, StarvedResource, node_reclaim, pressure_of, resource_of};
pub use threshold::{FileSystems, effective_thresholds, threshold_quantity};
pub use verdict::{GraceLimits, Verdict, verdict};
