//! The shape of a summary, as upstream's v1alpha1 has it: what is written, under which names. Pure.
//!
//! In: readings. Out: values that are written as JSON straight into one buffer, without a tree of
//! maps in between: a summary of a hundred pods has ten thousand fields. What is not known is left
//! out.

use ferrolet_ports::{
    CgroupUsage, FileRoom, InterfaceFigures, MemoryUsage, Pressure, Stall, Stalls,
};
use ferrolet_types::Timestamp;
use serde::{Serialize, Serializer};

/// The interface whose figures stand for all, as upstream has it.
const MAIN_INTERFACE: &str = "eth0";

/// The node and its pods.
#[derive(Serialize)]
pub(crate) struct Summary<'a> {
    pub(super) node: NodeStats<'a>,
    pub(super) pods: Vec<PodStats<'a>>,
}

impl Summary<'_> {
    /// The text, which is about that long.
    pub(crate) fn to_json(&self, about: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(about);
        serde_json::to_writer(&mut text, self).expect("memory takes what is written to it");
        text
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeStats<'a> {
    pub(super) node_name: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) system_containers: Vec<ContainerStats<'a>>,
    pub(super) start_time: Moment,
    #[serde(flatten)]
    pub(super) used: Used,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<Network<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fs: Option<FileSystem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runtime: Option<RuntimeStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rlimit: Option<ProcessLimit>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuntimeStats {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image_fs: Option<FileSystem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container_fs: Option<FileSystem>,
}

#[derive(Serialize)]
pub(super) struct ProcessLimit {
    pub(super) time: Moment,
    pub(super) maxpid: u64,
    pub(super) curproc: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodStats<'a> {
    pub(super) pod_ref: PodReference<'a>,
    /// None as long as nobody has noted one, and then it is written as null.
    pub(super) start_time: Option<Moment>,
    pub(super) containers: Vec<ContainerStats<'a>>,
    #[serde(flatten)]
    pub(super) used: Used,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<Network<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) volume: Vec<VolumeStats<'a>>,
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub(super) ephemeral_storage: Option<FileSystem>,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub(super) process_stats: Option<ProcessStats>,
}

#[derive(Serialize)]
pub(super) struct PodReference<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) uid: &'a str,
}

#[derive(Serialize)]
pub(super) struct ProcessStats {
    pub(super) process_count: u64,
}

/// A container, or a part of the system.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerStats<'a> {
    pub(super) name: &'a str,
    pub(super) start_time: Option<Moment>,
    #[serde(flatten)]
    pub(super) used: Used,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rootfs: Option<FileSystem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logs: Option<FileSystem>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumeStats<'a> {
    #[serde(flatten)]
    pub(super) room: FileSystem,
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pvc_ref: Option<ClaimReference<'a>>,
}

#[derive(Serialize)]
pub(super) struct ClaimReference<'a> {
    pub(super) name: String,
    pub(super) namespace: &'a str,
}

/// What a cgroup uses, as far as it is known.
#[derive(Default, Serialize)]
pub(super) struct Used {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io: Option<Io>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap: Option<Swap>,
}

impl Used {
    /// Processor, memory and swap.
    pub(super) fn slim(usage: &CgroupUsage) -> Self {
        let time = Moment(usage.at);
        let cpu = usage.cpu_nanos.map(|nanos| Cpu {
            time,
            usage_nano_cores: usage.cpu_nano_cores,
            usage_core_nano_seconds: nanos,
            psi: None,
        });
        Self {
            cpu,
            memory: usage.memory.map(|memory| Memory::of(time, &memory)),
            io: None,
            swap: usage.swap_bytes.map(|swap| Swap {
                time,
                swap_available_bytes: usage
                    .swap_limit_bytes
                    .map(|limit| limit.saturating_sub(swap)),
                swap_usage_bytes: swap,
            }),
        }
    }

