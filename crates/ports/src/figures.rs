//! Everything the kernel tells about cgroups, networks and file systems, for whoever shows it
//! whole.
//!
//! Read on demand behind [`Usage::figures`](crate::Usage::figures) and
//! [`Usage::disk`](crate::Usage::disk); what the kernel does not tell is `None`. Refuses: names of
//! pods and containers, and formats; those are the server's business.

use ferrolet_types::{ContainerId, PodUid, Timestamp};

use crate::CgroupUsage;

/// All cgroups that are looked at, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageFigures {
    /// When reading began.
    pub at: Timestamp,
    /// The machine first, then all pods together, the classes, the pods and their containers.
    pub cgroups: Vec<CgroupFigures>,
    /// Disks with a mounted file system.
    pub disks: Vec<DiskFigures>,
    /// Most processes the machine allows, and how many there are.
    pub processes: Option<ProcessRoom>,
}

/// Whose cgroup it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The machine's root.
    Node,
    /// All pods together.
    AllPods,
    /// The pods of one class of service.
    Class,
    /// A part of the system with a cgroup of its own, by the name it has in summaries: `kubelet`,
    /// `runtime`, `misc`.
    System(String),
    /// One pod.
    Pod(PodUid),
    /// One container of a pod, or its sandbox.
    Container(PodUid, ContainerId),
}

/// One cgroup, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupFigures {
    /// Whose it is.
    pub whose: Whose,
    /// Its path below the hierarchy's root: `/kubepods/burstable/pod…`.
    pub path: String,
    /// When it was made.
    pub made: Timestamp,
    /// Processor, memory and swap with the rate.
    pub usage: CgroupUsage,
    /// The processor in detail.
    pub cpu: CpuFigures,
    /// Memory in detail.
    pub memory: MemoryFigures,
    /// Threads in it and below.
    pub n_threads: Option<u64>,
    /// Threads it may have; `None` for no limit.
    pub max_threads: Option<u64>,
    /// Processes directly in it.
    pub processes: ProcessFigures,
    /// Block devices it uses.
    pub devices: Vec<DeviceFigures>,
    /// How long it had to wait; `None` where the kernel does not account for it.
    pub pressure: Option<Pressure>,
    /// Interfaces of its network, where it has one: the machine, and sandboxes with a network of
    /// their own.
    pub interfaces: Vec<InterfaceFigures>,
}

/// The processor, as one cgroup sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuFigures {
    /// Time in user mode, in nanoseconds.
    pub user_nanos: Option<u64>,
    /// Time in the kernel, in nanoseconds.
    pub system_nanos: Option<u64>,
    /// Its weight, as v1's shares.
    pub shares: Option<u64>,
    /// Microseconds per period it may use; `None` for no limit.
    pub quota_micros: Option<u64>,
    /// The period.
    pub period_micros: Option<u64>,
    /// Periods that passed while it ran.
    pub n_periods: u64,
    /// Periods in which it had to wait.
    pub n_throttled: u64,
    /// Time it had to wait, in nanoseconds.
    pub throttled_nanos: u64,
    /// Periods in which it used more than its share.
    pub n_bursts: u64,
    /// Time above its share, in nanoseconds.
    pub burst_nanos: u64,
}

/// Memory of one cgroup, in bytes where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFigures {
    /// Page cache.
    pub cache: u64,
    /// Mapped files.
    pub mapped_file: u64,
    /// The kernel's own memory for it.
    pub kernel: u64,
    /// The most it ever used.
    pub max_usage: u64,
    /// How often its limit was hit.
    pub n_failures: u64,
    /// File pages in use.
    pub active_file: u64,
    /// File pages that can be dropped.
    pub inactive_file: u64,
    /// How often it was slowed down at `memory.high`.
    pub n_high_events: u64,
    /// How often it was stopped at `memory.max`.
    pub n_max_events: u64,
    /// How often one of its processes was killed for want of memory.
    pub n_oom_kills: u64,
    /// File pages not yet on disk.
    pub dirty: u64,
    /// File pages on their way to disk.
    pub writeback: u64,
    /// Pages looked at by reclaim.
    pub n_scanned: u64,
    /// Pages reclaimed.
    pub n_stolen: u64,
    /// Anonymous pages that were missed after they had been put away.
    pub n_anon_refaults: u64,
    /// File pages that were missed after they had been dropped.
    pub n_file_refaults: u64,
    /// What is kept for it; 0 for nothing.
    pub reservation: u64,
}

