//! From bounds to control files: which file gets which text. Pure.
//!
//! A bound that is `None` writes nothing, so the kernel's default (or what an earlier write left)
//! stands; zero means the same for shares and memory, as upstream's library has it.

use ferrolet_resources::CgroupLimits;

use super::place::HugePages;

/// The kernel's default period, in microseconds.
const DEFAULT_PERIOD: u64 = 100_000;
/// More huge pages than any machine has, as upstream writes it.
const UNBOUNDED: u64 = 1 << 62;

/// One text for one control file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) controller: &'static str,
    pub(super) file: &'static str,
    pub(super) text: String,
    pub(super) need: Need,
}

/// What it means when the kernel refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The bound does not hold: an error.
    Required,
    /// The file exists only with some kernel options.
    IfPresent,
    /// The kernel may want the next write first; then this one again.
    OrAfterNext,
}

/// The weight that v2 wants for v1's shares. This is the node agent's own, linear scale; the
/// runtime's for containers is another (upstream `pkg/kubelet/cm/cgroup_manager_linux.go`,
/// `getCPUWeight`).
pub fn cpu_weight(shares: u64) -> u64 {
    if shares >= 262_144 {
        return 10_000;
    }
    1 + shares.saturating_sub(2) * 9_999 / 262_142
}

pub(super) fn v1(limits: &CgroupLimits) -> Vec<Write> {
    let mut writes = Vec::new();
    if let Some(shares) = limits.cpu_shares.filter(|shares| *shares > 0) {
        writes.push(required("cpu", "cpu.shares", shares.to_string()));
    }
    let quota = limits.cpu_quota.filter(|quota| *quota != 0);
    if let Some(period) = limits.cpu_period.filter(|period| *period > 0) {
        let mut write = required("cpu", "cpu.cfs_period_us", period.to_string());
        if quota.is_some() {
            // The old quota over the new period may exceed the parent's share; the kernel checks
            // each write alone.
            write.need = Need::OrAfterNext;
        }
        writes.push(write);
    }
    if let Some(quota) = quota {
        writes.push(required("cpu", "cpu.cfs_quota_us", quota.to_string()));
    }
    match limits.memory {
        None | Some(0) => {}
        Some(-1) => {
            // The bound of memory and swap together may not be below the bound of memory.
            let mut swap = required("memory", "memory.memsw.limit_in_bytes", "-1".to_owned());
            swap.need = Need::IfPresent;
            writes.push(swap);
            writes.push(required("memory", "memory.limit_in_bytes", "-1".to_owned()));
        }
        Some(bytes) => writes.push(required("memory", "memory.limit_in_bytes", bytes.to_string())),
    }
    writes.extend(limits.pids.map(pids));
    writes
}

pub(super) fn v2(limits: &CgroupLimits) -> Vec<Write> {
    let mut writes = Vec::new();
    if let Some(shares) = limits.cpu_shares.filter(|shares| *shares > 0) {
        writes.push(required("cpu", "cpu.weight", cpu_weight(shares).to_string()));
    }
    let quota = limits.cpu_quota.filter(|quota| *quota != 0);
    let period = limits.cpu_period.filter(|period| *period > 0);
    if quota.is_some() || period.is_some() {
        let quota = quota
            .filter(|quota| *quota > 0)
            .map_or_else(|| "max".to_owned(), |quota| quota.to_string());
        let period = period.unwrap_or(DEFAULT_PERIOD);
        writes.push(required("cpu", "cpu.max", format!("{quota} {period}")));
    }
    match limits.memory {
        None | Some(0) => {}
        Some(-1) => writes.push(required("memory", "memory.max", "max".to_owned())),
        Some(bytes) => writes.push(required("memory", "memory.max", bytes.to_string())),
    }
    let protection = limits.protection();
    writes.extend(protection.map(|(file, bytes)| required("memory", file, bytes.to_string())));
    writes.extend(limits.pids.map(pids));
    writes
}

/// What is written to bound huge pages, given the control files of a cgroup. The kernel has one per
/// size it knows, and a second one for reservations on kernels that can bound those; a size that
/// nobody asked for gets nothing.
pub(super) fn huge_pages<'a>(
    files: impl IntoIterator<Item = &'a str>,
    limits: &HugePages<'_>,
) -> Vec<(&'a str, u64)> {
    let bound_of = |file: &'a str| {
        let rest = file.strip_prefix("hugetlb.")?;
        let size = rest.strip_suffix(".limit_in_bytes").or_else(|| rest.strip_suffix(".max"))?;
        let size = size.strip_suffix(".rsvd").unwrap_or(size);
        let bytes = match limits {
            HugePages::Sizes(sizes) => sizes.get(size).copied().unwrap_or(0),
            HugePages::Unbounded => UNBOUNDED,
        };
        Some((file, bytes))
    };
    files.into_iter().filter_map(bound_of).collect()
}

