//! One cgroup's files, of v1 and v2. Blocking.
//!
//! In: open directories, one per hierarchy. Out: the slim [`CgroupUsage`] and the details beside
//! it. What a kernel does not have is left at its default; upstream shows the same zeroes.

use std::path::{Path, PathBuf};

use ferrolet_linux::cgroups::CgroupLayout;
use ferrolet_ports::{
    CgroupUsage, CpuFigures, DeviceFigures, MemoryFigures, Pressure, ProcessFigures,
};
use ferrolet_types::Timestamp;

use super::files::Directory;
use super::parse::{self, MemoryStat};

/// Ticks per second in which v1 counts user and system time.
const TICK_NANOS: u64 = 10_000_000;

/// Which hierarchies of v1 are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breadth {
    /// Processor and memory.
    Basic,
    /// Processes and block devices too.
    All,
}

/// What is mounted where.
pub(super) enum Hierarchies {
    V1 { cpu: PathBuf, memory: PathBuf, pids: Option<PathBuf>, block: Option<PathBuf> },
    V2 { mount: PathBuf },
}

impl Hierarchies {
    pub(super) fn new(layout: &CgroupLayout) -> Self {
        match layout {
            CgroupLayout::V2 { mount } => Self::V2 { mount: mount.clone() },
            CgroupLayout::V1 { hierarchies, .. } => {
                let of = |controller: &str| {
                    let found = hierarchies
                        .iter()
                        .find(|it| it.controllers.iter().any(|name| name == controller));
                    found.map(|it| it.mount.clone())
                };
                Self::V1 {
                    cpu: of("cpuacct").unwrap_or_default(),
                    memory: of("memory").unwrap_or_default(),
                    pids: of("pids"),
                    block: of("blkio"),
                }
            }
        }
    }

    /// The hierarchy whose directories say who is there.
    pub(super) fn listing(&self) -> &Path {
        match self {
            Self::V1 { memory, .. } => memory,
            Self::V2 { mount } => mount,
        }
    }

    /// The root.
    pub(super) fn open(&self, breadth: Breadth) -> std::io::Result<Cgroup> {
        Ok(match self {
            Self::V2 { mount } => Cgroup::V2(Directory::open(mount)?),
            Self::V1 { cpu, memory, pids, block } => {
                let optional = |path: &Option<PathBuf>| {
                    let path = path.as_ref().filter(|_| breadth == Breadth::All);
                    path.and_then(|path| Directory::open(path).ok())
                };
                Cgroup::V1 {
                    memory: Directory::open(memory)?,
                    cpu: Directory::open(cpu).ok(),
                    pids: optional(pids),
                    block: optional(block),
                }
            }
        })
    }
}

/// One cgroup, open in every hierarchy.
pub(super) enum Cgroup {
    V1 {
        memory: Directory,
        cpu: Option<Directory>,
        pids: Option<Directory>,
        block: Option<Directory>,
    },
    V2(Directory),
}

/// What is told beside the slim view.
#[derive(Default)]
pub(super) struct Details {
    pub(super) cpu: CpuFigures,
    pub(super) memory: MemoryFigures,
    pub(super) n_threads: Option<u64>,
    pub(super) max_threads: Option<u64>,
    pub(super) devices: Vec<DeviceFigures>,
    pub(super) pressure: Option<Pressure>,
}

impl Cgroup {
    pub(super) fn child(&self, path: impl AsRef<Path>) -> Option<Self> {
        let path = path.as_ref();
        Some(match self {
            Self::V2(directory) => Self::V2(directory.child(path)?),
            Self::V1 { memory, cpu, pids, block } => {
                let below = |it: &Option<Directory>| it.as_ref().and_then(|it| it.child(path));
                Self::V1 {
                    memory: memory.child(path)?,
                    cpu: below(cpu),
                    pids: below(pids),
                    block: below(block),
                }
            }
        })
    }

    /// The same of a container whose processes alone are of interest: opened in one hierarchy.
    pub(super) fn stranger(&self, name: &str) -> Option<Self> {
        let found = self.listing().child(name)?;
        Some(match self {
            Self::V2(_) => Self::V2(found),
            Self::V1 { .. } => Self::V1 { memory: found, cpu: None, pids: None, block: None },
        })
    }

    fn listing(&self) -> &Directory {
        match self {
            Self::V1 { memory, .. } => memory,
            Self::V2(directory) => directory,
        }
    }

    /// What is below. The kernel names every file on the way, and there are half as many for
    /// processors as for memory.
    pub(super) fn directories(&self) -> Vec<String> {
        match self {
            Self::V1 { cpu: Some(cpu), .. } => cpu.directories(),
            _ => self.listing().directories(),
        }
    }

    pub(super) fn made(&self) -> Option<Timestamp> {
        self.listing().made()
    }

