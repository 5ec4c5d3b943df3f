//! What the node takes back: images that nobody needs, logs that grew too big, remains of
//! containers that are gone.
//!
//! ```text
//!  images      listing, use, disk ─► Ledger, plan ─► remove one, measure, next    every 5 min, or when a plan says so
//!  logs        sizes ─► Watch ─► rotate: remove, rename, reopen; compress         every containerLogMonitorInterval, or sooner
//!  containers  listing, links ─► plan ─► remove                                   every minute
//!  storage     pods with limits ─► measure ─► order to evict                      every 10 s, rarer where it is expensive
//! ```
//!
//! A node that runs short asks for more than that at once: [`Collectors`](ferrolet_ports::Collectors).
//! Each has a pure `plan` and a loop in `run`. Dead containers of a pod are mostly its worker's
//! business; what is here keeps the node-wide limits. Refuses: ending a pod itself; who has to go
//! is told to the sync loop.
#![forbid(unsafe_code)]

pub mod containers;
mod demand;
pub mod images;
pub mod logs;
mod metrics;
mod part;
pub mod storage;

pub use part::{Doors, Settings, build};
