//! The pod volumes engine: what every volume of a pod should be, and making it so.
//!
//! Read in this order, from wish to mount:
//!
//! ```text
//!  run        ensure(pod)                       who asks
//!  plan       what each volume should be        pure; `spec`, `claims` for what others provide
//!  refresh    one attempt at a pod's volumes    `gather` what they refer to ─► all side by side; again when
//!                                               an object changes or a token is due
//!  mount      one volume, step by step          `payload` ─► files; `state` (pure) says which steps are left;
//!                                               `csi`, `local`, `nfs` and other plugins do them
//!  table      how far each volume is            one row each, an enum with its evidence
//!  release    the way back                      `left_over`: what nobody has
//! ```
//!
//! Owned by the shell, used by pod workers through the port `PodVolumes`. In: pods, objects of the
//! API, news about them. Out: directories and mounts below the root directory, and `FailedMount` in
//! upstream's words. Nothing is remembered that disk and mount table do not know: a restart finds
//! volumes as they are, and `release` works for pods it never saw. Refuses: I/O of its own, knowing
//! paths, and deciding when a pod starts or ends.
#![forbid(unsafe_code)]

mod certificates;
mod claims;
mod counted;
mod csi;
mod downward;
mod gather;
mod growth;
mod health;
mod host_path;
mod left_over;
mod local;
mod medium;
mod migrated;
mod mount;
mod nested;
mod nfs;
mod operations;
mod ownership;
mod part;
mod paths;
mod payload;
pub mod plan;
mod refresh;
mod release;
mod renewal;
mod run;
mod selinux;
mod spec;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod trust;
mod unready;
mod usage;

pub use csi::{LimitDoors, NodeDoors, follow_limits, publish_drivers};
pub use gather::ProjectionGates;
pub use health::{HealthDoors, follow_health};
pub use part::{ClusterDoors, Settings, VolumeDoors, Volumes, build};
pub use run::{Doors, VolumeEngine};
pub use selinux::{SelinuxAsk, SelinuxNode};
pub use table::InUse;
pub use usage::{NamedUsage, VolumeStats};
