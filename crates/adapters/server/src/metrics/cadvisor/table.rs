//! The families of `/metrics/cadvisor`, in the order of their names. Names and types are
//! cAdvisor's; the help is our own.

use ferrolet_ports::{
    CpuFigures, DeviceFigures, DiskFigures, InterfaceFigures, MemoryFigures, MemoryUsage, Pressure,
    Stall, Whose,
};

use super::Row;
use crate::metrics::Machine;

/// One family.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) help: &'static str,
    pub(super) values: Values,
}

/// Where a family's values come from, and which labels they have beside the container's.
#[derive(Clone, Copy)]
pub(super) enum Values {
    /// One per cgroup, read at the moment of the reading.
    Read(fn(&Row<'_>) -> Option<f64>),
    /// One per cgroup that does not move, so without a time.
    Fixed(fn(&Row<'_>) -> Option<f64>),
    /// One per cgroup, true now.
    Seen(fn(&Row<'_>) -> f64),
    /// One per cgroup, for all processors together.
    Total(fn(&Row<'_>) -> Option<f64>),
    /// Page faults by kind and scope.
    Faults,
    /// The limit of open files.
    OpenFiles,
    /// One per network interface.
    Network(fn(&InterfaceFigures) -> u64),
    /// One per disk of the machine, or per device that a cgroup used.
    Disk(fn(&DiskFigures) -> Option<f64>, fn(&DeviceFigures) -> Option<f64>),
    /// One per device that a cgroup used.
    DeviceBytes(fn(&DeviceFigures) -> u64),
    /// One per device and operation.
    Operations,
}

const fn row(name: &'static str, kind: &'static str, help: &'static str, values: Values) -> Family {
    Family { name, kind, help, values }
}

fn seconds(nanos: Option<u64>) -> Option<f64> {
    nanos.map(|nanos| nanos as f64 / 1e9)
}

/// Only what has a quota is throttled.
fn limited(row: &Row<'_>, value: fn(&CpuFigures) -> f64) -> Option<f64> {
    let cpu = &row.figures.cpu;
    (cpu.quota_micros.is_some() && row.figures.whose != Whose::Node).then(|| value(cpu))
}

fn memory(row: &Row<'_>, value: fn(&MemoryFigures) -> u64) -> Option<f64> {
    Some(value(&row.figures.memory) as f64)
}

fn usage(row: &Row<'_>, value: fn(&MemoryUsage) -> u64) -> Option<f64> {
    row.figures.usage.memory.as_ref().map(|it| value(it) as f64)
}

fn pressure(row: &Row<'_>, value: fn(&Pressure) -> Stall) -> Option<f64> {
    let stall = row.figures.pressure.as_ref().map(value)?;
    Some(stall.total_micros as f64 / 1e6)
}

pub(super) const FAMILIES: &[Family] = &[
    row(
        "container_blkio_device_usage_total",
        "counter",
        "Bytes a container read from and wrote to a block device.",
        Values::Operations,
    ),
    row(
        "container_cpu_cfs_burst_periods_total",
        "counter",
        "Periods in which a container used more than its share.",
        Values::Read(|row| limited(row, |cpu| cpu.n_bursts as f64)),
    ),
    row(
        "container_cpu_cfs_burst_seconds_total",
        "counter",
        "Time a container used above its share, in seconds.",
        Values::Read(|row| limited(row, |cpu| cpu.burst_nanos as f64 / 1e9)),
    ),
    row(
        "container_cpu_cfs_periods_total",
        "counter",
        "Enforcement periods that passed.",
        Values::Read(|row| limited(row, |cpu| cpu.n_periods as f64)),
    ),
    row(
        "container_cpu_cfs_throttled_periods_total",
        "counter",
        "Periods in which a container had to wait.",
        Values::Read(|row| limited(row, |cpu| cpu.n_throttled as f64)),
    ),
    row(
        "container_cpu_cfs_throttled_seconds_total",
        "counter",
        "Time a container had to wait for its share, in seconds.",
        Values::Read(|row| limited(row, |cpu| cpu.throttled_nanos as f64 / 1e9)),
    ),
    row(
        "container_cpu_system_seconds_total",
        "counter",
        "Processor time in the kernel, in seconds.",
        Values::Read(|row| seconds(row.figures.cpu.system_nanos)),
    ),
    row(
        "container_cpu_usage_seconds_total",
        "counter",
        "Processor time, in seconds.",
        Values::Total(|row| seconds(row.figures.usage.cpu_nanos)),
    ),
    row(
        "container_cpu_user_seconds_total",
        "counter",
        "Processor time in user mode, in seconds.",
        Values::Read(|row| seconds(row.figures.cpu.user_nanos)),
    ),
    row(
        "container_creation_time_seconds",
        "gauge",
        "When a container was made, in seconds since the epoch.",
        Values::Fixed(|row| Some(row.figures.made.0.as_second() as f64)),
    ),
    row(
        "container_file_descriptors",
        "gauge",
        "Open file descriptors of a container.",
        Values::Read(|row| Some(row.figures.processes.n_descriptors as f64)),
    ),
    row(
        "container_fs_inodes_free",
        "gauge",
        "Inodes left on a file system.",
        Values::Disk(|disk| Some(disk.room.inodes_free as f64), |_| None),
    ),
    row(
        "container_fs_inodes_total",
        "gauge",
        "Inodes of a file system.",
        Values::Disk(|disk| Some(disk.room.inodes as f64), |_| None),
    ),
    row(
        "container_fs_io_current",
        "gauge",
        "Requests to a disk under way.",
        Values::Disk(|disk| Some(disk.n_under_way as f64), |_| None),
    ),
    row(
        "container_fs_io_time_seconds_total",
        "counter",
        "Time a disk was busy, in seconds.",
        Values::Disk(|disk| Some(disk.busy_millis as f64 / 1e3), |_| None),
    ),
    row(
        "container_fs_io_time_weighted_seconds_total",
        "counter",
        "Time requests to a disk took together, in seconds.",
        Values::Disk(|disk| Some(disk.weighted_millis as f64 / 1e3), |_| None),
    ),
    row(
        "container_fs_limit_bytes",
        "gauge",
        "Size of a file system, in bytes.",
        Values::Disk(|disk| Some(disk.room.capacity as f64), |_| None),
    ),
    row(
        "container_fs_read_seconds_total",
        "counter",
        "Time spent reading, in seconds.",
        Values::Disk(|disk| Some(disk.reads[3] as f64 / 1e3), |_| None),
    ),
    row(
        "container_fs_reads_bytes_total",
        "counter",
        "Bytes read.",
        Values::DeviceBytes(|device| device.read_bytes),
    ),
    row(
        "container_fs_reads_merged_total",
        "counter",
        "Reads that were merged with others.",
        Values::Disk(|disk| Some(disk.reads[1] as f64), |_| None),
    ),
    row(
        "container_fs_reads_total",
        "counter",
        "Reads.",
        Values::Disk(|disk| Some(disk.reads[0] as f64), |device| Some(device.n_reads as f64)),
    ),
    row(
        "container_fs_sector_reads_total",
        "counter",
        "Sectors read.",
        Values::Disk(|disk| Some(disk.reads[2] as f64), |_| None),
    ),
    row(
        "container_fs_sector_writes_total",
        "counter",
        "Sectors written.",
        Values::Disk(|disk| Some(disk.writes[2] as f64), |_| None),
    ),
    row(
        "container_fs_usage_bytes",
        "gauge",
        "Bytes in use on a file system.",
        Values::Disk(|disk| Some(disk.room.used as f64), |_| None),
    ),
    row(
        "container_fs_write_seconds_total",
        "counter",
        "Time spent writing, in seconds.",
        Values::Disk(|disk| Some(disk.writes[3] as f64 / 1e3), |_| None),
    ),
    row(
        "container_fs_writes_bytes_total",
        "counter",
        "Bytes written.",
        Values::DeviceBytes(|device| device.write_bytes),
    ),
    row(
        "container_fs_writes_merged_total",
        "counter",
        "Writes that were merged with others.",
        Values::Disk(|disk| Some(disk.writes[1] as f64), |_| None),
    ),
    row(
        "container_fs_writes_total",
        "counter",
        "Writes.",
        Values::Disk(|disk| Some(disk.writes[0] as f64), |device| Some(device.n_writes as f64)),
    ),
    row(
        "container_health_state",
        "gauge",
        "Result of a container's own health check; -1 without one.",
        Values::Read(|_| Some(-1.0)),
    ),
    row(
        "container_last_seen",
        "gauge",
        "When a container was last seen, in seconds since the epoch.",
        Values::Seen(|row| row.now.0.as_second() as f64),
    ),
    row(
        "container_memory_cache",
        "gauge",
        "Page cache, in bytes.",
        Values::Read(|row| memory(row, |it| it.cache)),
    ),
    row(
        "container_memory_events_high_total",
        "counter",
        "Times a container was slowed down at its high mark.",
        Values::Read(|row| memory(row, |it| it.n_high_events)),
    ),
    row(
        "container_memory_events_max_total",
        "counter",
        "Times a container was stopped at its limit.",
        Values::Read(|row| memory(row, |it| it.n_max_events)),
    ),
    row(
        "container_memory_failcnt",
        "counter",
        "Times a container's limit was hit.",
        Values::Read(|row| memory(row, |it| it.n_failures)),
    ),
    row(
        "container_memory_failures_total",
        "counter",
        "Page faults, by kind and scope.",
        Values::Faults,
    ),
    row(
        "container_memory_file_dirty_bytes",
        "gauge",
        "File pages that are not on disk yet, in bytes.",
        Values::Read(|row| memory(row, |it| it.dirty)),
    ),
    row(
        "container_memory_file_writeback_bytes",
        "gauge",
        "File pages on their way to disk, in bytes.",
        Values::Read(|row| memory(row, |it| it.writeback)),
    ),
    row(
        "container_memory_kernel_usage",
        "gauge",
        "The kernel's memory for a container, in bytes.",
        Values::Read(|row| memory(row, |it| it.kernel)),
    ),
    row(
        "container_memory_mapped_file",
        "gauge",
        "Mapped files, in bytes.",
        Values::Read(|row| memory(row, |it| it.mapped_file)),
    ),
    row(
        "container_memory_max_usage_bytes",
        "gauge",
        "The most memory a container used, in bytes.",
        Values::Read(|row| memory(row, |it| it.max_usage)),
    ),
    row(
        "container_memory_pgscan_total",
        "counter",
        "Pages that reclaim looked at.",
        Values::Read(|row| memory(row, |it| it.n_scanned)),
    ),
    row(
        "container_memory_pgsteal_total",
        "counter",
        "Pages that were reclaimed.",
        Values::Read(|row| memory(row, |it| it.n_stolen)),
    ),
    row(
        "container_memory_rss",
        "gauge",
        "Anonymous memory, in bytes.",
        Values::Read(|row| usage(row, |it| it.rss)),
    ),
    row(
        "container_memory_swap",
        "gauge",
        "Swap in use, in bytes.",
        Values::Read(|row| row.figures.usage.swap_bytes.map(|it| it as f64)),
    ),
    row(
        "container_memory_total_active_file_bytes",
        "gauge",
        "File pages in use, in bytes.",
        Values::Read(|row| memory(row, |it| it.active_file)),
    ),
    row(
        "container_memory_total_inactive_file_bytes",
        "gauge",
        "File pages that can be dropped, in bytes.",
        Values::Read(|row| memory(row, |it| it.inactive_file)),
    ),
    row(
        "container_memory_usage_bytes",
        "gauge",
        "Memory in use of every kind, in bytes.",
        Values::Read(|row| usage(row, |it| it.usage)),
    ),
    row(
        "container_memory_working_set_bytes",
        "gauge",
        "Memory that cannot be dropped easily, in bytes.",
        Values::Read(|row| usage(row, |it| it.working_set)),
    ),
    row(
        "container_memory_workingset_refault_anon_total",
        "counter",
        "Anonymous pages that were missed after they had been put away.",
        Values::Read(|row| memory(row, |it| it.n_anon_refaults)),
    ),
    row(
        "container_memory_workingset_refault_file_total",
        "counter",
        "File pages that were missed after they had been dropped.",
        Values::Read(|row| memory(row, |it| it.n_file_refaults)),
    ),
    row(
        "container_network_receive_bytes_total",
        "counter",
        "Bytes received.",
        Values::Network(|it| it.received.bytes),
    ),
    row(
        "container_network_receive_errors_total",
        "counter",
        "Damaged packets on the way in.",
        Values::Network(|it| it.received.n_errors),
    ),
    row(
        "container_network_receive_packets_dropped_total",
        "counter",
        "Dropped packets on the way in.",
        Values::Network(|it| it.received.n_dropped),
    ),
    row(
        "container_network_receive_packets_total",
        "counter",
        "Packets received.",
        Values::Network(|it| it.received.n_packets),
    ),
    row(
        "container_network_transmit_bytes_total",
        "counter",
        "Bytes sent.",
        Values::Network(|it| it.sent.bytes),
    ),
    row(
        "container_network_transmit_errors_total",
        "counter",
        "Damaged packets on the way out.",
        Values::Network(|it| it.sent.n_errors),
    ),
    row(
        "container_network_transmit_packets_dropped_total",
        "counter",
        "Dropped packets on the way out.",
        Values::Network(|it| it.sent.n_dropped),
    ),
    row(
        "container_network_transmit_packets_total",
        "counter",
        "Packets sent.",
        Values::Network(|it| it.sent.n_packets),
    ),
    row(
        "container_oom_events_total",
        "counter",
        "Processes of a container that were killed for want of memory.",
        Values::Read(|row| memory(row, |it| it.n_oom_kills)),
    ),
    row(
        "container_pressure_cpu_stalled_seconds_total",
        "counter",
        "Time everybody in a container waited for the processor, in seconds.",
        Values::Read(|row| pressure(row, |it| it.cpu.full)),
    ),
    row(
        "container_pressure_cpu_waiting_seconds_total",
        "counter",
        "Time somebody in a container waited for the processor, in seconds.",
        Values::Read(|row| pressure(row, |it| it.cpu.some)),
    ),
    row(
        "container_pressure_io_stalled_seconds_total",
        "counter",
        "Time everybody in a container waited for disks, in seconds.",
        Values::Read(|row| pressure(row, |it| it.io.full)),
    ),
    row(
        "container_pressure_io_waiting_seconds_total",
        "counter",
        "Time somebody in a container waited for disks, in seconds.",
        Values::Read(|row| pressure(row, |it| it.io.some)),
    ),
    row(
        "container_pressure_memory_stalled_seconds_total",
        "counter",
        "Time everybody in a container waited for memory, in seconds.",
        Values::Read(|row| pressure(row, |it| it.memory.full)),
    ),
    row(
        "container_pressure_memory_waiting_seconds_total",
        "counter",
        "Time somebody in a container waited for memory, in seconds.",
        Values::Read(|row| pressure(row, |it| it.memory.some)),
    ),
    row(
        "container_processes",
        "gauge",
        "Processes of a container.",
        Values::Read(|row| Some(row.figures.processes.n_processes as f64)),
    ),
    row(
        "container_sockets",
        "gauge",
        "Open sockets of a container.",
        Values::Read(|row| Some(row.figures.processes.n_sockets as f64)),
    ),
    row(
        "container_spec_cpu_period",
        "gauge",
        "The period in which a container gets its share, in microseconds.",
        Values::Fixed(|row| row.figures.cpu.period_micros.map(|it| it as f64)),
    ),
    row(
        "container_spec_cpu_quota",
        "gauge",
        "What a container may use per period, in microseconds.",
        Values::Fixed(|row| row.figures.cpu.quota_micros.map(|it| it as f64)),
    ),
    row(
        "container_spec_cpu_shares",
        "gauge",
        "A container's weight.",
        Values::Fixed(|row| row.figures.cpu.shares.map(|it| it as f64)),
    ),
    row(
        "container_spec_memory_limit_bytes",
        "gauge",
        "Memory a container may use, in bytes; 0 without a limit.",
        Values::Fixed(|row| usage(row, |it| it.limit.unwrap_or(0))),
    ),
    row(
        "container_spec_memory_reservation_limit_bytes",
        "gauge",
        "Memory that is kept for a container, in bytes.",
        Values::Fixed(|row| memory(row, |it| it.reservation)),
    ),
    row(
        "container_spec_memory_swap_limit_bytes",
        "gauge",
        "Swap a container may use, in bytes; 0 without a limit.",
        Values::Fixed(|row| Some(row.figures.usage.swap_limit_bytes.unwrap_or(0) as f64)),
    ),
    row(
        "container_start_time_seconds",
        "gauge",
        "When a container started, in seconds since the epoch.",
        Values::Fixed(|row| Some(row.started.unwrap_or(row.figures.made).0.as_second() as f64)),
    ),
    row(
        "container_threads",
        "gauge",
        "Threads of a container.",
        Values::Read(|row| Some(row.figures.n_threads.unwrap_or(0) as f64)),
    ),
    row(
        "container_threads_max",
        "gauge",
        "Threads a container may have; 0 without a limit.",
        Values::Read(|row| Some(row.figures.max_threads.unwrap_or(0) as f64)),
    ),
    row(
        "container_ulimits_soft",
        "gauge",
        "Soft limits of a container's first process.",
        Values::OpenFiles,
    ),
];

/// A fact of the machine.
type Fact = fn(&Machine) -> u64;

/// Families about the machine, with its identities as labels.
pub(super) const MACHINE: &[(&str, &str, Fact)] = &[
    ("machine_cpu_books", "Processor books.", |_| 0),
    ("machine_cpu_cores", "Logical processors.", |machine| machine.n_cpus),
    ("machine_cpu_drawers", "Processor drawers.", |_| 0),
    ("machine_cpu_physical_cores", "Processor cores.", |machine| machine.n_cores),
    ("machine_cpu_sockets", "Processor sockets.", |machine| machine.n_sockets),
    ("machine_memory_bytes", "Memory of the machine, in bytes.", |machine| machine.memory_bytes),
    ("machine_nvm_avg_power_budget_watts", "Power budget of non-volatile memory.", |_| 0),
    ("machine_nvm_capacity", "Non-volatile memory by mode, in bytes.", |_| 0),
    ("machine_swap_bytes", "Swap of the machine, in bytes.", |machine| machine.swap_bytes),
];
