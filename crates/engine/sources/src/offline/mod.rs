//! Pods that start from the disk: what `--offline-start` does after a reboot while the API server
//! is away.
//!
//! ```text
//!  API's sets ─ note_api_set ─┐                     ┌─ keep: jobs ─► OfflineStore (one copy per pod, root only)
//!  statuses ─── Sink ─────────┼─► Ledger ───────────┤
//!  objects, tokens ─ Objects ─┘  (memory, one lock) └─ stand_in: no set after 10 s ─► provisional SourceUpdate ─► merge
//!                                      │
//!            Objects, Lookups ◄────────┘ answers for a server that gives none
//! ```
//!
//! A copy holds a pod with its last status and everything its start needs: secrets, config maps,
//! tokens, services, its runtime handler. It is kept for pods that this node took and that still
//! have to run; it goes when the pod ends or is to be deleted. The first set of the API replaces
//! the stand-in's: a pod that the API no longer has is then ended. The assembly puts
//! [`Offline`]'s doors before the cluster's. Refuses: files (that is the store's), judging pods,
//! and showing the content of a copy to anybody. Why it is so: `docs/adr/0010-offline-start.md`.

mod doors;
mod ledger;
mod record;
mod run;
#[cfg(test)]
mod tests;

pub use run::Offline;
