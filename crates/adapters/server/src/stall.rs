//! A socket whose writes give up on a client that does not read.
//!
//! hyper bounds how long a client may take to send its request; nothing bounds how long it may take
//! to accept the answer. This wrapper does: a write that made no progress for the whole patience
//! fails, and with it the connection.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// How long writes of one connection may stand still; longer once its caller was let in, because
/// people stop scrolling logs to read them.
#[derive(Clone)]
pub(crate) struct Patience {
    stranger: Duration,
    guest: Duration,
    is_guest: Arc<AtomicBool>,
}

impl Patience {
    pub(crate) fn new(stranger: Duration, guest: Duration) -> Self {
        Self { stranger, guest, is_guest: Arc::new(AtomicBool::new(false)) }
    }

    /// From now on as with guests.
    pub(crate) fn extend(&self) {
        self.is_guest.store(true, Ordering::Relaxed);
    }

    fn span(&self) -> Duration {
        if self.is_guest.load(Ordering::Relaxed) { self.guest } else { self.stranger }
    }
}

pub(crate) struct Impatient {
    stream: TcpStream,
    patience: Patience,
    /// Runs while a write waits.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    pub(crate) fn new(stream: TcpStream, patience: Patience) -> Self {
        Self { stream, patience, alarm: None }
    }

    /// Lets progress through; lets waiting through until the alarm rings.
    fn watch<T>(&mut self, poll: Poll<Result<T>>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if poll.is_ready() {
            self.alarm = None;
            return poll;
        }
        let patience = self.patience.span();
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        alarm
            .as_mut()
            .poll(context)
            .map(|()| Err(Error::new(ErrorKind::TimedOut, "the client does not read its answer")))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(poll, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch(poll, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