    /// The same, with how long was waited where the kernel accounts for it; the object for disks
    /// has nothing else.
    pub(super) fn whole(usage: &CgroupUsage, pressure: Option<&Pressure>) -> Self {
        let mut used = Self::slim(usage);
        if let Some(cpu) = &mut used.cpu {
            cpu.psi = pressure.map(|it| Psi::of(&it.cpu));
        }
        if let Some(memory) = &mut used.memory {
            memory.psi = pressure.map(|it| Psi::of(&it.memory));
        }
        used.io = Some(Io { time: Moment(usage.at), psi: pressure.map(|it| Psi::of(&it.io)) });
        used
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cpu {
    time: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_nano_cores: Option<u64>,
    usage_core_nano_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    psi: Option<Psi>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    time: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_bytes: Option<u64>,
    usage_bytes: u64,
    working_set_bytes: u64,
    rss_bytes: u64,
    page_faults: u64,
    major_page_faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    psi: Option<Psi>,
}

impl Memory {
    fn of(time: Moment, memory: &MemoryUsage) -> Self {
        let working_set = memory.working_set;
        Self {
            time,
            available_bytes: memory.limit.map(|limit| limit.saturating_sub(working_set)),
            usage_bytes: memory.usage,
            working_set_bytes: working_set,
            rss_bytes: memory.rss,
            page_faults: memory.page_faults,
            major_page_faults: memory.major_page_faults,
            psi: None,
        }
    }
}

#[derive(Serialize)]
struct Io {
    time: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    psi: Option<Psi>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Swap {
    time: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap_available_bytes: Option<u64>,
    swap_usage_bytes: u64,
}

#[derive(Serialize)]
struct Psi {
    full: Waited,
    some: Waited,
}

impl Psi {
    fn of(stalls: &Stalls) -> Self {
        Self { full: Waited::of(&stalls.full), some: Waited::of(&stalls.some) }
    }
}

#[derive(Serialize)]
struct Waited {
    total: u64,
    avg10: f64,
    avg60: f64,
    avg300: f64,
}

impl Waited {
    fn of(stall: &Stall) -> Self {
        Self {
            // Nanoseconds here, microseconds in the kernel.
            total: stall.total_micros.saturating_mul(1000),
            avg10: stall.avg10,
            avg60: stall.avg60,
            avg300: stall.avg300,
        }
    }
}

/// A network: its main interface, and all of them.
#[derive(Serialize)]
pub(super) struct Network<'a> {
    time: Moment,
    #[serde(flatten)]
    main: Interface<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<Interface<'a>>,
}

impl<'a> Network<'a> {
    pub(super) fn of(at: Timestamp, interfaces: &'a [InterfaceFigures]) -> Self {
        let main = interfaces.iter().find(|it| it.name == MAIN_INTERFACE);
        Self {
            time: Moment(at),
            main: main.map(Interface::of).unwrap_or_default(),
            interfaces: interfaces.iter().map(Interface::of).collect(),
        }
    }
}

/// One interface; without a name where none is the main one.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Interface<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rx_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_errors: Option<u64>,
}

impl<'a> Interface<'a> {
    fn of(figures: &'a InterfaceFigures) -> Self {
        Self {
            name: &figures.name,
            rx_bytes: Some(figures.received.bytes),
            rx_errors: Some(figures.received.n_errors),
            tx_bytes: Some(figures.sent.bytes),
            tx_errors: Some(figures.sent.n_errors),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileSystem {
    time: Moment,
    available_bytes: u64,
    capacity_bytes: u64,
    used_bytes: u64,
    inodes_free: u64,
    inodes: u64,
    inodes_used: u64,
}

impl FileSystem {
    pub(super) fn of(at: Timestamp, room: &FileRoom) -> Self {
        Self {
            time: Moment(at),
            available_bytes: room.available,
            capacity_bytes: room.capacity,
            used_bytes: room.used,
            inodes_free: room.inodes_free,
            inodes: room.inodes,
            inodes_used: room.inodes_used,
        }
    }
}

/// A time of the API: whole seconds.
#[derive(Clone, Copy)]
pub(super) struct Moment(pub(super) Timestamp);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.to_second_precision())
    }
}
