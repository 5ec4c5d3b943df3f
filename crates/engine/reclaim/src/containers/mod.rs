//! Remains of containers: dead ones beyond the node's limits, and links to logs that are gone.
//!
//! A pod's worker removes what its own limits allow, at once; this keeps what the command line says
//! about the node as a whole.

mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use plan::Policy;
pub use run::{Doors, run};
pub(crate) use run::{remove_remains, run_shared};
