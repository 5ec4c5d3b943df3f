//! Where cgroups are: what is mounted ([`CgroupLayout`]), and how a place is called by either driver
//! ([`CgroupName`]). Pure; whoever makes, bounds or reads them is an adapter.

mod layout;
mod name;

pub use layout::{CgroupLayout, CgroupMode, Hierarchy, LayoutError};
pub use name::CgroupName;
