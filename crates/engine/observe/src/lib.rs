//! What really runs: the runtime's events and listings, turned into hints.
//!
//! Two loops, both owned here. [`watch_containers`] keeps a brief map of every container and
//! sandbox, feeds it from the event stream and repairs it by listing everything now and then; each
//! difference becomes a [`Hint`](ferrolet_types::hint::Hint). [`watch_kernel`] tells when the
//! machine ran out of memory.
//!
//! Hints say *look*, never *what is*: the worker of a pod looks for itself, so a pod whose
//! inspection hangs delays no other. Refuses: inspecting single pods, deciding anything.
#![forbid(unsafe_code)]

mod containers;
mod kernel;
mod known;
mod metrics;
mod part;
#[cfg(test)]
mod tests;

pub use containers::{ListingHealth, watch_containers};
pub use kernel::watch_kernel;
pub use metrics::LastListing;
pub use part::{Doors, Observed, build};
