//! A connection whose client has said all that it will say, and still listens.
//!
//! hyper takes the end of what a client sends for the end of the client, and drops the answer that
//! is under way. But whoever has no more to ask may close that half at once (`nc -N` and `openssl
//! s_client` do), and servers written in Go answer. So the end is told to hyper only when every
//! answer was sent. What goes on for ever, such as a followed log, ends a moment after the client's
//! half did: most who close it are gone. In: a stream, and the count of answers under way. Out: the
//! same stream with a later end.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::activity::Activity;

/// How often it is looked whether everything was sent. Only between a client's end and ours.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct HalfClosed<S> {
    stream: S,
    answers: Activity,
    /// How long answers may take after the client's end.
    patience: Duration,
    /// True while something was given to be written and not flushed.
    has_unsent: bool,
    /// From the client's end on.
    ended: Option<Ended>,
}

struct Ended {
    at: Instant,
    look: Pin<Box<Sleep>>,
}

impl<S> HalfClosed<S> {
    pub(crate) fn new(stream: S, answers: Activity, patience: Duration) -> Self {
        Self { stream, answers, patience, has_unsent: false, ended: None }
    }

    /// Ready when there is nothing left to wait for.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let ended = self.ended.get_or_insert_with(|| Ended {
            at: Instant::now(),
            look: Box::pin(tokio::time::sleep(LOOK)),
        });
        loop {
            let is_sent = self.answers.is_idle() && !self.has_unsent;
            if is_sent || ended.at.elapsed() >= self.patience {
                return Poll::Ready(());
            }
            ready!(ended.look.as_mut().poll(context));
            ended.look.as_mut().reset(Instant::now() + LOOK);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HalfClosed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        if self.ended.is_none() {
            let n_before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            if buffer.filled().len() > n_before || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_end(context).map(Ok)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HalfClosed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        self.has_unsent = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.has_unsent = true;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.has_unsent = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Our end, after a client that said this and no more; the client's is kept.
    async fn after(said: &[u8], answers: &Activity) -> (HalfClosed<DuplexStream>, DuplexStream) {
        let (ours, mut client) = tokio::io::duplex(64);
        client.write_all(said).await.unwrap();
        client.shutdown().await.unwrap();
        (HalfClosed::new(ours, answers.clone(), PATIENCE), client)
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_is_told_when_every_answer_was_sent() {
        let answers = Activity::new();
        let mut buffer = [0; 8];
        // Nobody asked for anything.
        let (mut stream, _client) = after(b"", &answers).await;
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);

        let (mut stream, _client) = after(b"ask", &answers).await;
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 3);
        let busy = answers.begin();
        let second = Duration::from_secs(1);
        let early = timeout(second, stream.read(&mut buffer)).await;
        assert!(early.is_err(), "an answer is under way");
        // The answer is made, and not yet gone.
        stream.write_all(b"said").await.unwrap();
        drop(busy);
        let early = timeout(second, stream.read(&mut buffer)).await;
        assert!(early.is_err(), "it is not flushed");
        stream.flush().await.unwrap();
        let end = timeout(second, stream.read(&mut buffer)).await;
        assert_eq!(end.unwrap().unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_for_ever_ends_soon_after_the_client_did() {
        let answers = Activity::new();
        let _busy = answers.begin();
        let (mut stream, _client) = after(b"", &answers).await;
        let began = Instant::now();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
        let took = began.elapsed();
        assert!((PATIENCE..PATIENCE + LOOK * 2).contains(&took), "{took:?}");
    }
}
