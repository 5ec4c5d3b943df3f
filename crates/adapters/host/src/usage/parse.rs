//! The kernel's texts about a cgroup, read. Pure.

use ferrolet_ports::MemoryUsage;

/// Limits from here on mean none; v1 writes the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// The number behind a name in a file of `name number` lines.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(' ')?;
        value.trim().parse().ok()
    })
}

/// A file of one number; `max` is none.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|number| *number < NO_LIMIT)
}

pub(super) fn memory_v2(usage: u64, stat: &str, limit: Option<u64>) -> MemoryUsage {
    let field = |name| field(stat, name).unwrap_or(0);
    MemoryUsage {
        usage,
        working_set: usage.saturating_sub(field("inactive_file")),
        rss: field("anon"),
        limit,
        page_faults: field("pgfault"),
        major_page_faults: field("pgmajfault"),
    }
}

pub(super) fn memory_v1(usage: u64, stat: &str, limit: Option<u64>) -> MemoryUsage {
    let field = |name| field(stat, name).unwrap_or(0);
    MemoryUsage {
        usage,
        working_set: usage.saturating_sub(field("total_inactive_file")),
        rss: field("total_rss"),
        limit,
        // Upstream shows a cgroup's own faults on v1, not those below it.
        page_faults: field("pgfault"),
        major_page_faults: field("pgmajfault"),
    }
}

/// Memory of the whole machine in use, and the machine's memory, from `/proc/meminfo`.
pub(super) fn meminfo(text: &str) -> Option<(u64, u64)> {
    let total = meminfo_bytes(text, "MemTotal:")?;
    let free = meminfo_bytes(text, "MemFree:")?;
    Some((total.saturating_sub(free), total))
}

/// Swap of the whole machine in use, from `/proc/meminfo`.
pub(super) fn swap_in_use(text: &str) -> Option<u64> {
    let total = meminfo_bytes(text, "SwapTotal:")?;
    Some(total.saturating_sub(meminfo_bytes(text, "SwapFree:")?))
}

fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes.saturating_mul(1024))
}
