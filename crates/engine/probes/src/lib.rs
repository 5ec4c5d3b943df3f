//! Liveness, readiness and startup probes: schedule, run, judge; and the handlers of container
//! lifecycles.
//!
//! One task holds the timetable of every probe on the node ([`ProbeLoop`]); a probe that is due is
//! a short-lived task, at most one per probe and a bounded number at once. Workers give orders
//! through [`ProbesHandle`] (port `Probing`) and hear of changed results as reports; hooks run
//! through [`HookRunner`] (port `Hooks`).
//!
//! | module | what it is |
//! | --- | --- |
//! | `plan`, `container`, `rule` | pure: when a probe runs and what its outcomes mean |
//! | `run` | the loop |
//! | `prober` | one probe, by the kind of its handler: `exec`, `http`, `tcp`, `grpc` |
//! | `hooks` | lifecycle handlers |
//! | `tell` | events in upstream's words |
//!
//! May touch: outbound connections to pod and host addresses, and commands through the runtime
//! port. Refuses: deciding what becomes of a container; that is the worker's.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod container;
mod dial;
mod exec;
mod grpc;
mod heard;
mod hooks;
mod http;
mod part;
mod plan;
mod prober;
mod rule;
mod run;
mod tcp;
mod tell;

pub use hooks::HookRunner;
pub use part::{Probes, build};
pub use run::{Doors, ProbeLoop, ProbesHandle, probes};

/// The version of Kubernetes that probes claim to come from.
const VERSION: &str = "1.37";
/// Most bytes of output and of bodies that are looked at.
const MAX_OUTPUT: usize = 10 << 10;
