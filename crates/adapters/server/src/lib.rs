//! Everything of the node agent that listens.
//!
//! In: snapshots and doors behind ports (pods, node, health checks, runtime, streams, logs, usage,
//! reviews). Out: HTTP. Tables say which path is served by which listener ([`routes`],
//! [`main_routes`]); a module per answer says what it answers; [`run`] owns sockets, limits and
//! shutdown and knows no path; [`auth`] stands before every path of the main listener.
//!
//! ```text
//!  10248 health    ┐            ┌ health, pods                          /healthz, /pods
//!  10255 read-only ┼ run ─ routes ┤ metrics, summary                      /metrics…, /stats/summary
//!  10250 main      ┘   └ tls    └ main_routes (behind auth)
//!                                 ├ container_logs ─ LogFiles           /containerLogs
//!                                 ├ streams ─ Streams, then bytes       /exec, /attach, /portForward, /run
//!                                 ├ running_pods, allocated_pods        /runningpods/, /allocatedPods
//!                                 ├ configz, pages                      /configz, /flagz, /statusz
//!                                 ├ checkpoint, debug                   /checkpoint, /debug/pprof, /debug/flags/v
//!  page (loopback, if asked for) ────┴ page                                /page/
//! ```
//!
//! Refuses: changing any state of the engine; request bodies beyond a bound; writing files;
//! process-wide TLS defaults.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod accept;
mod activity;
mod allocated_pods;
mod auth;
mod cbor;
mod checkpoint;
mod container_logs;
mod debug;
mod half_closed;
mod health;
mod held;
mod log_query;
mod main_routes;
#[cfg(test)]
mod main_tests;
mod metrics;
mod page;
mod pages;
mod pods;
mod protobuf;
mod query;
mod refusal;
mod restful;
mod routes;
mod run;
mod running_pods;
mod seats;
mod sessions;
mod stall;
mod streams;
mod summary;
mod system_logs;
mod target;
#[cfg(test)]
mod tests;
mod tls;
mod traced;

pub use auth::{Authentication, Authorization, Gate};
pub use checkpoint::CheckpointDoors;
pub use debug::DebugDoors;
pub use main_routes::{MainDoors, main_router};
pub use metrics::{Figures, Hidden, Machine, Requests};
pub use page::{PageDoors, RecentEvents, page_router};
pub use pages::{About, Pages};
pub use routes::{Listener, Views, read_only_router, router};
pub use run::{BindError, Limits, Server};
pub use tls::{
    CallerError, ClientAuthorities, OldestTls, PemError, ServingCertificate, TlsOptions, TlsSetup,
    tls_setup,
};
