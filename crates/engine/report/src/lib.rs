//! What we tell the cluster: the status of pods, the mirrors of static pods, the node and its
//! status.
//!
//! ```text
//!  workers ── StatusSink ──► pod_status   latest per pod, parallel writers, in order per pod ──► PATCH, DELETE
//!  static pods, API's pods ─► mirror      plan: create, delete, nothing                      ──► POST, DELETE
//!  facts of the machine ────► node        register, conditions, patches of what changed      ──► POST, PATCH
//! ```
//!
//! Each module splits into pure plans and one loop. The loops own nothing but their last knowledge
//! of the API's objects, which they take from watches and from the answers to their own writes;
//! none of them reads an object before writing it. Refuses: leases and events' delivery (the
//! adapter `cluster`), deciding anything about a pod's life.
#![forbid(unsafe_code)]

mod metrics;
pub mod mirror;
pub mod node;
mod part;
pub mod pod_status;

pub use part::{ApiPods, Doors, Report, build};
