//! The kernel, as every adapter of a Linux node needs it.
//!
//! Trees that a pod can touch ([`rooted`]), the table of mounts ([`mountinfo`]), where cgroups are
//! ([`cgroups`]), project quotas ([`project_quota`]), calls that can hang off the async threads
//! ([`offload`]), child processes with bounds ([`children`]), this process's own memory
//! ([`process`]), the wall clock, and all `unsafe` of the workspace ([`sys`]). It is below the
//! adapters, which never know one another. Refuses: ports of the engine other than the clock, and
//! following a link it did not make.

pub mod cgroups;
pub mod children;
mod clock;
pub mod limits;
pub mod mountinfo;
pub mod offload;
mod own_pages;
pub mod process;
pub mod project_quota;
pub mod rooted;
pub mod sys;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;

pub use clock::SystemClock;