/// Processes directly in one cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessFigures {
    /// How many.
    pub n_processes: u64,
    /// Their open descriptors.
    pub n_descriptors: u64,
    /// Those that are sockets.
    pub n_sockets: u64,
    /// How many descriptors the first of them may have; `None` where there is none or no limit.
    pub max_open_files: Option<u64>,
}

/// One block device, as one cgroup used it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFigures {
    /// Its path, or empty when the machine does not tell.
    pub name: String,
    /// Its number, first part.
    pub major: u32,
    /// Its number, second part.
    pub minor: u32,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads.
    pub n_reads: u64,
    /// Writes.
    pub n_writes: u64,
}

/// Time spent waiting for the processor, memory and disks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// For the processor.
    pub cpu: Stalls,
    /// For memory.
    pub memory: Stalls,
    /// For disks.
    pub io: Stalls,
}

/// Waiting for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalls {
    /// Somebody had to wait.
    pub some: Stall,
    /// Everybody had to wait.
    pub full: Stall,
}

/// How much was waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Microseconds altogether.
    pub total_micros: u64,
    /// Percent of the last ten seconds.
    pub avg10: f64,
    /// Percent of the last minute.
    pub avg60: f64,
    /// Percent of the last five minutes.
    pub avg300: f64,
}

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceFigures {
    /// Its name.
    pub name: String,
    /// What came in.
    pub received: TrafficFigures,
    /// What went out.
    pub sent: TrafficFigures,
}

/// One direction of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficFigures {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub n_packets: u64,
    /// Packets that were damaged.
    pub n_errors: u64,
    /// Packets that were dropped.
    pub n_dropped: u64,
}

/// A disk with a mounted file system, and what the machine did with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// Its path.
    pub device: String,
    /// Room on the file system.
    pub room: FileRoom,
    /// Reads done, reads merged, sectors read, milliseconds reading.
    pub reads: [u64; 4],
    /// Writes done, writes merged, sectors written, milliseconds writing.
    pub writes: [u64; 4],
    /// Requests under way.
    pub n_under_way: u64,
    /// Milliseconds busy.
    pub busy_millis: u64,
    /// Milliseconds busy, weighted by the requests that waited.
    pub weighted_millis: u64,
}

/// Room on a file system, and how much of it something uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRoom {
    /// Size in bytes.
    pub capacity: u64,
    /// Bytes that may still be written.
    pub available: u64,
    /// Bytes in use by whatever is described.
    pub used: u64,
    /// Inodes of the file system.
    pub inodes: u64,
    /// Inodes left.
    pub inodes_free: u64,
    /// Inodes in use by whatever is described.
    pub inodes_used: u64,
}

/// How many processes there may be and are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessRoom {
    /// The machine's limit.
    pub max: u64,
    /// Processes and threads there are.
    pub n: u64,
}

/// What is on the node's disks, by whom. Costs a walk, so it is kept for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// When it was read.
    pub at: Timestamp,
    /// The file system of the agent's directory.
    pub node: FileRoom,
    /// The file system of the pods' logs.
    pub logs: FileRoom,
    /// Logs of containers: pod, container, bytes and inodes in use.
    pub container_logs: Vec<(PodUid, String, InUse)>,
    /// Small files the agent writes for a pod: bytes and inodes in use.
    pub pod_files: Vec<(PodUid, InUse)>,
    /// Volumes of pods, by the name of their directory.
    pub volumes: Vec<VolumeUsage>,
}

/// Bytes and inodes in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Bytes, in whole blocks.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// One volume of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Which pod's.
    pub uid: PodUid,
    /// Its directory's name: the volume's name in the pod, or that of the PersistentVolume.
    pub name: String,
    /// The volume's name in the pod, when somebody knows it better than the directory.
    pub volume: Option<String>,
    /// When it was read.
    pub at: Timestamp,
    /// Room, and what of it is used.
    pub room: FileRoom,
    /// True when it shares the node's file system, so that its pod's use counts as ephemeral
    /// storage.
    pub is_on_node: bool,
}
