//! The file source: a directory of manifests, or one manifest, kept in step with the disk.
//!
//! [`plan`] decides what a reading of the path means (pure); [`run`] reads, on every hint and every
//! period, and sends. The disk itself is behind the port `ManifestFiles`. Matches
//! upstream's file source, but for two things: a file that turns bad keeps its last good pod for as
//! long as it stays bad, and a fault is reported once, not at every reading.

mod plan;
mod run;

pub use plan::{FileSet, Scanned};
pub use run::{FileSource, run};
