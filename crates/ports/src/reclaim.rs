//! What the node takes space back from: the disk of images, and container logs with their rotated
//! remains.
//!
//! Implemented by the adapters `host` and `cri`, faked by `testkit`. Refuses: deciding what goes.

use std::path::{Path, PathBuf};

use ferrolet_types::ContainerId;

use crate::{Fut, HostError, RuntimeError};

/// Gives back at once what nobody needs, for a node that runs short.
pub trait Collectors: Send + Sync {
    /// Removes dead containers: all of those whose pod has ended, and of other pods what is beyond
    /// the node's limits. Answers with how many went.
    fn remove_dead_containers(&self) -> Fut<'_, Result<usize, RuntimeError>>;

    /// Removes every image that nothing uses, pinned and very young ones apart. Answers with how
    /// many went; one that stays is no reason for the others to stay.
    fn remove_unused_images(&self) -> Fut<'_, Result<usize, RuntimeError>>;
}

/// Where the runtime keeps images.
pub trait ImagePlace: Send + Sync {
    /// A directory on the file system of images.
    fn image_directory(&self) -> Fut<'_, Result<PathBuf, RuntimeError>>;
}

/// How full file systems are.
pub trait Disks: Send + Sync {
    /// The file system that a directory is on.
    fn space<'a>(&'a self, path: &'a Path) -> Fut<'a, Result<DiskSpace, HostError>>;
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes it has.
    pub capacity: u64,
    /// Bytes that can still be written.
    pub available: u64,
}

/// Moves runtimes on to a new log file.
pub trait LogReopen: Send + Sync {
    /// Makes the runtime open a container's log anew, after it was moved away.
    fn reopen_log<'a>(&'a self, id: &'a ContainerId) -> Fut<'a, Result<(), RuntimeError>>;
}

/// Container logs below the node's log directory. Paths are absolute, names are those of files
/// beside a log.
pub trait LogStore: Send + Sync {
    /// Every log that a container writes or has written, rotated ones apart.
    fn logs(&self) -> Fut<'_, Result<Vec<LogSize>, HostError>>;
    /// How big some of them are now; those that are gone are left out.
    fn sizes<'a>(&'a self, paths: &'a [String]) -> Fut<'a, Result<Vec<LogSize>, HostError>>;
    /// Names of what was rotated out of a log: they begin with its name and a dot.
    fn rotated<'a>(&'a self, path: &'a str) -> Fut<'a, Result<Vec<String>, HostError>>;
    /// Gives a log another name.
    fn rename<'a>(
        &'a self,
        path: &'a str,
        from: &'a str,
        to: &'a str,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Removes a file beside a log. Absent is success.
    fn remove<'a>(&'a self, path: &'a str, name: &'a str) -> Fut<'a, Result<(), HostError>>;
    /// Replaces a file beside a log by its compressed form, `name.gz`.
    fn compress<'a>(&'a self, path: &'a str, name: &'a str) -> Fut<'a, Result<(), HostError>>;
    /// Links for log collectors whose log is gone, by name.
    fn dangling_links(&self) -> Fut<'_, Result<Vec<String>, HostError>>;
    /// Removes such a link. Absent is success.
    fn remove_link<'a>(&'a self, name: &'a str) -> Fut<'a, Result<(), HostError>>;
}

/// A log and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSize {
    /// Its absolute path.
    pub path: String,
    /// Bytes.
    pub size: u64,
}
