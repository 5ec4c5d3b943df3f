//! The node's one state, and the loops that keep it true.
//!
//! ```text
//!  runtime ── watch_runtime ──┐                         ┌─► pods: admission, addresses, can pods be connected
//!  its size ── watch_machine ─┤                         │
//!  images, names ── refresh ──┼─► NodeHandle: NodeState ┼─► report: what the API is told
//!  volumes in use ── follow ──┤        (one watch)      ├─► server: the node's page
//!  API's copies ── NodeCopies ┘                         ├─► certificates, mirror pods, caches
//!                                                       └─► enforce_allocatable: bounds of the node's cgroups
//! ```
//!
//! What any of it means is decided in `ferrolet_node`. Refuses: talking to the API server, judging
//! pods.
#![forbid(unsafe_code)]

mod allocatable;
mod handle;
mod machine;
mod part;
mod refresh;
mod runtime;
#[cfg(test)]
mod tests;

pub use allocatable::{AllocatableDoors, AllocatableSettings, enforce_allocatable};
pub use handle::NodeHandle;
pub use part::{Doors, build};
pub use refresh::{RefreshDoors, look_up, refresh};
pub use runtime::watch_runtime;