    /// The processes directly in it.
    pub(super) fn pids(&self, buffer: &mut Vec<u8>) -> Vec<u32> {
        let text = self.listing().read("cgroup.procs", buffer).unwrap_or("");
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    pub(super) fn memory_stat(&self, buffer: &mut Vec<u8>) -> MemoryStat {
        let text = self.listing().read("memory.stat", buffer).unwrap_or("");
        match self {
            Self::V1 { .. } => parse::memory_stat_v1(text),
            Self::V2(_) => parse::memory_stat_v2(text),
        }
    }

    /// The slim view.
    pub(super) fn usage(&self, at: Timestamp, buffer: &mut Vec<u8>) -> CgroupUsage {
        let stat = self.memory_stat(buffer);
        self.usage_with(at, &stat, buffer)
    }

    fn usage_with(&self, at: Timestamp, stat: &MemoryStat, buffer: &mut Vec<u8>) -> CgroupUsage {
        match self {
            Self::V1 { memory, cpu, .. } => {
                let usage = memory.number("memory.usage_in_bytes", buffer);
                let limit = memory.number("memory.limit_in_bytes", buffer);
                let cpu = cpu.as_ref();
                CgroupUsage {
                    at,
                    cpu_nanos: cpu.and_then(|cpu| cpu.number("cpuacct.usage", buffer)),
                    cpu_nano_cores: None,
                    memory: usage.map(|usage| parse::memory(usage, stat, limit)),
                    // Kernels without swap accounting do not have the field, and then nothing is
                    // swapped per cgroup.
                    swap_bytes: Some(stat.swap),
                    swap_limit_bytes: Some(0),
                }
            }
            Self::V2(directory) => {
                let cpu = directory.read("cpu.stat", buffer).unwrap_or("");
                let micros = parse::field(cpu, "usage_usec");
                let limit = directory.number("memory.max", buffer);
                let usage = directory.number("memory.current", buffer);
                CgroupUsage {
                    at,
                    cpu_nanos: micros.map(|micros| micros.saturating_mul(1000)),
                    cpu_nano_cores: None,
                    memory: usage.map(|usage| parse::memory(usage, stat, limit)),
                    swap_bytes: Some(directory.number("memory.swap.current", buffer).unwrap_or(0)),
                    swap_limit_bytes: directory.number("memory.swap.max", buffer),
                }
            }
        }
    }

    /// The slim view, and what a summary or everybody else wants beside it.
    pub(super) fn whole(
        &self,
        breadth: Breadth,
        at: Timestamp,
        buffer: &mut Vec<u8>,
    ) -> (CgroupUsage, Details) {
        let stat = self.memory_stat(buffer);
        let usage = self.usage_with(at, &stat, buffer);
        let mut details = Details { memory: stat.figures, ..Details::default() };
        if let Self::V2(directory) = self {
            details.pressure = pressure_v2(directory, buffer);
        }
        if breadth == Breadth::Basic {
            return (usage, details);
        }
        match self {
            Self::V1 { memory, cpu, pids, block } => {
                if let Some(cpu) = cpu {
                    details.cpu = cpu_v1(cpu, buffer);
                }
                let figures = &mut details.memory;
                let mut number = |name| memory.number(name, buffer).unwrap_or(0);
                figures.max_usage = number("memory.max_usage_in_bytes");
                figures.n_failures = number("memory.failcnt");
                figures.kernel = number("memory.kmem.usage_in_bytes");
                figures.reservation = number("memory.soft_limit_in_bytes");
                let oom = memory.read("memory.oom_control", buffer).unwrap_or("");
                figures.n_oom_kills = parse::field(oom, "oom_kill").unwrap_or(0);
                if let Some(pids) = pids {
                    details.n_threads = pids.number("pids.current", buffer);
                    details.max_threads = pids.number("pids.max", buffer);
                }
                if let Some(block) = block {
                    details.devices = devices_v1(block, buffer);
                }
            }
            Self::V2(directory) => whole_v2(directory, &mut details, buffer),
        }
        (usage, details)
    }
}

fn cpu_v1(cpu: &Directory, buffer: &mut Vec<u8>) -> CpuFigures {
    let mut figures = CpuFigures::default();
    let times = cpu.read("cpuacct.stat", buffer).unwrap_or("");
    let nanos = |ticks: u64| ticks.saturating_mul(TICK_NANOS);
    figures.user_nanos = parse::field(times, "user").map(nanos);
    figures.system_nanos = parse::field(times, "system").map(nanos);
    for (name, value) in parse::fields(cpu.read("cpu.stat", buffer).unwrap_or("")) {
        match name {
            "nr_periods" => figures.n_periods = value,
            "nr_throttled" => figures.n_throttled = value,
            "throttled_time" => figures.throttled_nanos = value,
            "nr_bursts" => figures.n_bursts = value,
            "burst_time" => figures.burst_nanos = value,
            _ => {}
        }
    }
    figures.shares = cpu.number("cpu.shares", buffer);
    figures.period_micros = cpu.number("cpu.cfs_period_us", buffer);
    // No limit is -1, which is not a number here.
    figures.quota_micros = cpu.number("cpu.cfs_quota_us", buffer);
    figures
}

fn whole_v2(directory: &Directory, details: &mut Details, buffer: &mut Vec<u8>) {
    let cpu = &mut details.cpu;
    for (name, value) in parse::fields(directory.read("cpu.stat", buffer).unwrap_or("")) {
        let nanos = value.saturating_mul(1000);
        match name {
            "user_usec" => cpu.user_nanos = Some(nanos),
            "system_usec" => cpu.system_nanos = Some(nanos),
            "nr_periods" => cpu.n_periods = value,
            "nr_throttled" => cpu.n_throttled = value,
            "throttled_usec" => cpu.throttled_nanos = nanos,
            "nr_bursts" => cpu.n_bursts = value,
            "burst_usec" => cpu.burst_nanos = nanos,
            _ => {}
        }
    }
    cpu.shares = directory.number("cpu.weight", buffer).map(parse::shares);
    if let Some((quota, period)) = directory.read("cpu.max", buffer).and_then(parse::cpu_max) {
        cpu.quota_micros = quota;
        cpu.period_micros = Some(period);
    }
    let memory = &mut details.memory;
    memory.max_usage = directory.number("memory.peak", buffer).unwrap_or(0);
    memory.reservation = directory.number("memory.low", buffer).unwrap_or(0);
    for (name, value) in parse::fields(directory.read("memory.events", buffer).unwrap_or("")) {
        match name {
            "high" => memory.n_high_events = value,
            "max" => memory.n_max_events = value,
            "oom_kill" => memory.n_oom_kills = value,
            _ => {}
        }
    }
    details.n_threads = directory.number("pids.current", buffer);
    details.max_threads = directory.number("pids.max", buffer);
    details.devices = devices_v2(directory.read("io.stat", buffer).unwrap_or(""));
}

/// How long was waited; `None` where the kernel does not account for it.
fn pressure_v2(directory: &Directory, buffer: &mut Vec<u8>) -> Option<Pressure> {
    let cpu = directory.read("cpu.pressure", buffer).map(parse::stalls)?;
    let mut of = |name| directory.read(name, buffer).map(parse::stalls);
    Some(Pressure {
        cpu,
        memory: of("memory.pressure").unwrap_or_default(),
        io: of("io.pressure").unwrap_or_default(),
    })
}

/// `io.stat`: one line per device.
fn devices_v2(text: &str) -> Vec<DeviceFigures> {
    let devices = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let mut device = device(words.next()?)?;
        for word in words {
            let (name, value) = word.split_once('=')?;
            let Ok(value) = value.parse() else {
                continue;
            };
            match name {
                "rbytes" => device.read_bytes = value,
                "wbytes" => device.write_bytes = value,
                "rios" => device.n_reads = value,
                "wios" => device.n_writes = value,
                _ => {}
            }
        }
        Some(device)
    });
    devices.collect()
}

