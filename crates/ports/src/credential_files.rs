//! Files of the node's operator that say who the node is and whom it trusts: kubeconfigs,
//! certificates, keys, authorities.
//!
//! Small, read at start and when they change. Calls are short and may block. `host` implements
//! them on the disk.

use std::{collections::BTreeSet, ffi::OsString, io, path::Path};

use crate::Fut;

/// Reads files.
pub trait ReadFile: Send + Sync {
    /// The whole file; one that is far too big for what it should be is an error.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// A program that answers with credentials, and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramAsk {
    /// The program: a path, or a name for the search path.
    pub program: String,
    /// Its arguments.
    pub words: Vec<String>,
    /// What is in its environment besides what we have.
    pub environment: Vec<(String, String)>,
}

/// Reads, writes and watches them, and asks programs for them.
pub trait CredentialFiles: ReadFile {
    /// What a program answers on its standard output, within bounds of time and size; else why it
    /// has none. Whoever has no programs to run says so.
    fn ask_program<'a>(&'a self, ask: &'a ProgramAsk) -> Fut<'a, Result<Vec<u8>, String>> {
        Box::pin(async move { Err(format!("{}: programs are not run here", ask.program)) })
    }

    /// Writes a file that only root may read, at once or not at all, making its directory if that
    /// is missing.
    fn write_private(&self, path: &Path, text: &str) -> io::Result<()>;
    /// Tells when a file may have changed.
    fn watch(&self, path: &Path) -> Box<dyn ChangeHints>;
}

/// Names of files that were taken away, whether or not something is there again.
pub type Gone = BTreeSet<OsString>;

/// Tells when something under a path may have changed.
pub trait ChangeHints: Send {
    /// Waits for the next hint, with what was seen going since the last one; `None` when no more
    /// will come. Must be cancel-safe.
    fn next(&mut self) -> Fut<'_, Option<Gone>>;
}
