//! From bounds to properties of systemd's units, and from places to the names of slices. Pure.
//!
//! systemd writes the files itself, on its own scale where it has one: a quota is a time per second,
//! rounded up to ten milliseconds. What it has no property for is written into files afterwards.

use ferrolet_linux::cgroups::CgroupName;
use ferrolet_ports::{CgroupDriver, Slice, SliceProperty};
use ferrolet_resources::CgroupLimits;

use super::values::cpu_weight;

/// Without bound.
const INFINITY: u64 = u64::MAX;
/// The kernel's default period, in microseconds.
const DEFAULT_PERIOD: u64 = 100_000;
/// systemd keeps quotas in hundredths of a processor.
const QUOTA_STEP: u64 = 10_000;
const SUFFIX: &str = ".slice";

/// Which files the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// The unit of a place, with its bounds.
pub(super) fn slice(name: &CgroupName, limits: &CgroupLimits, version: Version) -> Slice {
    let path = name.to_driver(CgroupDriver::Systemd);
    let mut units = path.rsplit('/');
    let unit = units.next().unwrap_or_default().to_owned();
    let parent = units.next().filter(|parent| !parent.is_empty()).unwrap_or("-.slice").to_owned();
    Slice { name: unit, parent, properties: properties(limits, version) }
}

/// The place that the configuration names for daemons: a path whose last part is a slice.
pub(super) fn reserved_place(path: &str) -> CgroupName {
    let unit = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let unit = unit.strip_suffix(SUFFIX).unwrap_or(unit);
    CgroupName::parse(&unit.replace('-', "/"))
}

/// The last component of the place whose directory is called so; `None` for what is no slice.
pub(super) fn component_of(directory: &str) -> Option<String> {
    let unit = directory.strip_suffix(SUFFIX)?;
    let last = unit.rsplit('-').next()?;
    Some(last.replace('_', "-"))
}

/// Which processors there are, a bit each, from the kernel's list.
pub(super) fn processor_mask(list: &str) -> Vec<u8> {
    let mut mask: Vec<u8> = Vec::new();
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) else {
            continue;
        };
        for processor in first..=last {
            let at = usize::from(processor / 8);
            if mask.len() <= at {
                mask.resize(at + 1, 0);
            }
            mask[at] |= 1 << (processor % 8);
        }
    }
    mask
}

