//! The machine's own log files, for `/logs/`. Implemented by the adapter `host`.

use crate::{Fut, HostError, LogPieces};

/// Looks below the machine's log directory.
pub trait SystemLogFiles: Send + Sync {
    /// What is at a path below the log directory; `None` for nothing, and for what may not be shown: links and specials.
    fn look<'a>(&'a self, path: &'a str) -> Fut<'a, Result<Option<SystemLog>, HostError>>;
}

/// Something below the log directory.
pub enum SystemLog {
    /// A directory: names, and whether each is a directory itself, in order.
    Directory(Vec<(String, bool)>),
    /// A file, in pieces.
    File(Box<dyn LogPieces>),
}
