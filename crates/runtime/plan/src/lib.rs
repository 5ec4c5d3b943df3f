//! What the runtime decides, as values: requests and facts of the node in, plans out.
//!
//! [`sandbox`] and [`container`] turn what CRI asks for into what a monitor executes, or into a
//! [`Refusal`]. [`cgroups`] lists the control groups of a container and what is written to their
//! files, for both versions; [`devices`] says which devices may be opened, as v1's lines and as v2's
//! program; [`defaults`] is what every container gets unless somebody says otherwise.
//!
//! [`cdi`] is what vendors' files add for their devices.
//!
//! Pure: no files, no clock, no async. A monitor executes what comes out and decides nothing.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cdi;
pub mod cgroups;
pub mod container;
pub mod defaults;
pub mod devices;
mod mounts;
mod process;
mod refusal;
pub mod sandbox;

pub use mounts::POD_FILES;
pub use process::{SeccompProfile, capabilities, seccomp_profile, stop_signal};
pub use refusal::Refusal;
