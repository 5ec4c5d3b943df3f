//! Devices of plugins: who offers them, who has them, and what a container gets with them.
//!
//! ```text
//!  plugins ── PluginNews ──► run ──► DeviceBook ──► amounts (watch) ──► the node
//!                                      │   ▲  └───► checkpoint ──► StateFiles
//!  workers of pods ── PodDevices ──────┘   │  └───► pods whose devices changed ──► the sync loop
//!      allocate, for_container ─ calls ────┘
//! ```
//!
//! The book is one lock that is never held over a call: devices are reserved before a plugin is
//! asked for them, so that a plugin that hangs holds up its own pods only. Which devices, and in
//! which words they are refused, is decided in `ferrolet_devices`. Refuses: gRPC, and deciding.
#![forbid(unsafe_code)]

mod allocate;
mod devices;
mod keep;
mod part;
mod shown;
#[cfg(test)]
mod tests;

pub use devices::Devices;
pub use part::{Built, Doors, Settings, build};
