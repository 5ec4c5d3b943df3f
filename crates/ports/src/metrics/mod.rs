//! What the agent counts about itself, and whoever scrapes it is shown.
//!
//! ```text
//!  table ── one row per family ──► a handle each: Counter, Gauge, Histogram (constants)
//!                                     │ tally.add(KUBELET_EVICTIONS, [signal], 1.0)
//!                                     │ KUBELET_RUNNING_PODS.sample([], 3.0)
//!                                     v
//!                     Tally, Measured ──► samples ──► the server's endpoints
//! ```
//!
//! A handle is the only way to a figure: it knows its family, how many labels that has and whether
//! it grows, moves or is spread over buckets, so nothing can be counted that is not in the table
//! (ADR 0067). Where to count: in the tally of the process ([`process`]), which is always shown, or
//! in a tally of one's own that a [`Part`](crate::Part) shows. Refuses: formats, and label values
//! without bound; who counts answers for its own.

mod family;
mod sample;
mod table;
mod tally;
#[cfg(test)]
mod tests;

pub use family::{Counter, Endpoint, Family, Gauge, Histogram, Metric, Stability, Type};
pub use sample::{Measured, Sample, SampleValue};
pub use table::*;
pub use tally::{Tally, process};
