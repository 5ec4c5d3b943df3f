//! A container's memory written to a file, while it goes on running.

use std::path::Path;

use ferrolet_types::ContainerId;

use crate::{Fut, RuntimeError};

/// Writes checkpoints.
pub trait Checkpoints: Send + Sync {
    /// Writes the container to an archive at `location`. A `timeout` in seconds counts where it is
    /// longer than calls may take anyway.
    fn checkpoint<'a>(
        &'a self,
        id: &'a ContainerId,
        location: &'a Path,
        timeout: u32,
    ) -> Fut<'a, Result<(), RuntimeError>>;
}
