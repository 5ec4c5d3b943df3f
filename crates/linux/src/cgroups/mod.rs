//! Where cgroups are: what is mounted ([`CgroupLayout`]), and how a place is called by either driver
//! ([`CgroupName`]), where a process is ([`process_cgroup`]). Pure; whoever makes, bounds or reads them is an adapter.

mod layout;
mod name;
mod process;

pub use layout::{CgroupLayout, CgroupMode, Hierarchy, LayoutError};
pub use name::CgroupName;
pub use process::process_cgroup;
