//! Hints that something changed in a directory, from inotify.
//!
//! In: a directory, or a file whose parent is watched. Out: [`Hint`]s, gathered over a short quiet
//! span so that one editor's save is one hint. A hint is never the truth: the reader lists again.
//! Owned by the task that reads the manifests.
//!
//! ```text
//!            arm fails: Unwatchable, once per cause        directory gone, moved, unmounted: Everything
//!   Lost ──────────────► Lost          Armed ──────────────────────────────────► Lost
//!     └── armed: Everything ──► Armed ──── names ──► Armed
//! ```
//!
//! Refuses: reading files, and recursing.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use ferrolet_ports::{ChangeHints, Fut, Gone};
use futures::StreamExt;
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchMask};
use tokio::time::Instant;

/// How long the directory must be quiet before its changes are told.
const QUIET: Duration = Duration::from_millis(1);
/// How long a directory that never rests may keep its changes to itself.
const AT_MOST: Duration = Duration::from_millis(20);
/// How often a directory that is not there is looked for, as upstream does.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a watch has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Some names changed.
    Names {
        /// Written, made, moved or removed.
        changed: BTreeSet<OsString>,
        /// Those of them that went away meanwhile, whether or not something is there again.
        gone: BTreeSet<OsString>,
    },
    /// Anything may have changed: the watch has just begun, was lost, or the kernel dropped events.
    Everything,
    /// The directory cannot be watched now; said once per cause. The watch keeps trying.
    Unwatchable {
        /// Which directory.
        directory: PathBuf,
        /// The kernel's answer.
        cause: String,
    },
}

/// A watch over one directory that survives the directory's deletion and return.
pub struct DirectoryWatch {
    directory: PathBuf,
    only: Option<OsString>,
    armed: Option<EventStream<[u8; 4096]>>,
    pending: BTreeSet<OsString>,
    gone: BTreeSet<OsString>,
    pending_since: Option<Instant>,
    told: Option<String>,
    try_at: Option<Instant>,
}

impl DirectoryWatch {
    /// Watches every name in a directory. The first hint is [`Hint::Everything`], once it is
    /// watched.
    pub fn directory(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            only: None,
            armed: None,
            pending: BTreeSet::new(),
            gone: BTreeSet::new(),
            pending_since: None,
            told: None,
            try_at: None,
        }
    }

    /// Watches one name through its parent, so that replacing the file by renaming is seen.
    pub fn file(path: &Path) -> Self {
        let parent =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self { only: path.file_name().map(OsStr::to_owned), ..Self::directory(parent) }
    }

    /// Waits for the next hint. Cancel-safe: what was gathered stays in the watch.
    pub async fn next(&mut self) -> Hint {
        loop {
            let Some(stream) = &mut self.armed else {
                match self.arm().await {
                    Some(hint) => return hint,
                    None => continue,
                }
            };
            let next_event = match self.pending_since {
                None => stream.next().await,
                Some(since) => {
                    let quiet = (Instant::now() + QUIET).min(since + AT_MOST);
                    match tokio::time::timeout_at(quiet, stream.next()).await {
                        Ok(event) => event,
                        Err(_quiet) => {
                            self.pending_since = None;
                            return Hint::Names {
                                changed: std::mem::take(&mut self.pending),
                                gone: std::mem::take(&mut self.gone),
                            };
                        }
                    }
                }
            };
            if self.take_in(next_event) == Taken::Everything {
                self.pending.clear();
                self.gone.clear();
                self.pending_since = None;
                return Hint::Everything;
            }
        }
    }

    /// Tries to begin; waits out the pause since the last failure first.
    async fn arm(&mut self) -> Option<Hint> {
        if let Some(at) = self.try_at {
            tokio::time::sleep_until(at).await;
        }
        match armed(&self.directory) {
            Ok(stream) => {
                self.armed = Some(stream);
                self.try_at = None;
                self.told = None;
                Some(Hint::Everything)
            }
            Err(refusal) => {
                self.try_at = Some(Instant::now() + LOOK_AGAIN);
                let cause = refusal.to_string();
                let is_news = self.told.as_ref() != Some(&cause);
                self.told = Some(cause.clone());
                is_news.then(|| Hint::Unwatchable { directory: self.directory.clone(), cause })
            }
        }
    }

    fn take_in(&mut self, event: Option<io::Result<EventOwned>>) -> Taken {
        let Some(Ok(event)) = event else {
            self.armed = None;
            return Taken::Everything;
        };
        let over =
            EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT;
        if event.mask.intersects(over) {
            // Dropping the stream closes the watch; what stands at the path now is another
            // directory.
            self.armed = None;
            return Taken::Everything;
        }
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            return Taken::Everything;
        }
        if let Some(name) = event.name
            && self.only.as_ref().is_none_or(|only| *only == name)
        {
            if event.mask.intersects(EventMask::DELETE | EventMask::MOVED_FROM) {
                self.gone.insert(name.clone());
            }
            self.pending.insert(name);
            self.pending_since.get_or_insert_with(Instant::now);
        }
        Taken::Kept
    }
}

impl ChangeHints for DirectoryWatch {
    fn next(&mut self) -> Fut<'_, Option<Gone>> {
        Box::pin(async move {
            loop {
                match DirectoryWatch::next(self).await {
                    Hint::Names { gone, .. } => return Some(gone),
                    Hint::Everything => return Some(Gone::new()),
                    Hint::Unwatchable { directory, cause } => {
                        tracing::warn!(directory = %directory.display(), cause, "A directory cannot be watched, reading it by the clock");
                    }
                }
            }
        })
    }
}

