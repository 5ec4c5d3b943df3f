//! Everything of the node agent that listens.
//!
//! In: snapshots behind ports ([`PodsView`](ferrolet_ports::PodsView), [`HealthCheck`](ferrolet_ports::HealthCheck)). Out:
//! HTTP. One table ([`routes`]) says which path is served by which listener; a module per answer ([`health`], [`pods`]) says
//! what it answers; [`run`] owns sockets, limits and shutdown and knows no path.
//!
//! ```text
//!  10248 health    ┐            ┌ health   /healthz, /healthz/<check>
//!  10255 read-only ┼ run ─ routes ┤
//!  (10250 main)    ┘            └ pods     /pods
//! ```
//!
//! Refuses: changing any state of the engine; reading request bodies; writing files.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod activity;
mod auth;
mod container_logs;
mod health;
mod main_routes;
#[cfg(test)]
mod main_tests;
mod metrics;
mod pods;
mod query;
mod refusal;
mod routes;
mod run;
mod running_pods;
mod sessions;
mod stall;
mod streams;
mod summary;
mod target;
#[cfg(test)]
mod tests;
mod tls;

pub use auth::{Authentication, Authorization, Gate};
pub use main_routes::{MainDoors, main_router};
pub use metrics::Figures;
pub use routes::{Listener, Views, read_only_router, router};
pub use run::{BindError, Limits, Server};
pub use tls::{
    CallerError, ClientAuthorities, OldestTls, PemError, ServingCertificate, TlsOptions, TlsSetup,
    tls_setup,
};