/// What systemd is told.
pub(super) fn properties(limits: &CgroupLimits, version: Version) -> Vec<SliceProperty> {
    use SliceProperty::Number;
    let mut properties = Vec::new();
    if let Some(shares) = limits.cpu_shares.filter(|shares| *shares > 0) {
        properties.push(match version {
            Version::V1 => Number("CPUShares", shares),
            Version::V2 => Number("CPUWeight", cpu_weight(shares)),
        });
    }
    let quota = limits.cpu_quota.filter(|quota| *quota != 0);
    let period = limits.cpu_period.filter(|period| *period > 0);
    properties.extend(period.map(|period| Number("CPUQuotaPeriodUSec", period)));
    if quota.is_some() || period.is_some() {
        let per_second = match quota.and_then(|quota| u64::try_from(quota).ok()) {
            None => INFINITY,
            Some(quota) => {
                let per_second = quota.saturating_mul(1_000_000) / period.unwrap_or(DEFAULT_PERIOD);
                per_second.checked_next_multiple_of(QUOTA_STEP).unwrap_or(INFINITY)
            }
        };
        properties.push(Number("CPUQuotaPerSecUSec", per_second));
    }
    let bound = |amount: i64| u64::try_from(amount).unwrap_or(INFINITY);
    if let Some(memory) = limits.memory.filter(|memory| *memory != 0) {
        let name = match version {
            Version::V1 => "MemoryLimit",
            Version::V2 => "MemoryMax",
        };
        properties.push(Number(name, bound(memory)));
    }
    if version == Version::V2 {
        let protection = [
            ("MemoryMin", limits.memory_min),
            ("MemoryLow", limits.memory_low),
            ("MemoryHigh", limits.memory_high),
        ];
        let protection = protection.into_iter();
        properties.extend(protection.filter_map(|(name, it)| Some(Number(name, bound(it?)))));
    }
    // systemd takes no process at all for none said.
    properties.extend(limits.pids.map(|pids| Number("TasksMax", bound(pids).max(1))));
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(limits: &CgroupLimits, version: Version) -> String {
        let told = properties(limits, version).into_iter().map(|it| match it {
            SliceProperty::Number(name, INFINITY) => format!("{name}=infinity"),
            SliceProperty::Number(name, number) => format!("{name}={number}"),
            SliceProperty::Mask(name, mask) => format!("{name}={mask:?}"),
        });
        told.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn bounds_become_systemds_properties_on_either_version() {
        let none = CgroupLimits::NONE;
        let check = |limits: CgroupLimits, on_v1: &str, on_v2: &str| {
            assert_eq!(told(&limits, Version::V1), on_v1, "{limits:?}");
            assert_eq!(told(&limits, Version::V2), on_v2, "{limits:?}");
        };
        check(none, "", "");
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
            "CPUShares=204 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=200000 MemoryLimit=50331648 TasksMax=100",
            "CPUWeight=8 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=200000 MemoryMax=50331648 MemoryMin=1048576 MemoryLow=0 MemoryHigh=2097152 TasksMax=100",
        );
        let free = CgroupLimits { cpu_quota: Some(-1), memory: Some(-1), pids: Some(-1), ..none };
        check(
            free,
            "CPUQuotaPerSecUSec=infinity MemoryLimit=infinity TasksMax=infinity",
            "CPUQuotaPerSecUSec=infinity MemoryMax=infinity TasksMax=infinity",
        );
        // What is not a hundredth of a processor is rounded up.
        let odd = CgroupLimits { cpu_quota: Some(1_234), cpu_period: Some(100_000), ..none };
        let expected = "CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=20000";
        check(odd, expected, expected);
        check(CgroupLimits { pids: Some(0), memory: Some(0), ..none }, "TasksMax=1", "TasksMax=1");
    }

    #[test]
    fn units_are_named_by_their_whole_way() {
        let root = CgroupName::parse("/");
        let check = |name: &CgroupName, unit: &str, parent: &str| {
            let made = slice(name, &CgroupLimits::NONE, Version::V2);
            assert_eq!((made.name.as_str(), made.parent.as_str()), (unit, parent));
        };
        let kubepods = root.child("kubepods");
        check(&kubepods, "kubepods.slice", "-.slice");
        let pod = kubepods.child("burstable").child("pod12-ab");
        check(&pod, "kubepods-burstable-pod12_ab.slice", "kubepods-burstable.slice");
        assert_eq!(component_of("kubepods-burstable-pod12_ab.slice").as_deref(), Some("pod12-ab"));
        assert_eq!(component_of("kubepods-burstable.slice").as_deref(), Some("burstable"));
        assert_eq!(component_of("cri-containerd-12.scope"), None);
    }

    #[test]
    fn daemons_are_found_by_their_slice() {
        let check = |path: &str, expected: &str| {
            assert_eq!(reserved_place(path).to_systemd(), expected, "{path}");
        };
        check("/system.slice", "/system.slice");
        check("system.slice", "/system.slice");
        check("/kube.slice/kube-daemons.slice", "/kube.slice/kube-daemons.slice");
        check("/daemons", "/daemons.slice");
        check("/", "/");
    }

    #[test]
    fn processors_are_bits() {
        assert_eq!(processor_mask("0-1\n"), [3]);
        assert_eq!(processor_mask("0,2,8-9"), [5, 3]);
        assert_eq!(processor_mask("15"), [0, 128]);
        assert_eq!(processor_mask("nonsense"), Vec::<u8>::new());
    }
}
