//! What the engine needs of the machine for the connections that it opens itself.

use std::{io, net::SocketAddr, os::fd::BorrowedFd};

use crate::{Fut, HostError};

/// Names and sockets, as this machine has them.
pub trait Outbound: Send + Sync {
    /// The addresses of a host by its name, each with the port. Bounded: a name service that does
    /// not answer holds up nobody but those who ask it.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> Fut<'a, Result<Vec<SocketAddr>, HostError>>;

    /// Has the kernel forget a connection as soon as the other side knows that it has ended, and not
    /// a minute later (TIME_WAIT).
    fn skip_time_wait(&self, connection: BorrowedFd<'_>) -> io::Result<()>;
}
