//! Drivers of dynamic resources: who is registered, which of them can be reached, and the calls of
//! each.
//!
//! ```text
//!  plugins_registry/*.sock ─ Registry ─► add ─► DriverWatch, one task each:
//!      not connected ─ dial ─► connected ─ ends ─► not connected        ─► DriverNews ─► engine
//!                                └─ NodeWatchResources ─► how devices feel ┘
//!  engine ─► ClaimDrivers (port) ─ NodePrepareResources, NodeUnprepareResources
//! ```
//!
//! A driver may have several plugins at once, as while it is updated: the newest that is connected is
//! asked. A driver is trusted with nothing but its own claims: its messages have gRPC's usual bound
//! of 4 MiB, its reports are taken one at a time with a pause between them, its calls have deadlines,
//! and there are so many plugins and no more. Refuses: deciding which claims are prepared.

mod calls;
mod health;
mod listen;
mod registry;
#[cfg(test)]
mod tests;

pub use listen::DriverWatch;
pub use registry::DriverRegistry;
pub(crate) use registry::Services;
