//! How busy a connection is, so that one that only waits can be let go, and one that still answers is not.
//!
//! HTTP/1 connections are bounded by the time to send a request; HTTP/2 has no such bound in hyper, and a caller may hold one open
//! for nothing. There only answers to callers who were let in count as work. On HTTP/1 every answer counts, of those whose client has no
//! more to ask ([`half_closed`](crate::half_closed)).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use tokio::sync::watch;

/// Counts answers under way on one connection.
#[derive(Clone)]
pub(crate) struct Activity {
    n_busy: Arc<watch::Sender<usize>>,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            n_busy: Arc::new(watch::Sender::new(0)),
        }
    }

    pub(crate) fn begin(&self) -> Busy {
        self.n_busy.send_modify(|n| *n += 1);
        Busy {
            activity: self.clone(),
        }
    }

    /// True while nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        *self.n_busy.borrow() == 0
    }

    /// Completes once nothing has been under way for that long.
    pub(crate) async fn idle_for(&self, span: Duration) {
        let mut n_busy = self.n_busy.subscribe();
        loop {
            // The sender is ours, so waiting cannot fail.
            let _ = n_busy.wait_for(|n| *n == 0).await;
            let stirred = n_busy.changed();
            if tokio::time::timeout(span, stirred).await.is_err() {
                return;
            }
        }
    }
}

/// One answer under way.
pub(crate) struct Busy {
    activity: Activity,
}

impl Busy {
    pub(crate) fn until_the_end_of(self, body: Body) -> BusyBody {
        BusyBody { body, _busy: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.activity.n_busy.send_modify(|n| *n -= 1);
    }
}

/// A body that keeps its connection busy until it is sent or dropped.
pub(crate) struct BusyBody {
    body: Body,
    _busy: Busy,
}

impl HttpBody for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
