//! Claims of dynamic resources: prepared by their drivers before a pod's sandbox is made, taken back
//! when nothing of the pod runs any more.
//!
//! ```text
//!  workers of pods ── PodClaims ──► prepare ── API: the claim ──► ClaimBook ──► drivers
//!                          │        unprepare ────────────────────────┘            │
//!                          │                                          └──► checkpoint ──► StateFiles
//!  drivers ── DriverNews ──► keep ──► HealthBook, pods that waited ──► the sync loop
//!                              └────► wipe ──► API: ResourceSlices of drivers that are gone
//! ```
//!
//! The book is one lock that is never held over a call, so that a driver that hangs holds up its own
//! pods only; it is on disk before a driver is called, so that an agent that dies knows whom to ask
//! to take back what. Whether a pod may use a claim and what is asked of drivers is decided in
//! `ferrolet_claims`. Refuses: gRPC, and deciding.
#![forbid(unsafe_code)]

mod claims;
mod keep;
mod metrics;
mod part;
mod prepare;
mod shown;
#[cfg(test)]
mod tests;
mod unprepare;
mod wipe;

pub use claims::Claims;
pub use ferrolet_claims::ClaimRules;
pub use part::{Built, Doors, Settings, build};
