//! The statuses of pods on their way to the API.
//!
//! ```text
//!  publish ─┐                        ┌─► writer 1 ─ patch, delete ─┐
//!  forget  ─┼─► Ledger ── take ──────┼─► …                         ├─► Ledger::finish
//!  API pods ┘   latest per pod       └─► writer n                  ┘   done, again, later, gone
//! ```
//!
//! [`Ledger`](ledger) is the whole policy: what to write next, when to try again, what is done. At
//! most one writer is at work on a pod, so its statuses arrive in order; a newer status replaces
//! one that waits. A status leaves the ledger when the API has it or the pod is gone, never because
//! a request failed.

mod ledger;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use run::{StatusReporter, run};
