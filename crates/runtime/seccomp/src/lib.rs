//! Which system calls a container may make: profiles in, a program for the kernel out.
//!
//! ```text
//!  JSON ─ document::Document ─ resolve(node) ─┐
//!                                             ├─► Profile ─ table ─ compile ─► Filter: bytes and flags
//!  default::profile(capabilities) ────────────┘
//! ```
//!
//! Pure: no files, no clock, no async. The service reads profiles and keeps what was compiled; a
//! monitor only loads it. Notification of another process (`SCMP_ACT_NOTIFY`) is refused.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod compile;
mod default;
mod document;
mod profile;
mod syscalls;
mod table;

pub use compile::{Filter, TooLarge};
pub use default::profile as default_profile;
pub use document::{Document, DocumentError, MAX_DOCUMENT};
pub use profile::{Action, Comparison, Condition, Node, Profile, Rule};
pub use syscalls::Arch;
