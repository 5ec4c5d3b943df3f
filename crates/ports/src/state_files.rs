//! Small files of state that survive the agent: checkpoints in its root directory, each known by a
//! plain name.

use crate::{Fut, HostError};

/// Reads and replaces files of state.
pub trait StateFiles: Send + Sync {
    /// The whole file; `None` when there is none.
    fn read<'a>(&'a self, name: &'a str) -> Fut<'a, Result<Option<Vec<u8>>, HostError>>;
    /// Replaces the file in one step. An agent that dies leaves the old content or the new; a power
    /// cut may lose the last one.
    fn write<'a>(&'a self, name: &'a str, content: Vec<u8>) -> Fut<'a, Result<(), HostError>>;
}
