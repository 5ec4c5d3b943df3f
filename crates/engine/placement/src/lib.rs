//! Where containers run: the CPU, memory and topology managers at work.
//!
//! ```text
//!  admission ─► Desk::admit ─┐                      ┌─► keep       cpu_manager_state, memory_manager_state
//!  start ─────► Desk::place ─┼─ Placement (pure) ───┤
//!  board ─────► reconcile ───┘                      └─► reconcile  the shared pool, told to the runtime
//! ```
//!
//! In: pods as they are admitted and started, and the board. Out: processors and NUMA nodes for each
//! container, two files of state in upstream's format, and updates of containers whose processors
//! changed. Policy is `ferrolet_placement`'s. A file that cannot be used is set aside and what pods
//! had is given anew, where upstream refuses to start (ADR 0041). Refuses: devices.
#![forbid(unsafe_code)]

mod desk;
mod keep;
mod metrics;
mod part;
mod reconcile;
mod shown;
#[cfg(test)]
mod tests;

pub use desk::Desk;
pub use part::{Doors, Settings, build};
