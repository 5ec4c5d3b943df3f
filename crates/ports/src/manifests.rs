//! Manifests of static pods on the node's disk; `host` implements it.

use std::path::{Path, PathBuf};

use crate::{ChangeHints, Fut};

/// One manifest file: its path, and what it holds or why it cannot be read.
pub type ManifestFile = (PathBuf, Result<Vec<u8>, String>);

/// Reads and watches manifests.
pub trait ManifestFiles: Send + Sync {
    /// Every entry of the directory `path` that is not hidden, sorted by name and not recursively,
    /// or the one file `path`. An entry that is no readable regular file has the reason in its
    /// place; one that vanished meanwhile is left out. A path that does not exist is an empty list.
    /// A file over ten mebibytes is not read.
    fn read<'a>(&'a self, path: &'a Path) -> Fut<'a, Result<Vec<ManifestFile>, String>>;
    /// Tells when something at `path` may have changed.
    fn watch(&self, path: &Path) -> Box<dyn ChangeHints>;
}