#[derive(PartialEq, Eq)]
enum Taken {
    Kept,
    Everything,
}

fn armed(directory: &Path) -> io::Result<EventStream<[u8; 4096]>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CREATE
        | WatchMask::CLOSE_WRITE
        | WatchMask::MODIFY
        | WatchMask::ATTRIB
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR;
    inotify.watches().add(directory, mask)?;
    inotify.into_event_stream([0; 4096])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn within<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), work).await.expect("the watch says something")
    }

    fn words(names: BTreeSet<OsString>) -> Vec<String> {
        let words = names.into_iter().map(|name| name.into_string().unwrap());
        words.collect()
    }

    fn names(hint: Hint) -> Vec<String> {
        match hint {
            Hint::Names { changed, .. } => words(changed),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn changes_in_quick_succession_are_one_hint() {
        let held = tempfile::tempdir().unwrap();
        let mut watch = DirectoryWatch::directory(held.path());
        assert_eq!(within(watch.next()).await, Hint::Everything);
        fs::write(held.path().join("a"), "1").unwrap();
        fs::write(held.path().join("b"), "1").unwrap();
        fs::rename(held.path().join("b"), held.path().join("c")).unwrap();
        fs::remove_file(held.path().join("a")).unwrap();
        assert_eq!(names(within(watch.next()).await), ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn what_went_away_is_told_though_it_is_back() {
        let held = tempfile::tempdir().unwrap();
        let path = |name: &str| held.path().join(name);
        for name in ["back", "moved", "written", "replaced"] {
            fs::write(path(name), "1").unwrap();
        }
        let mut watch = DirectoryWatch::directory(held.path());
        assert_eq!(within(watch.next()).await, Hint::Everything);
        fs::remove_file(path("back")).unwrap();
        fs::write(path("back"), "1").unwrap();
        fs::rename(path("moved"), path("other")).unwrap();
        fs::write(path("written"), "2").unwrap();
        fs::write(path("draft"), "2").unwrap();
        fs::rename(path("draft"), path("replaced")).unwrap();
        let mut all = BTreeSet::new();
        // A slow machine may tell it in pieces.
        while !all.contains(OsStr::new("draft")) {
            let Hint::Names { gone, .. } = within(watch.next()).await else {
                panic!("only names changed")
            };
            all.extend(gone);
        }
        assert_eq!(words(all), ["back", "draft", "moved"]);
    }

    #[tokio::test]
    async fn a_cancelled_wait_loses_nothing() {
        let held = tempfile::tempdir().unwrap();
        let mut watch = DirectoryWatch::directory(held.path());
        assert_eq!(within(watch.next()).await, Hint::Everything);
        fs::write(held.path().join("a"), "1").unwrap();
        let cut = tokio::time::timeout(Duration::from_millis(5), watch.next()).await;
        let hint = match cut {
            Ok(hint) => hint,
            Err(_) => within(watch.next()).await,
        };
        assert_eq!(names(hint), ["a"]);
    }

    #[tokio::test]
    async fn a_watched_file_ignores_its_neighbours_and_sees_its_replacement() {
        let held = tempfile::tempdir().unwrap();
        let path = held.path().join("pod.yaml");
        let mut watch = DirectoryWatch::file(&path);
        assert_eq!(within(watch.next()).await, Hint::Everything);
        fs::write(held.path().join("other"), "1").unwrap();
        fs::write(held.path().join("new"), "1").unwrap();
        fs::rename(held.path().join("new"), &path).unwrap();
        assert_eq!(names(within(watch.next()).await), ["pod.yaml"]);
    }

    #[tokio::test]
    async fn the_watch_survives_deletion_and_return_of_its_directory() {
        let held = tempfile::tempdir().unwrap();
        let directory = held.path().join("manifests");
        let mut watch = DirectoryWatch::directory(&directory);
        let missing = within(watch.next()).await;
        assert!(
            matches!(&missing, Hint::Unwatchable { directory: named, .. } if *named == directory),
            "{missing:?}"
        );
        for _ in 0..2 {
            fs::create_dir(&directory).unwrap();
            assert_eq!(within(watch.next()).await, Hint::Everything, "it came");
            fs::write(directory.join("pod"), "1").unwrap();
            assert_eq!(names(within(watch.next()).await), ["pod"]);
            fs::remove_dir_all(&directory).unwrap();
            // The removal of its content may still be told as names.
            let mut hint = within(watch.next()).await;
            while matches!(hint, Hint::Names { .. }) {
                hint = within(watch.next()).await;
            }
            assert_eq!(hint, Hint::Everything, "it went");
            let again = within(watch.next()).await;
            assert!(matches!(again, Hint::Unwatchable { .. }), "{again:?}");
        }
    }

    #[tokio::test]
    async fn a_directory_that_is_moved_away_is_left_for_the_one_at_its_path() {
        let held = tempfile::tempdir().unwrap();
        let (path, away) = (held.path().join("manifests"), held.path().join("away"));
        fs::create_dir(&path).unwrap();
        let mut watch = DirectoryWatch::directory(&path);
        assert_eq!(within(watch.next()).await, Hint::Everything);
        fs::rename(&path, &away).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(within(watch.next()).await, Hint::Everything, "lost");
        assert_eq!(within(watch.next()).await, Hint::Everything, "armed again");
        fs::write(away.join("old"), "1").unwrap();
        fs::write(path.join("new"), "1").unwrap();
        assert_eq!(names(within(watch.next()).await), ["new"]);
    }
}
