//! One inotify instance for all followed logs, because a node has only 128 of them.
//!
//! A follower watches the directory its log is in and is woken by any change there; it then looks for itself. Where the kernel
//! gives no watch, followers still look once a second. Owned by `NodeLogs`; one task runs [`Changes::run`].

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::StreamExt as _;
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::sync::Notify;

use crate::rooted::Rooted;

pub(super) struct Changes {
    state: Mutex<State>,
}

struct State {
    /// What the task reads from; taken by it.
    source: Option<Inotify>,
    watches: Option<Watches>,
    followers: HashMap<WatchDescriptor, Vec<Arc<Signal>>>,
}

/// What a follower waits for.
#[derive(Default)]
pub(super) struct Signal {
    stirred: Notify,
    has_new_file: AtomicBool,
}

impl Signal {
    pub(super) async fn stirred(&self) {
        self.stirred.notified().await;
    }

    /// True once after a file has appeared in the directory.
    pub(super) fn take_new_file(&self) -> bool {
        self.has_new_file.swap(false, Ordering::Relaxed)
    }
}

/// A watch over one directory, given back when dropped.
pub(super) struct Following {
    changes: Arc<Changes>,
    watch: Option<WatchDescriptor>,
    pub(super) signal: Arc<Signal>,
}

impl Changes {
    pub(super) fn new() -> Self {
        let source = Inotify::init()
            .inspect_err(|error| tracing::warn!(err = %error, "Logs are followed without inotify"))
            .ok();
        Self {
            state: Mutex::new(State {
                watches: source.as_ref().map(Inotify::watches),
                source,
                followers: HashMap::new(),
            }),
        }
    }

    /// Wakes followers, for ever.
    pub(super) async fn run(&self) {
        let source = self.lock().source.take();
        let events = source.map(|source| source.into_event_stream(vec![0; 16 * 1024]));
        let Some(Ok(mut events)) = events else {
            return std::future::pending().await;
        };
        while let Some(event) = events.next().await {
            match event {
                Ok(event) if event.mask.contains(EventMask::Q_OVERFLOW) => {
                    let state = self.lock();
                    for signal in state.followers.values().flatten() {
                        wake(signal, true);
                    }
                }
                Ok(event) => {
                    let appeared = EventMask::CREATE | EventMask::MOVED_TO | EventMask::IGNORED;
                    let is_new = event.mask.intersects(appeared);
                    let state = self.lock();
                    for signal in state.followers.get(&event.wd).into_iter().flatten() {
                        wake(signal, is_new);
                    }
                }
                Err(error) => {
                    tracing::warn!(err = %error, "Reading changes of logs failed");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
        std::future::pending().await
    }

    /// Watches a directory for a follower.
    pub(super) fn follow(self: &Arc<Self>, directory: &Rooted) -> Following {
        let signal = Arc::new(Signal::default());
        let mut state = self.lock();
        let watch = state.watch(directory);
        if let Ok(Some(watch)) = &watch {
            let followers = state.followers.entry(watch.clone()).or_default();
            followers.push(signal.clone());
        }
        let watch = watch.unwrap_or_else(|error| {
            tracing::debug!(err = %error, "A log is followed without inotify");
            None
        });
        Following {
            changes: self.clone(),
            watch,
            signal,
        }
    }

    /// Directories that are watched.
    #[cfg(test)]
    pub(super) fn n_watched(&self) -> usize {
        self.lock().followers.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }
}

impl State {
    fn watch(&mut self, directory: &Rooted) -> io::Result<Option<WatchDescriptor>> {
        let Some(watches) = &mut self.watches else {
            return Ok(None);
        };
        // By descriptor: the name could mean another directory by now.
        let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
        let mask = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::ONLYDIR;
        watches.add(path, mask).map(Some)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let Some(watch) = self.watch.take() else {
            return;
        };
        let mut state = self.changes.lock();
        let Some(followers) = state.followers.get_mut(&watch) else {
            return;
        };
        followers.retain(|signal| !Arc::ptr_eq(signal, &self.signal));
        if followers.is_empty() {
            state.followers.remove(&watch);
            if let Some(watches) = &mut state.watches {
                // A directory that is gone took its watch along.
                let _ = watches.remove(watch);
            }
        }
    }
}

fn wake(signal: &Signal, is_new: bool) {
    if is_new {
        signal.has_new_file.store(true, Ordering::Relaxed);
    }
    signal.stirred.notify_one();
}
