//! Fakes of what space is taken back from: a disk that holds the world's images, and logs that are
//! only sizes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ferrolet_ports::{
    DiskSpace, Disks, Fut, HostError, ImagePlace, Images as _, LogReopen, LogSize, LogStore, Retry,
    RuntimeError, RuntimeErrorKind,
};
use ferrolet_types::ContainerId;

use crate::World;

/// A disk with the world's images and something else on it. Clones are handles to the same disk.
#[derive(Clone)]
pub struct FakeDisk {
    world: World,
    state: Arc<Mutex<(u64, u64)>>,
}

impl FakeDisk {
    /// A disk of that many bytes.
    pub fn new(world: World, capacity: u64) -> Self {
        Self { world, state: Arc::new(Mutex::new((capacity, 0))) }
    }

    /// Changes how many bytes it has.
    pub fn set_capacity(&self, capacity: u64) {
        lock(&self.state).0 = capacity;
    }

    /// Changes how many bytes are used by anything but images.
    pub fn set_other(&self, other: u64) {
        lock(&self.state).1 = other;
    }
}

impl ImagePlace for FakeDisk {
    fn image_directory(&self) -> Fut<'_, Result<PathBuf, RuntimeError>> {
        Box::pin(std::future::ready(Ok(PathBuf::from("/images"))))
    }
}

impl Disks for FakeDisk {
    fn space<'a>(&'a self, _path: &'a Path) -> Fut<'a, Result<DiskSpace, HostError>> {
        Box::pin(async move {
            let images = self.world.images().list_images().await.unwrap_or_default();
            let by_images: u64 = images.iter().map(|it| it.size).sum();
            let (capacity, other) = *lock(&self.state);
            Ok(DiskSpace { capacity, available: capacity.saturating_sub(by_images + other) })
        })
    }
}

/// Logs that are only sizes, and links that are only names. Clones are handles to the same.
#[derive(Clone, Default)]
pub struct FakeLogStore {
    state: Arc<Mutex<LogState>>,
}

#[derive(Default)]
struct LogState {
    /// Sizes by path; rotated files too.
    sizes: BTreeMap<String, u64>,
    links: BTreeSet<String>,
    refuses_reopen: bool,
    /// Logs that were moved and not opened anew.
    moved: BTreeSet<String>,
    /// Logs that somebody removed.
    lost: BTreeSet<String>,
}

impl FakeLogStore {
    /// Makes a log this big.
    pub fn set_size(&self, path: &str, size: u64) {
        lock(&self.state).sizes.insert(path.to_owned(), size);
    }

    /// Writes to a log.
    pub fn grow(&self, path: &str, bytes: u64) {
        *lock(&self.state).sizes.entry(path.to_owned()).or_default() += bytes;
    }

    /// How big a log is.
    pub fn size(&self, path: &str) -> Option<u64> {
        lock(&self.state).sizes.get(path).copied()
    }

    /// Somebody removes a log. Its writer keeps writing, into nothing, until it opens it anew.
    pub fn lose(&self, path: &str) {
        let mut state = lock(&self.state);
        state.sizes.remove(path);
        state.lost.insert(path.to_owned());
    }

    /// Names of what is beside a log.
    pub fn names_beside(&self, path: &str) -> Vec<String> {
        let (directory, name) = split(path);
        let start = format!("{directory}/{name}.");
        let state = lock(&self.state);
        let beside = state.sizes.keys().filter(|it| it.starts_with(&start));
        beside.map(|it| split(it).1.to_owned()).collect()
    }

    /// Whether the runtime refuses to open logs anew.
    pub fn refuse_reopen(&self, refuses: bool) {
        lock(&self.state).refuses_reopen = refuses;
    }

    /// A link whose log is gone.
    pub fn add_link(&self, name: &str) {
        lock(&self.state).links.insert(name.to_owned());
    }

    /// Every link.
    pub fn links(&self) -> BTreeSet<String> {
        lock(&self.state).links.clone()
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn beside(path: &str, name: &str) -> String {
    format!("{}/{name}", split(path).0)
}

fn absent(name: &str) -> HostError {
    HostError {
        attempt: format!("touch {name}"),
        cause: "no such file".to_owned(),
        retry: Retry::Later,
    }
}

impl LogReopen for FakeLogStore {
    fn reopen_log<'a>(&'a self, _id: &'a ContainerId) -> Fut<'a, Result<(), RuntimeError>> {
        let mut state = lock(&self.state);
        let answer = if state.refuses_reopen {
            Err(RuntimeError {
                call: "ReopenContainerLog",
                kind: RuntimeErrorKind::Unknown,
                message: "not now".to_owned(),
            })
        } else {
            let (moved, lost) = (std::mem::take(&mut state.moved), std::mem::take(&mut state.lost));
            for path in moved.into_iter().chain(lost) {
                state.sizes.entry(path).or_default();
            }
            Ok(())
        };
        Box::pin(std::future::ready(answer))
    }
}

impl LogStore for FakeLogStore {
    fn logs(&self) -> Fut<'_, Result<Vec<LogSize>, HostError>> {
        let state = lock(&self.state);
        let logs = state.sizes.iter().filter(|(path, _)| path.ends_with(".log"));
        let logs = logs.map(|(path, size)| LogSize { path: path.clone(), size: *size });
        Box::pin(std::future::ready(Ok(logs.collect())))
    }

    fn sizes<'a>(&'a self, paths: &'a [String]) -> Fut<'a, Result<Vec<LogSize>, HostError>> {
        let state = lock(&self.state);
        let sizes = paths.iter().filter_map(|path| {
            let size = *state.sizes.get(path)?;
            Some(LogSize { path: path.clone(), size })
        });
        Box::pin(std::future::ready(Ok(sizes.collect())))
    }

    fn rotated<'a>(&'a self, path: &'a str) -> Fut<'a, Result<Vec<String>, HostError>> {
        Box::pin(std::future::ready(Ok(self.names_beside(path))))
    }

    fn rename<'a>(
        &'a self,
        path: &'a str,
        from: &'a str,
        to: &'a str,
    ) -> Fut<'a, Result<(), HostError>> {
        let mut state = lock(&self.state);
        let answer = match state.sizes.remove(&beside(path, from)) {
            Some(size) => {
                state.sizes.insert(beside(path, to), size);
                if beside(path, from) == path {
                    state.moved.insert(path.to_owned());
                } else {
                    state.moved.remove(path);
                }
                Ok(())
            }
            None => Err(absent(from)),
        };
        Box::pin(std::future::ready(answer))
    }

    fn remove<'a>(&'a self, path: &'a str, name: &'a str) -> Fut<'a, Result<(), HostError>> {
        lock(&self.state).sizes.remove(&beside(path, name));
        Box::pin(std::future::ready(Ok(())))
    }

    fn compress<'a>(&'a self, path: &'a str, name: &'a str) -> Fut<'a, Result<(), HostError>> {
        let mut state = lock(&self.state);
        if let Some(size) = state.sizes.remove(&beside(path, name)) {
            let packed = beside(path, &format!("{name}.gz"));
            state.sizes.insert(packed, size / 10);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn dangling_links(&self) -> Fut<'_, Result<Vec<String>, HostError>> {
        let links = self.links().into_iter().collect();
        Box::pin(std::future::ready(Ok(links)))
    }

    fn remove_link<'a>(&'a self, name: &'a str) -> Fut<'a, Result<(), HostError>> {
        lock(&self.state).links.remove(name);
        Box::pin(std::future::ready(Ok(())))
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
