//! Volumes on disk and in the mount table: the port `VolumeFiles` on a real node.
//!
//! Owned by the volumes engine, which decides; this crate does. Layout, names and modes are
//! upstream's, so that a node can be switched over and back:
//!
//! ```text
//! pods/<uid>/volumes/<plugin>/<name>                        the volume; tmpfs for what must not touch the disk
//! pods/<uid>/plugins/kubernetes.io~empty-dir/<marker>/ready it has been set up once
//! pods/<uid>/volume-subpaths/<name>/<container>/<index>     a part of it, mounted on its own
//! ```
//!
//! Must never happen: following a link that a container made, deleting across a mount point, or
//! mounting twice. Directories down to the volume are reached through [`ferrolet_linux::rooted`]; only the
//! step into the volume itself may cross a mount. The truth after a restart is the disk and the
//! kernel's table; nothing is remembered here.

#![forbid(unsafe_code)]

pub mod contract;
mod device_writers;
mod devices;
mod disks;
mod empty_dir;
mod fc;
mod flex;
mod fs_group;
mod iscsi;
mod kernel;
mod layout;
mod mounts;
mod node_mounts;
mod payload;
mod programs;
mod records;
mod sub_path;
mod take_away;
#[cfg(test)]
mod tests;
mod volume_files;

pub use flex::NodeFlexDrivers;
pub use volume_files::NodeVolumes;
