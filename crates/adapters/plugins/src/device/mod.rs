//! Device plugins, version v1beta1: who registers, what each lists, and the calls of each.
//!
//! ```text
//!  device-plugins/kubelet.sock ─ Register ─┐
//!  plugins_registry/*.sock ─ Registry ─────┴─► connect ─ GetDevicePluginOptions ─► DeviceWatch
//!                                                 ListAndWatch, one task each ─► PluginNews ─► engine
//!  engine ─► DevicePlugins (port) ─ GetPreferredAllocation, Allocate, PreStartContainer
//! ```
//!
//! A plugin is trusted with nothing but its own resource: its messages have gRPC's usual bound of
//! 4 MiB, its lists are taken one at a time with a pause between them, its calls have deadlines, and
//! there are so many plugins and no more. Refuses: deciding who gets a device.

mod calls;
mod registry;
mod service;
#[cfg(test)]
mod tests;

pub use registry::{DeviceRegistry, DeviceWatch};
