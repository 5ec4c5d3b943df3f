//! How connections end.

use std::{io, os::fd::BorrowedFd};

/// What the kernel is told of a connection that the engine opened.
pub trait Farewell: Send + Sync {
    /// Lets the connection be forgotten as soon as the other side knows that it has ended, and not a minute later.
    fn forget_soon(&self, connection: BorrowedFd<'_>) -> io::Result<()>;
}
