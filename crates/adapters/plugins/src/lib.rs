//! The sockets of plugins: how they make themselves known, and the calls of CSI drivers.
//!
//! ```text
//!  plugins_registry/*.sock ──► Registry ─ GetInfo, NodeGetInfo ─► who is registered (watch)
//!                                  └─ NotifyRegistrationStatus        │
//!  volumes engine ──► CsiDrivers (port) ── Node service of the driver ┘
//! ```
//!
//! Owned by the shell; the engine sees the port `CsiDrivers` and the set of registered drivers. Every call has a deadline.
//! Refuses: policy, retries of volume calls, and looking for sockets itself: they are handed in.
#![forbid(unsafe_code)]

mod csi;
mod endpoint;
mod proto;
mod registry;
#[cfg(test)]
mod tests;

pub use registry::{Registry, Sockets};
