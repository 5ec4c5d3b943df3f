//! A descriptor on tokio: a pipe's end, a terminal's master or a socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Whatever it is, tokio watches it as it would a socket: by its descriptor. It is read and written as what it is.
#[derive(Debug)]
pub(super) struct Pipe(UnixStream);

impl Pipe {
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        Ok(Self(UnixStream::from_std(descriptor.into())?))
    }

    /// Another handle to the same thing.
    pub(super) fn twin(&self) -> io::Result<Self> {
        Self::new(self.0.as_fd().try_clone_to_owned()?)
    }

    /// Reads what is there, or waits; 0 is the end. Cancel-safe: nothing is taken before it is returned.
    pub(super) async fn read(&self, piece: &mut [u8]) -> io::Result<usize> {
        loop {
            self.0.readable().await?;
            let read = || Ok(rustix::io::read(&self.0, &mut *piece)?);
            match self.0.try_io(Interest::READABLE, read) {
                // A terminal that nobody has open any more.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => return Ok(0),
                Err(error) if is_passing(&error) => {}
                done => return done,
            }
        }
    }

    pub(super) async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            self.0.writable().await?;
            let write = || Ok(rustix::io::write(&self.0, data)?);
            match self.0.try_io(Interest::WRITABLE, write) {
                Ok(n) => data = data.get(n..).unwrap_or_default(),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells a socket's other side that there is no more to come.
    pub(super) fn finish(&self) {
        let how = rustix::net::Shutdown::Write;
        // One that is no socket, or gone, hears it when it is closed.
        let _not_a_socket = rustix::net::shutdown(&self.0, how);
    }

    pub(super) fn resize(&self, columns: u16, rows: u16) {
        let size =
            rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        if let Err(error) = rustix::termios::tcsetwinsize(&self.0, size) {
            tracing::debug!(err = %error, "A terminal keeps its size");
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
