//! The pod volumes engine: what every volume of a pod should be, and making it so.
//!
//! ```text
//!  pod ──► plan (pure) ──► PodPlan ──► run: gather objects ──► payload (pure) ──► VolumeFiles (host)
//!                                        ▲
//!  ObjectChange, token due ──────────────┘  running pods are rewritten within a second; nothing wakes otherwise
//! ```
//!
//! Owned by the shell, used by pod workers through the port `PodVolumes`. In: pods, objects of the API, news about them.
//! Out: directories and mounts below the root directory, and `FailedMount` in upstream's words. Nothing is remembered that disk
//! and mount table do not know: a restart finds volumes as they are, and `release` works for pods it never saw.
//! Refuses: I/O of its own, knowing paths, and deciding when a pod starts or ends.
#![forbid(unsafe_code)]

mod attached;
mod claims;
mod credentials;
mod csi;
mod downward;
mod fault;
mod figures;
mod flex;
mod gather;
mod gifts;
mod growth;
mod health;
mod host_path;
mod kept;
mod medium;
mod nested;
mod numbers;
mod operations;
mod paths;
mod pauses;
mod payload;
pub mod plan;
mod provide;
pub mod provided;
mod release;
mod renewal;
mod run;
mod selinux;
#[cfg(test)]
mod tests;
mod trust;
mod unready;
mod wants;

pub use csi::{InUse, LimitDoors, NodeDoors, follow_limits, publish_drivers};
pub use figures::{NamedUsage, VolumeFigures};
pub use flex::Attaching;
pub use health::{HealthDoors, follow_health};
pub use numbers::{VolumeNumbers, volume_numbers};
pub use operations::figures;
pub use run::{Doors, VolumeEngine};
pub use selinux::{SelinuxAsk, SelinuxNode};
