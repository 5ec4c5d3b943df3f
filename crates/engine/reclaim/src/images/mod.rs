//! Images that nobody needs: too old, or in the way of a disk that fills up.

mod ledger;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use plan::Policy;
pub(crate) use run::{Collector, Doors, run};
