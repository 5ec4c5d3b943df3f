//! What is left of the node's means, and the kernel's word when memory runs short.
//!
//! Read by whoever watches for pressure, many times a minute, so one reading costs a handful of
//! files and no walk. Implemented by the adapters `usage` and `host`, faked by `testkit`. Refuses:
//! what pods use, which is [`Usage`](crate::Usage)'s business; deciding what is too little.

use ferrolet_types::Timestamp;

use crate::{FileRoom, Fut, HostError, ProcessRoom};

/// Reads what is left.
pub trait NodeMeans: Send + Sync {
    /// One reading, made now. What cannot be read is missing in it; it fails only when nothing can
    /// be read at all.
    fn read_means<'a>(
        &'a self,
        stores: &'a StorePlaces,
    ) -> Fut<'a, Result<MeansReading, HostError>>;
}

/// Directories on the file systems of the runtime's stores, where it has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorePlaces {
    /// Images.
    pub images: Option<String>,
    /// What containers write.
    pub containers: Option<String>,
}

/// What is left, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeansReading {
    /// When it was read.
    pub at: Timestamp,
    /// Memory of the machine.
    pub memory: Option<MemoryMeans>,
    /// Memory of all pods together, where that is limited.
    pub pods_memory: Option<MemoryMeans>,
    /// What all pods together have in use, caches included, in bytes; limited or not.
    pub pods_usage: Option<u64>,
    /// The file system of the agent's directory: volumes and logs.
    pub node_fs: Option<FileSystemMeans>,
    /// The file system of images.
    pub image_fs: Option<FileSystemMeans>,
    /// The file system of what containers write.
    pub container_fs: Option<FileSystemMeans>,
    /// Processes and threads.
    pub processes: Option<ProcessRoom>,
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryMeans {
    /// All there is.
    pub capacity: u64,
    /// What cannot be dropped easily.
    pub working_set: u64,
    /// Everything in use, caches included.
    pub usage: u64,
}

/// One file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemMeans {
    /// The kernel's number for it: two directories with the same one share it.
    pub device: u64,
    /// Room on it.
    pub room: FileRoom,
}

/// Rings when memory runs short, by the kernel's own notice.
pub trait MemoryAlarm: Send + Sync {
    /// Sets the lines, in place of those set before. An error means that nothing will ring, and
    /// says why.
    fn arm(&self, lines: Vec<AlarmLine>) -> Fut<'_, Result<(), HostError>>;

    /// Waits until it rings. Cancel-safe: a ring that nobody waited for is remembered, and several
    /// count as one.
    fn rings(&self) -> Fut<'_, ()>;
}

/// A line that memory in use should not cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlarmLine {
    /// Whose memory.
    pub scope: AlarmScope,
    /// Everything in use, in bytes.
    pub usage: u64,
}

/// Whose memory is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmScope {
    /// The machine's.
    Node,
    /// That of all pods together.
    AllPods,
}
