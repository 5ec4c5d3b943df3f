//! What the store needs done when nobody waits for it: pulled layers brought to disk, the trash emptied.
//!
//! One task, woken by whoever pulled or removed something. Deleting is slow on purpose and stops while a layer is being
//! unpacked: making files beside deleting them takes many times as long.

use std::{sync::Arc, time::Duration};

use ferrolet_runtime_images::{Store, StoreError, Trash};
use tokio::{sync::Notify, task::spawn_blocking, time::sleep};
use tracing::warn;

/// Between two things of the trash.
const PAUSE: Duration = Duration::from_millis(200);
/// While a layer is being unpacked, or after an error.
const WAIT: Duration = Duration::from_secs(10);

/// Wakes the task.
#[derive(Clone, Debug, Default)]
pub struct UpkeepHandle(Arc<Notify>);

impl UpkeepHandle {
    /// There may be something to do.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

/// The task's own side.
#[derive(Debug)]
pub struct Upkeep {
    store: Store,
    news: Arc<Notify>,
}

impl Upkeep {
    /// The task for a store, and the handle that wakes it.
    #[must_use]
    pub fn new(store: Store) -> (Self, UpkeepHandle) {
        let handle = UpkeepHandle::default();
        (Self { store, news: handle.0.clone() }, handle)
    }

    /// Works for as long as it is polled. What an earlier start left comes first.
    pub async fn run(self) {
        loop {
            let next = match self.step().await {
                Ok(Trash::Empty) => None,
                Ok(Trash::More) => Some(PAUSE),
                Ok(Trash::Waits) => Some(WAIT),
                Err(error) => {
                    warn!(target: "images", error = &error as &dyn std::error::Error, "could not tidy the image store");
                    Some(WAIT)
                }
            };
            match next {
                // News that came meanwhile are kept by the notifier.
                None => self.news.notified().await,
                Some(pause) => sleep(pause).await,
            }
        }
    }

    async fn step(&self) -> Result<Trash, StoreError> {
        let store = self.store.clone();
        let work = move || {
            store.keep()?;
            store.empty_trash()
        };
        // The thread is only lost while the program ends.
        spawn_blocking(work).await.unwrap_or(Ok(Trash::Empty))
    }
}

#[cfg(test)]
mod tests {
    use ferrolet_runtime_images::{BootId, Limits};

    use super::*;

    async fn until(mut is_so: impl FnMut() -> bool) {
        let patience = async {
            while !is_so() {
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), patience)
            .await
            .expect("it should have come so");
    }

    #[tokio::test(start_paused = true)]
    async fn the_trash_is_emptied_when_nothing_is_unpacked() {
        let place = tempfile::tempdir().unwrap();
        let limits = Limits { reserved_bytes: 0, ..Limits::USUAL };
        let store = Store::open(place.path(), BootId("now".to_owned()), &limits).unwrap();
        let n_trash = || std::fs::read_dir(place.path().join("trash")).unwrap().count();
        drop(store.stage().unwrap());
        drop(store.stage().unwrap());
        let staging = store.stage().unwrap();
        let (upkeep, handle) = Upkeep::new(store.clone());
        let task = tokio::spawn(upkeep.run());
        sleep(Duration::from_secs(60)).await;
        assert_eq!(n_trash(), 2);
        drop(staging);
        until(|| n_trash() == 0).await;
        // Later things are found when it is told of them.
        drop(store.stage().unwrap());
        handle.wake();
        until(|| n_trash() == 0).await;
        task.abort();
    }
}
