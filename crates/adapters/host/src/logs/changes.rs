//! One inotify instance for all followed logs, because a node has only 128 of them.
//!
//! A follower watches the directory its log is in and is woken by any change there; it then looks
//! for itself. Where the kernel gives no watch, followers still look once a second. Owned by
//! `NodeLogs`; one task runs [`Changes::run`].
//!
//! A log that is rotated is opened under its new name at once and handed to all who follow it,
//! because by the time a slow reader comes to it the file may be compressed or gone. Each keeps a
//! few of them and no more: a reader that stands still must not fill the disk.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ferrolet_linux::{
    offload::{Job, Pool, refused},
    rooted::Rooted,
};
use futures::StreamExt as _;
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::sync::Notify;

/// Rotated files that one follower may be behind; what is rotated beyond them is lost to it.
const MOST_BEHIND: usize = 8;

/// An open log, and which file it is.
#[derive(Clone)]
pub(super) struct LogFile {
    pub(super) file: Arc<File>,
    id: (u64, u64),
}

impl LogFile {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { file: Arc::new(file), id: (metadata.dev(), metadata.ino()) })
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

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
pub(super) struct Signal {
    directory: Arc<Rooted>,
    /// The log's name while it is written.
    name: OsString,
    stirred: Notify,
    has_new_file: AtomicBool,
    /// Logs of that name that were rotated since, in this order.
    rotated: Mutex<VecDeque<LogFile>>,
}

impl Signal {
    pub(super) async fn stirred(&self) {
        self.stirred.notified().await;
    }

    /// True once after a file has appeared in the directory.
    pub(super) fn take_new_file(&self) -> bool {
        self.has_new_file.swap(false, Ordering::Relaxed)
    }

    /// The next of the rotated files after this one; nothing when this one or what is written now
    /// is the newest.
    pub(super) fn next_after(&self, current: &LogFile) -> Option<LogFile> {
        let mut rotated = self.rotated.lock().expect("no panic under this lock");
        if let Some(place) = rotated.iter().rposition(|it| it.is_same(current)) {
            rotated.drain(..=place);
        }
        rotated.pop_front()
    }

    fn note_rotated(&self, file: &LogFile) {
        let mut rotated = self.rotated.lock().expect("no panic under this lock");
        if rotated.len() < MOST_BEHIND {
            rotated.push_back(file.clone());
        }
    }
}

/// Whether a file of this name is what became of the log: `0.log.20261116-013000` of `0.log`, and
/// nothing made of it later.
fn is_rotated(name: &OsStr, log: &OsStr) -> bool {
    let stamp = name.as_bytes().strip_prefix(log.as_bytes()).and_then(|it| it.strip_prefix(b"."));
    stamp.is_some_and(|it| it.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-'))
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
                    if let Some(name) =
                        event.name.filter(|_| event.mask.contains(EventMask::MOVED_TO))
                    {
                        self.hand_out(&event.wd, name).await;
                    }
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

    /// Opens a log that was just rotated, once, for everybody who follows it.
    async fn hand_out(&self, watch: &WatchDescriptor, name: OsString) {
        let followers: Vec<Arc<Signal>> = {
            let state = self.lock();
            let all = state.followers.get(watch).into_iter().flatten();
            all.filter(|it| is_rotated(&name, &it.name)).cloned().collect()
        };
        let Some(directory) = followers.first().map(|it| it.directory.clone()) else {
            return;
        };
        let opened = Job::on(Pool::PodFiles, "open a rotated log").run(move || {
            let opened = directory.open_file(&name).and_then(LogFile::new);
            opened.map_err(|cause| refused("open a rotated log", &cause))
        });
        match opened.await {
            Ok(file) => followers.iter().for_each(|it| it.note_rotated(&file)),
            Err(error) => tracing::debug!(err = %error, "A rotated log cannot be followed"),
        }
    }

    /// Watches a directory for a follower of the log of this name.
    pub(super) fn follow(self: &Arc<Self>, directory: &Arc<Rooted>, name: &OsStr) -> Following {
        let signal = Arc::new(Signal {
            directory: directory.clone(),
            name: name.to_owned(),
            stirred: Notify::new(),
            has_new_file: AtomicBool::new(false),
            rotated: Mutex::default(),
        });
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
        Following { changes: self.clone(), watch, signal }
    }

    /// Directories that are watched.
    #[cfg(test)]
    pub(super) fn n_watched(&self) -> usize {
        self.lock().followers.len()
    }

    /// Rotated files that followers have yet to read.
    #[cfg(test)]
    pub(super) fn n_behind(&self) -> usize {
        let state = self.lock();
        let all = state.followers.values().flatten();
        all.map(|it| it.rotated.lock().unwrap().len()).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_log_became_itself_is_its_rotated_file() {
        for (name, expected) in [
            ("0.log.20261116-013000", true),
            ("0.log", false),
            ("0.log.20261116-013000.gz", false),
            ("0.log.20261116-013000.gz.tmp", false),
            ("10.log.20261116-013000", false),
            ("1.log.20261116-013000", false),
        ] {
            assert_eq!(is_rotated(name.as_ref(), "0.log".as_ref()), expected, "{name}");
        }
    }
}
