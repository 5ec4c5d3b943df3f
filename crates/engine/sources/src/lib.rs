//! Where pods come from: manifest files, a manifest URL, and the API or its stand-in, merged into
//! one stream of changes.
//!
//! ```text
//!  file::run ─┐  each source sends its whole set,            merge::run
//!  http::run ─┼─ SourceUpdate ──────────────────────────────► Merger ──► PodChanges ──► pods
//!  (API)     ─┤  only when it changed (the first time always)
//!  offline   ─┘  for an API that is away
//!
//!  a manifest on its way:  bytes ─ manifest::decode ─ defaults ─ identity ─ validate ─► pod, or one message with every fault
//! ```
//!
//! Owns: what a manifest means, a static pod's identity, the last good state of every file. A
//! manifest that turns bad is reported once and leaves its last good pod running; it never touches
//! another pod. Refuses: reading the disk (that is behind `ManifestFiles`), clocks other than
//! tokio's, and deciding what to do with a pod.
#![forbid(unsafe_code)]

mod canonical;
mod defaults;
mod fault;
pub mod file;
pub mod http;
mod identity;
mod ignored;
mod image;
pub mod manifest;
pub mod merge;
mod notice;
pub mod offline;
mod part;
mod read;
mod schema;
mod validate;

pub use fault::Fault;
pub use identity::Origin;
pub use ignored::IgnoredField;
pub use merge::Merger;
pub use notice::Notice;
pub use part::{Doors, FileSettings, HttpSettings, Settings, Sources, build};
pub use read::{Reading, read};
