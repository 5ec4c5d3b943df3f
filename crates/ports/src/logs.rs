//! Container logs as the runtime writes them, read for whoever asks.
//!
//! Implemented by the adapter `host`, faked by `testkit`. A reader hands out pieces of bounded size
//! and holds no more than one between two calls. Refuses: choosing the file; its path comes from
//! the runtime's observation.

use std::sync::Arc;

use ferrolet_types::Timestamp;

use crate::{Fut, HostError};

/// Log files below the node's log directory.
pub trait LogFiles: Send + Sync {
    /// Opens the log at this path, which must lie below the log directory.
    fn open<'a>(
        &'a self,
        path: &'a str,
        ask: LogAsk,
    ) -> Fut<'a, Result<Box<dyn LogPieces>, HostError>>;
}

/// A log that is being read. Dropping it ends the reading.
pub trait LogPieces: Send {
    /// The next piece of text, without the runtime's prefixes; `None` at the end. Cancelling loses
    /// what was being read.
    fn next(&mut self) -> Fut<'_, Result<Option<Vec<u8>>, HostError>>;
}

/// Tells whether there is still somebody who writes.
pub trait StillWritten: Send + Sync {
    /// True while the container runs, or when nobody can tell.
    fn is_written(&self) -> bool;
}

/// What part of a log is wanted, and how.
#[derive(Clone)]
pub struct LogAsk {
    /// Only the last so many lines, as they stand in the file.
    pub tail_lines: Option<u64>,
    /// Nothing older.
    pub since: Option<Timestamp>,
    /// No more bytes than this.
    pub limit_bytes: Option<u64>,
    /// Each line begins with its time.
    pub with_timestamps: bool,
    /// Which of the container's outputs.
    pub output: LogOutput,
    /// Wait for more until the writer is gone; `None` ends at the end of the file.
    pub follow: Option<Arc<dyn StillWritten>>,
}

/// Which of a container's outputs are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOutput {
    /// Both.
    All,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}
