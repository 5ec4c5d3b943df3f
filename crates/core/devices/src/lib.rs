//! Who has which device of a plugin, and which claims a pod stands on. Pure: books and rules.
//!
//! ```text
//!  what plugins list ─┐                    ┌─► capacity, allocatable: what the node shows
//!  checkpoint ────────┼─► DeviceBook ──────┼─► need ─► Choice ─► ids to allocate, or a Refusal
//!  what was allocated ┘   (one owner)      ├─► what a container is given
//!                                          └─► checkpoint in upstream's format
//!  API's ResourceClaims, pod ─► claims ─► ClaimBook ─► batches to prepare and unprepare, CDI names
//! ```
//!
//! Owned by `engine/devices`, which calls the plugins and keeps the books. Refuses: calling anybody,
//! clocks, files. NUMA nodes of devices are kept so that whoever aligns resources can ask.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod amounts;
mod ask;
mod book;
mod checkpoint;
mod given;
mod go_dump;
mod names;
mod take;
#[cfg(test)]
mod tests;

pub use ask::{DeviceAsk, asks, reusable};
pub use book::{Allocation, Device, DeviceBook, PluginId, PluginOptions};
pub use checkpoint::{Checkpoint, CheckpointEntry, CheckpointError};
pub use given::{GivenResource, combined};
pub use names::is_extended_resource;
pub use take::{Choice, Need, PreferredAsk, Refusal};
