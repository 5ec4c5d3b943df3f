//! The machine's own logs, for `/logs/`: files, and the journal where there is one. Implemented by
//! the adapter `host`.

use ferrolet_types::Timestamp;

use crate::{Fut, HostError, LogPieces};

/// Looks below the machine's log directory, and into its journal.
pub trait SystemLogFiles: Send + Sync {
    /// What is at a path below the log directory; `None` for nothing, and for what may not be
    /// shown: links and specials.
    fn look<'a>(&'a self, path: &'a str) -> Fut<'a, Result<Option<SystemLog>, HostError>>;

    /// Those of these services that the journal has something of; none where there is no journal.
    fn in_journal<'a>(&'a self, services: &'a [String]) -> Fut<'a, Vec<String>>;

    /// What the journal has of services, in pieces.
    fn journal<'a>(&'a self, ask: &'a JournalAsk)
    -> Fut<'a, Result<Box<dyn LogPieces>, HostError>>;
}

/// Something below the log directory.
pub enum SystemLog {
    /// A directory: names, and whether each is a directory itself, in order.
    Directory(Vec<(String, bool)>),
    /// A file, in pieces.
    File(Box<dyn LogPieces>),
}

/// Which part of the journal is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalAsk {
    /// The services, by plain names.
    pub services: Vec<String>,
    /// From when on.
    pub since: Option<Timestamp>,
    /// Until when.
    pub until: Option<Timestamp>,
    /// Only so many lines, from the end.
    pub tail_lines: Option<u32>,
    /// Only what this expression fits.
    pub pattern: Option<String>,
    /// Of which boot: 0 is this one, -1 the one before.
    pub boot: Option<i32>,
}
