//! What the runtime is making for a pod at the moment: sandboxes and containers.
//!
//! A call that makes something can be given up, but not taken back: the runtime goes on, and
//! whoever stops the sandbox meanwhile pulls the floor from under it. The container then counts as
//! one that failed to start, and half of it may stay for good (ADR 0021). So who wants to end a pod
//! waits for such calls, within reason. Owned by the worker's memory; refuses to know what is made.

use std::time::Duration;

use tokio::{sync::watch, time::timeout};

/// A runtime that takes longer than this over one thing is not waited for: somebody wants the pod
/// to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many things are being made.
#[derive(Debug, Default)]
pub(crate) struct Making {
    n: watch::Sender<usize>,
}

/// Something that is being made, until this is dropped.
pub(crate) struct Busy<'a> {
    making: &'a Making,
}

impl Making {
    /// Something begins to be made.
    pub(crate) fn begin(&self) -> Busy<'_> {
        self.n.send_modify(|n| *n += 1);
        Busy { making: self }
    }

    /// Waits until nothing is being made, or for as long as is reasonable. Cancel-safe: nothing is
    /// taken.
    pub(crate) async fn over(&self) {
        let mut n = self.n.subscribe();
        // The sender lives as long as this does; running out of patience is as good as an end.
        let _ = timeout(PATIENCE, n.wait_for(|n| *n == 0)).await;
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.making.n.send_modify(|n| *n -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_waits_for_all_of_it_and_not_for_ever() {
        let making = Making::default();
        assert!(making.over().now_or_never().is_some());
        let (one, other) = (making.begin(), making.begin());
        drop(one);
        assert!(making.over().now_or_never().is_none());
        let began = Instant::now();
        making.over().await;
        assert_eq!(began.elapsed(), PATIENCE);
        drop(other);
        assert!(making.over().now_or_never().is_some());
    }
}
