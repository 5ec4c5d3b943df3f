//! gRPC on unix sockets: how plugins make themselves known, the calls of CSI drivers, device
//! plugins and drivers of dynamic resources, and the services that this node offers.
//!
//! ```text
//!  plugins_registry/*.sock ──► Registry ─ GetInfo, NodeGetInfo ─► who is registered (watch)
//!                                  └─ NotifyRegistrationStatus        │
//!  device-plugins/kubelet.sock ─ Register ─► DeviceRegistry ─ ListAndWatch ─► PluginNews
//!  claims engine ──► ClaimDrivers (port) ──► DriverRegistry ─ connected, how devices feel ─► DriverNews
//!  volumes engine ──► CsiDrivers (port) ── Node service of the driver ┘
//!  programs on this node ──► local ── views of pods, and of what they were given
//! ```
//!
//! Owned by the shell; the engine sees the ports `CsiDrivers`, `DevicePlugins` and `ClaimDrivers`,
//! the set of registered drivers and what becomes of the others. Every call has a deadline. Refuses: policy, retries of volume calls, and looking for sockets
//! itself: they are handed in.
#![forbid(unsafe_code)]

mod codes;
mod csi;
mod device;
mod dra;
mod endpoint;
mod health;
mod local;
mod proto;
mod registry;
#[cfg(test)]
mod tests;

pub use device::{DeviceRegistry, DeviceWatch};
pub use dra::{DriverRegistry, DriverWatch};
pub use local::{LocalSocket, PodNews, PodResources, PodsApi};
pub use registry::{Registry, Sockets, Takers};
