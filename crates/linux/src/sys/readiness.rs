//! Waiting for a file to become readable on the runtime's own thread.

use std::fs::File;
use std::io;

use tokio::io::{Interest, unix::AsyncFd};

/// Registers a file that does not block with the runtime.
pub fn watch_readable(file: File) -> io::Result<AsyncFd<File>> {
    // SAFETY: a `File` owns a valid descriptor and gives the same one each time it is asked; nobody
    // closes or replaces it while the `AsyncFd` owns the file.
    let watched = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
    Ok(watched?)
}

/// Registers a file that has urgent news now and then, as triggers of pressure do.
pub fn watch_priority(file: File) -> io::Result<AsyncFd<File>> {
    // SAFETY: as for `watch_readable`: the file is owned and keeps its one descriptor.
    let watched = unsafe { AsyncFd::register_with_interest(file, Interest::PRIORITY) };
    Ok(watched?)
}