/// v1's two files: lines of device, operation and number.
fn devices_v1(block: &Directory, buffer: &mut Vec<u8>) -> Vec<DeviceFigures> {
    let mut devices: Vec<DeviceFigures> = Vec::new();
    for (file, is_bytes) in [
        ("blkio.throttle.io_service_bytes_recursive", true),
        ("blkio.throttle.io_serviced_recursive", false),
    ] {
        for line in block.read(file, buffer).unwrap_or("").lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [number, operation, value] = words[..] else {
                continue;
            };
            let (Some(new), Ok(value)) = (device(number), value.parse::<u64>()) else {
                continue;
            };
            let at = devices.iter().position(|it| (it.major, it.minor) == (new.major, new.minor));
            let at = at.unwrap_or_else(|| {
                devices.push(new);
                devices.len() - 1
            });
            match (operation, is_bytes) {
                ("Read", true) => devices[at].read_bytes = value,
                ("Write", true) => devices[at].write_bytes = value,
                ("Read", false) => devices[at].n_reads = value,
                ("Write", false) => devices[at].n_writes = value,
                _ => {}
            }
        }
    }
    devices
}

fn device(number: &str) -> Option<DeviceFigures> {
    let (major, minor) = number.split_once(':')?;
    Some(DeviceFigures {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        ..DeviceFigures::default()
    })
}

/// What a process has open, added to what others of its cgroup have.
pub(super) fn add_process(figures: &mut ProcessFigures, process: &Directory, buffer: &mut Vec<u8>) {
    if figures.n_processes == 0 {
        figures.max_open_files = process.read("limits", buffer).and_then(max_open_files);
    }
    figures.n_processes += 1;
    let Some(descriptors) = process.child("fd") else {
        return;
    };
    let mut n_looked_at = 0;
    for name in descriptors.names() {
        figures.n_descriptors += 1;
        n_looked_at += 1;
        // A process can have a million; what the rest are is not worth a second of everybody's
        // time.
        if n_looked_at <= LOOKED_AT
            && descriptors.link(&name).is_some_and(|target| target.starts_with(b"socket"))
        {
            figures.n_sockets += 1;
        }
    }
}

/// Descriptors of one process of which it is asked whether they are sockets.
const LOOKED_AT: u32 = 1024;

fn max_open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}
