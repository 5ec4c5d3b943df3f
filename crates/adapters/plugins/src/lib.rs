//! gRPC on unix sockets: how plugins make themselves known, the calls of CSI drivers and device
//! plugins, and the services that this node offers.
//!
//! ```text
//!  plugins_registry/*.sock ──► Registry ─ GetInfo, NodeGetInfo ─► who is registered (watch)
//!                                  └─ NotifyRegistrationStatus        │
//!  device-plugins/kubelet.sock ─ Register ─► DeviceRegistry ─ ListAndWatch ─► PluginNews
//!  volumes engine ──► CsiDrivers (port) ── Node service of the driver ┘
//!  programs on this node ──► local ── views of pods, and of what they were given
//! ```
//!
//! Owned by the shell; the engine sees the ports `CsiDrivers` and `DevicePlugins`, the set of
//! registered drivers and what becomes of device plugins. Every call has a deadline. Refuses: policy, retries of volume calls, and looking for sockets
//! itself: they are handed in.
#![forbid(unsafe_code)]

mod codes;
mod csi;
mod device;
mod endpoint;
mod health;
mod local;
mod proto;
mod registry;
#[cfg(test)]
mod tests;

pub use device::{DeviceRegistry, DeviceWatch};
pub use local::{LocalSocket, PodNews, PodResources, PodsApi};
pub use registry::{Registry, Sockets};
