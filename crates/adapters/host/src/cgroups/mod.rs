//! The cgroups of the node and its pods, on v1 (also hybrid) and v2.
//!
//! [`ferrolet_linux::cgroups`] says what is mounted and how a place is called by either driver,
//! [`CgroupTree`] makes, bounds, lists and removes. The numbers come from `ferrolet-resources`;
//! here they are only written. With the driver systemd a cgroup is a slice: systemd is asked to make
//! and bound it (port `Slices`) before the files are written, so that it does not undo them. Owned by
//! the pod workers through the port `PodCgroups`.
//!
//! Must never happen: making, killing in or removing anything that is not below
//! `<cgroupRoot>/kubepods`. Two things are written elsewhere: v2's `cgroup.subtree_control` on the
//! way down, without which nothing below has controllers, and the cgroups that the configuration
//! names for daemons: bounds of two (`systemReservedCgroup`, `kubeReservedCgroup`), processes of two
//! ([`DaemonCgroups`]).

mod daemons;
mod place;
mod slices;
mod sweep;
#[cfg(test)]
mod tests;
mod tree;
mod values;

pub use daemons::{DaemonCgroupError, DaemonCgroups};
pub use tree::{CgroupTree, CgroupTreeError, CgroupTreeSettings};
pub use values::cpu_weight;
