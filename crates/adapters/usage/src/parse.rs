//! The kernel's texts about a cgroup, read. Pure.

use ferrolet_ports::{InterfaceFigures, MemoryFigures, MemoryUsage, Stall, Stalls, TrafficFigures};

/// Limits from here on mean none; v1 writes the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// Interfaces that upstream leaves out, by the beginning of their names.
const IGNORED: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];

/// The lines of a file of `name number` lines.
pub(super) fn fields(text: &str) -> impl Iterator<Item = (&str, u64)> {
    words(text).filter_map(|(name, value)| Some((name, value.parse().ok()?)))
}

/// The same for whoever wants few of many lines, and does not read numbers for nothing.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines();
    lines.filter_map(|line| line.split_once(' ').map(|(name, value)| (name, value.trim())))
}

/// The number behind a name in a file of `name number` lines.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    fields(text).find_map(|(it, value)| (it == name).then_some(value))
}

/// A file of one number; `max` is none.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|number| *number < NO_LIMIT)
}

/// What `memory.stat` says, of both versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryStat {
    pub(super) rss: u64,
    pub(super) page_faults: u64,
    pub(super) major_page_faults: u64,
    pub(super) swap: u64,
    pub(super) figures: MemoryFigures,
}

pub(super) fn memory_stat_v2(text: &str) -> MemoryStat {
    let mut stat = MemoryStat::default();
    for (name, value) in words(text) {
        let figures = &mut stat.figures;
        let field = match name {
            "anon" => &mut stat.rss,
            "pgfault" => &mut stat.page_faults,
            "pgmajfault" => &mut stat.major_page_faults,
            "file" => &mut figures.cache,
            "file_mapped" => &mut figures.mapped_file,
            "kernel" => &mut figures.kernel,
            "active_file" => &mut figures.active_file,
            "inactive_file" => &mut figures.inactive_file,
            "file_dirty" => &mut figures.dirty,
            "file_writeback" => &mut figures.writeback,
            "pgscan" => &mut figures.n_scanned,
            "pgsteal" => &mut figures.n_stolen,
            "workingset_refault_anon" => &mut figures.n_anon_refaults,
            "workingset_refault_file" => &mut figures.n_file_refaults,
            _ => continue,
        };
        *field = value.parse().unwrap_or(0);
    }
    stat
}

pub(super) fn memory_stat_v1(text: &str) -> MemoryStat {
    let mut stat = MemoryStat::default();
    for (name, value) in words(text) {
        let figures = &mut stat.figures;
        let field = match name {
            "total_rss" => &mut stat.rss,
            // Upstream shows a cgroup's own faults on v1, not those below it.
            "pgfault" => &mut stat.page_faults,
            "pgmajfault" => &mut stat.major_page_faults,
            "total_swap" => &mut stat.swap,
            "total_cache" => &mut figures.cache,
            "total_mapped_file" => &mut figures.mapped_file,
            "total_active_file" => &mut figures.active_file,
            "total_inactive_file" => &mut figures.inactive_file,
            "total_dirty" => &mut figures.dirty,
            "total_writeback" => &mut figures.writeback,
            "workingset_refault_anon" => &mut figures.n_anon_refaults,
            "workingset_refault_file" => &mut figures.n_file_refaults,
            _ => continue,
        };
        *field = value.parse().unwrap_or(0);
    }
    stat
}

/// The slim view of memory.
pub(super) fn memory(usage: u64, stat: &MemoryStat, limit: Option<u64>) -> MemoryUsage {
    MemoryUsage {
        usage,
        working_set: usage.saturating_sub(stat.figures.inactive_file),
        rss: stat.rss,
        limit,
        page_faults: stat.page_faults,
        major_page_faults: stat.major_page_faults,
    }
}

/// Memory of the whole machine in use, and the machine's memory, from `/proc/meminfo`.
pub(super) fn meminfo(text: &str) -> Option<(u64, u64)> {
    let total = meminfo_bytes(text, "MemTotal:")?;
    let free = meminfo_bytes(text, "MemFree:")?;
    Some((total.saturating_sub(free), total))
}

/// Swap of the whole machine in use, and all there is, from `/proc/meminfo`.
pub(super) fn swap(text: &str) -> Option<(u64, u64)> {
    let total = meminfo_bytes(text, "SwapTotal:")?;
    let free = meminfo_bytes(text, "SwapFree:")?;
    Some((total.saturating_sub(free), total))
}

fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes.saturating_mul(1024))
}

/// `cpu.max`: quota (none for `max`) and period.
pub(super) fn cpu_max(text: &str) -> Option<(Option<u64>, u64)> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some((quota.parse().ok(), period.parse().ok()?))
}

/// v2's weight as v1's shares, by the rule of the runtimes.
pub(super) fn shares(weight: u64) -> u64 {
    2 + weight.saturating_sub(1).saturating_mul(262_142) / 9999
}

/// `/proc/pressure/…` and `*.pressure`.
pub(super) fn stalls(text: &str) -> Stalls {
    let mut stalls = Stalls::default();
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut stall = Stall::default();
        for pair in rest.split(' ') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "avg10" => stall.avg10 = value.parse().unwrap_or(0.0),
                "avg60" => stall.avg60 = value.parse().unwrap_or(0.0),
                "avg300" => stall.avg300 = value.parse().unwrap_or(0.0),
                "total" => stall.total_micros = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        match kind {
            "some" => stalls.some = stall,
            "full" => stalls.full = stall,
            _ => {}
        }
    }
    stalls
}

/// `/proc/PID/net/dev`, without the loopback and what upstream leaves out.
pub(super) fn interfaces(text: &str) -> Vec<InterfaceFigures> {
    let mut found = Vec::new();
    for line in text.lines().skip(2) {
        let Some((name, numbers)) = line.split_once(':') else {
            continue;
        };
        let name = name.trim();
        let lower = name.to_ascii_lowercase();
        if IGNORED.iter().any(|ignored| lower.starts_with(ignored)) {
            continue;
        }
        let numbers: Vec<u64> =
            numbers.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect();
        let traffic = |at: usize| {
            let number = |i: usize| numbers.get(at + i).copied().unwrap_or(0);
            TrafficFigures {
                bytes: number(0),
                n_packets: number(1),
                n_errors: number(2),
                n_dropped: number(3),
            }
        };
        found.push(InterfaceFigures {
            name: name.to_owned(),
            received: traffic(0),
            sent: traffic(8),
        });
    }
    found
}
