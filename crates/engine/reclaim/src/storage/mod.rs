//! Limits on local storage: pods that have more on the node's disk than they may are ended.
//!
//! ```text
//!  pods with limits ─► measure, each on its own and as rarely as it is expensive ─► resources::storage_breach ─► Eviction
//! ```
//!
//! Only pods that have a limit are measured, and none that may not be evicted. Refuses: pressure of
//! the node as a whole, which will be a neighbour of this.

mod pace;
mod run;
#[cfg(test)]
mod tests;

pub use run::{Doors, run};
