//! The only code of the runtime that runs after a fork: the spawner, the monitors of pods, and what
//! happens on the way into a container.
//!
//! ```text
//!  service ──execute──► spawner ──fork──► monitor, one per pod ──clone──► containers and commands
//! ```
//!
//! One thread, one `epoll`, one buffer of 64 kB for everything that a pod's containers write. No
//! tokio, no TLS, no HTTP. Because there is one thread, a forked child is a plain copy of its parent
//! and may allocate as its parent did: no lock can be held by a thread that the child does not have.
//! [`ferrolet_runtime_sys::fork::SingleThread`] is the proof, given once at the beginning of `main`.
//!
//! - [`spawner`] is what the executable runs when its first argument says so;
//! - `serve` is a monitor: launches, reaps, copies output, writes down exits, answers;
//! - `launch` is a container's way from clone to execution, and a command's;
//! - `sandbox` and `seed` make namespaces, `cgroups` executes plans, `log` writes CRI's format.
//!
//! Nothing is decided here: descriptions come complete, and a failure names its step and path.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cgroups;
mod failure;
mod launch;
mod log;
mod report;
mod sandbox;
mod seed;
mod serve;
pub mod spawner;
