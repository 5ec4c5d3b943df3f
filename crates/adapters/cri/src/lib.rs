//! The CRI adapter: the only speaker of CRI v1, over gRPC on unix sockets.
//!
//! In: the plain requests of `ferrolet-spec`. Out: the plain data of `ferrolet-ports` and
//! `ferrolet-types`. One value, [`CriClient`], is both ports, `Runtime` and `Images`; it connects
//! when it is first used and again whenever the connection is lost, so its owner never handles a
//! connection. Every call has a deadline and leaves one debug line (target `cri`).
//!
//! ```text
//!   SandboxSpec, ContainerSpec ── encode ──► request ─┐
//!                                                     ├─ call: deadline, log line, status ─► RuntimeError
//!   RuntimeListing, ImageInfo  ◄── decode ── answer ──┤
//!   PodObservation       ◄── observation ─────────────┘
//! ```
//!
//! `encode`, `decode`, `observation` and `error` are pure and tested on values. Refuses: retries,
//! caches, policy, and letting a wire type or a secret out (neither in `Debug` nor in the log).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod call;
mod client;
mod decode;
mod disk;
mod encode;
mod endpoint;
mod error;
mod events;
mod images;
mod observation;
mod runtime;
mod streams;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

/// The wire's types, which never leave this crate.
use ferrolet_cri_proto as proto;

pub use client::{CriClient, Timeouts};
pub use endpoint::EndpointError;
pub use streams::StreamOptions;