fn pids(limit: i64) -> Write {
    let text = match limit {
        // No process at all cannot be asked of systemd, so upstream's library asks for one with
        // either driver.
        0 => "1".to_owned(),
        bounded if bounded > 0 => bounded.to_string(),
        _ => "max".to_owned(),
    };
    required("pids", "pids.max", text)
}

fn required(controller: &'static str, file: &'static str, text: String) -> Write {
    Write { controller, file, text, need: Need::Required }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn told(writes: Vec<Write>) -> Vec<String> {
        writes.into_iter().map(|write| format!("{} {}", write.file, write.text)).collect()
    }

    #[test]
    fn weights_follow_upstreams_linear_scale() {
        for (shares, weight) in [
            (0, 1),
            (2, 1),
            (102, 4),
            (1024, 39),
            (2048, 79),
            (262_143, 9_999),
            (262_144, 10_000),
            (u64::MAX, 10_000),
        ] {
            assert_eq!(cpu_weight(shares), weight, "{shares}");
        }
    }

    #[test]
    fn every_size_of_huge_pages_is_bounded_and_unasked_ones_are_forbidden() {
        let limits = BTreeMap::from([("2MB".to_owned(), 8 << 20)]);
        let on_v1 = [
            "hugetlb.1GB.limit_in_bytes",
            "hugetlb.2MB.failcnt",
            "hugetlb.2MB.limit_in_bytes",
            "hugetlb.2MB.rsvd.limit_in_bytes",
            "hugetlb.2MB.usage_in_bytes",
            "tasks",
        ];
        assert_eq!(
            huge_pages(on_v1, &HugePages::Sizes(&limits)),
            [
                ("hugetlb.1GB.limit_in_bytes", 0),
                ("hugetlb.2MB.limit_in_bytes", 8 << 20),
                ("hugetlb.2MB.rsvd.limit_in_bytes", 8 << 20),
            ]
        );
        let on_v2 = ["hugetlb.2MB.max", "hugetlb.2MB.current", "memory.max"];
        assert_eq!(huge_pages(on_v2, &HugePages::Sizes(&limits)), [("hugetlb.2MB.max", 8 << 20)]);
        assert_eq!(huge_pages(on_v2, &HugePages::Unbounded), [("hugetlb.2MB.max", 1 << 62)]);
    }

    #[test]
    fn bounds_become_the_texts_of_either_version() {
        let check = |limits: CgroupLimits, on_v1: &[&str], on_v2: &[&str]| {
            assert_eq!(told(v1(&limits)), on_v1, "{limits:?} v1");
            assert_eq!(told(v2(&limits)), on_v2, "{limits:?} v2");
        };
        let none = CgroupLimits::default();
        check(none, &[], &[]);
        check(
            CgroupLimits {
                cpu_shares: Some(204),
                cpu_quota: Some(20_000),
                cpu_period: Some(100_000),
                memory: Some(50_331_648),
                pids: Some(100),
                memory_min: Some(1 << 20),
                memory_low: Some(0),
                memory_high: Some(2 << 20),
            },
            &[
                "cpu.shares 204",
                "cpu.cfs_period_us 100000",
                "cpu.cfs_quota_us 20000",
                "memory.limit_in_bytes 50331648",
                "pids.max 100",
            ],
            &[
                "cpu.weight 8",
                "cpu.max 20000 100000",
                "memory.max 50331648",
                "memory.min 1048576",
                "memory.low 0",
                "memory.high 2097152",
                "pids.max 100",
            ],
        );
        check(
            CgroupLimits { cpu_quota: Some(-1), memory: Some(-1), pids: Some(-1), ..none },
            &[
                "cpu.cfs_quota_us -1",
                "memory.memsw.limit_in_bytes -1",
                "memory.limit_in_bytes -1",
                "pids.max max",
            ],
            &["cpu.max max 100000", "memory.max max", "pids.max max"],
        );
        check(
            CgroupLimits { cpu_shares: Some(0), memory: Some(0), pids: Some(0), ..none },
            &["pids.max 1"],
            &["pids.max 1"],
        );
    }
}
