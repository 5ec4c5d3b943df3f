//! The file source: a directory of manifests, or one manifest, kept in step with the disk.
//!
//! [`plan`] decides what a reading of the path means (pure); [`run`] reads, on every hint and every period, and sends. The disk
//! itself is behind two traits that the host implements. Matches upstream's file source, but for two things: a file that turns
//! bad keeps its last good pod for as long as it stays bad, and a fault is reported once, not at every reading.

mod plan;
mod run;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

use ferrolet_ports::Fut;

pub use plan::{FileSet, Scanned};
pub use run::{FileSource, run};

/// One manifest file: its path, and what it holds or why it cannot be read.
pub type ManifestFile = (PathBuf, Result<Vec<u8>, String>);

/// Reads manifests from the disk.
pub trait ManifestReader: Send + Sync {
    /// Every entry of the directory `path` that is not hidden, sorted by name and not recursively, or the one file `path`.
    /// An entry that is no readable regular file has the reason in its place; one that vanished meanwhile is left out. A path
    /// that does not exist is an empty list. At most [`MAX_BYTES`](crate::manifest::MAX_BYTES) and one more are read of a file.
    fn read<'a>(&'a self, path: &'a Path) -> Fut<'a, Result<Vec<ManifestFile>, String>>;
}

/// Names of files that were taken away, whether or not something is there again.
pub type Gone = BTreeSet<OsString>;

/// Tells when something under the path may have changed.
pub trait ChangeHints: Send {
    /// Waits for the next hint, with what was seen going since the last one; `None` when no more will come. Must be cancel-safe.
    fn next(&mut self) -> Fut<'_, Option<Gone>>;
}
