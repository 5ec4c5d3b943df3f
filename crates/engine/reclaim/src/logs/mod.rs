//! Logs that grew too big: moved aside, the runtime moved on, the older ones compressed or removed.

mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use plan::Policy;
pub use run::{Doors, run};
