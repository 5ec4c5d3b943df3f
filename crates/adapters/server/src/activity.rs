//! How busy a connection is, so that one that only waits can be let go, and one that still answers
//! is not.
//!
//! HTTP/1 connections are bounded by the time to send a request; HTTP/2 has no such bound in hyper,
//! and a caller may hold one open for nothing. There only answers to callers who were let in count
//! as work. On HTTP/1 every answer counts, of those whose client has no more to ask
//! ([`half_closed`](crate::half_closed)).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use tokio::sync::watch;

use crate::held::Held;

/// Counts answers under way on one connection.
#[derive(Clone)]
pub(crate) struct Activity {
    n_busy: Arc<watch::Sender<usize>>,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self { n_busy: Arc::new(watch::Sender::new(0)) }
    }

    pub(crate) fn begin(&self) -> Busy {
        self.n_busy.send_modify(|n| *n += 1);
        Busy { activity: self.clone() }
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
    pub(crate) fn until_the_end_of(self, body: Body) -> Held<Busy> {
        Held::new(body, self)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.activity.n_busy.send_modify(|n| *n -= 1);
    }
}
