//! A connection that remembers the first bytes it heard: enough to tell a server without TLS from
//! noise, and silence from an answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::dial::Guest;

pub(crate) struct Heard {
    stream: Guest,
    first: [u8; 5],
    n: usize,
    is_heard: Arc<AtomicBool>,
}

impl Heard {
    pub(crate) fn new(stream: Guest) -> Self {
        Self::telling(stream, Arc::default())
    }

    /// Sets `is_heard` as soon as the other side has said anything.
    pub(crate) fn telling(stream: Guest, is_heard: Arc<AtomicBool>) -> Self {
        Self { stream, first: [0; 5], n: 0, is_heard }
    }

    /// The first bytes; zeros for what has not come.
    pub(crate) fn first(&self) -> [u8; 5] {
        self.first
    }

    fn note(&mut self, news: &[u8]) {
        self.is_heard.store(true, Ordering::Relaxed);
        for (place, byte) in self.first[self.n..].iter_mut().zip(news) {
            *place = *byte;
            self.n += 1;
        }
    }
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let answer = Pin::new(&mut self.stream).poll_read(cx, buf);
        let news = &buf.filled()[before..];
        if !news.is_empty() && self.n < self.first.len() {
            self.note(news);
        }
        answer
    }
}

impl AsyncWrite for Heard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
