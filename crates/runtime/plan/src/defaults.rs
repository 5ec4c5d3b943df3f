//! What every container gets unless somebody says otherwise.

use ferrolet_runtime_protocol::launch::{Device, Kernel, Mount, Readonly, Source};

use crate::devices::{ALL, Access, DeviceRule, Kind};

/// Capabilities in the order of the kernel's numbers.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Those that a container has by default.
const DEFAULT: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// Paths that are hidden.
pub const MASKED_PATHS: [&str; 11] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Paths that cannot be written.
pub const READONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// All capabilities that this code knows, one bit each.
pub const ALL_CAPABILITIES: u64 = (1 << CAPABILITIES.len()) - 1;

/// A name that is no capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCapability(pub String);

/// The capabilities of a container, one bit each. `ALL` is all of them and counts before single
/// names, so that single ones can be taken from all or added to none; a name that is both added and
/// dropped is dropped.
///
/// # Errors
///
/// When a name is no capability.
pub fn capabilities(add: &[String], drop: &[String]) -> Result<u64, UnknownCapability> {
    let (add_all, added) = named(add)?;
    let (drop_all, dropped) = named(drop)?;
    let mut kept = if add_all { ALL_CAPABILITIES } else { default_capabilities() };
    if drop_all {
        kept = 0;
    }
    kept |= added;
    kept &= !dropped;
    Ok(kept)
}

/// Those that a container has by default.
#[must_use]
pub fn default_capabilities() -> u64 {
    DEFAULT.iter().filter_map(|name| bit(name)).fold(0, |all, bit| all | bit)
}

/// The bit of a capability by its name, with or without `CAP_`.
#[must_use]
pub fn capability(name: &str) -> Option<u64> {
    let upper = name.to_ascii_uppercase();
    bit(upper.strip_prefix("CAP_").unwrap_or(&upper))
}

fn named(names: &[String]) -> Result<(bool, u64), UnknownCapability> {
    let mut found = (false, 0);
    for name in names {
        let upper = name.to_ascii_uppercase();
        let plain = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if plain == "ALL" {
            found.0 = true;
        } else {
            found.1 |= bit(plain).ok_or_else(|| UnknownCapability(name.clone()))?;
        }
    }
    Ok(found)
}

fn bit(name: &str) -> Option<u64> {
    CAPABILITIES.iter().position(|it| *it == name).map(|at| 1 << at)
}

/// The file systems of the kernel that every container has, in the order in which they are mounted.
#[must_use]
pub fn kernel_mounts() -> Vec<Mount> {
    let mount = |target: &str, kind: Kernel| Mount {
        target: target.to_owned(),
        source: Some(Source::Kernel(kind.into())),
        nosuid: true,
        noexec: true,
        nodev: !matches!(kind, Kernel::Dev | Kernel::Devpts),
        ..Mount::default()
    };
    vec![
        mount("/proc", Kernel::Proc),
        // Programs may be executed from `/dev`, as they always could.
        Mount { noexec: false, ..mount("/dev", Kernel::Dev) },
        mount("/dev/pts", Kernel::Devpts),
        mount("/dev/mqueue", Kernel::Mqueue),
        Mount { readonly: Readonly::Yes.into(), ..mount("/sys", Kernel::Sysfs) },
        mount("/dev/shm", Kernel::Shm),
    ]
}

/// The devices that every container has.
#[must_use]
pub fn devices() -> Vec<Device> {
    let nodes = [
        ("null", 1, 3),
        ("zero", 1, 5),
        ("full", 1, 7),
        ("random", 1, 8),
        ("urandom", 1, 9),
        ("tty", 5, 0),
    ];
    let device = |(name, major, minor)| Device {
        path: format!("/dev/{name}"),
        major,
        minor,
        mode: 0o666,
        ..Device::default()
    };
    nodes.map(device).to_vec()
}

/// The devices that every container may open: its own, terminals, and any node may be made, because
/// making one opens nothing.
#[must_use]
pub fn device_rules() -> Vec<DeviceRule> {
    let mknod = Access { read: false, write: false, mknod: true };
    let rule =
        |major, minor| DeviceRule { kind: Kind::Character, major: Some(major), minor, access: ALL };
    let mut rules = vec![DeviceRule { kind: Kind::Any, major: None, minor: None, access: mknod }];
    rules.extend(devices().iter().map(|it| rule(it.major, Some(it.minor))));
    // The console, the multiplexer of terminals, and terminals.
    rules.extend([rule(5, Some(1)), rule(5, Some(2)), rule(136, None)]);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn capabilities_are_added_and_dropped() {
        let default = 0xa804_25fb;
        let net_admin = 1 << 12;
        let cases: [(&[&str], &[&str], u64); 7] = [
            (&[], &[], default),
            (&["NET_ADMIN"], &[], default | net_admin),
            (&["cap_net_admin"], &["CAP_CHOWN"], (default | net_admin) & !1),
            (&[], &["ALL"], 0),
            (&["NET_ADMIN"], &["ALL"], net_admin),
            (&["ALL"], &[], (1 << 41) - 1),
            (&["ALL"], &["NET_ADMIN"], ((1 << 41) - 1) & !net_admin),
        ];
        for (add, drop, expected) in cases {
            assert_eq!(capabilities(&names(add), &names(drop)), Ok(expected), "{add:?} {drop:?}");
        }
        let unknown = capabilities(&names(&["NET_ADMINISTRATOR"]), &[]);
        assert_eq!(unknown, Err(UnknownCapability("NET_ADMINISTRATOR".into())));
    }

    #[test]
    fn a_container_may_open_its_own_devices_and_make_any_node() {
        let rules = device_rules();
        assert_eq!(rules.len(), 1 + devices().len() + 3);
        assert_eq!(rules[0].access, Access { read: false, write: false, mknod: true });
        assert!(rules[1..].iter().all(|it| it.kind == Kind::Character && it.major.is_some()));
    }

    #[test]
    fn what_is_mounted_below_comes_later() {
        let mounts = kernel_mounts();
        let targets: Vec<&str> = mounts.iter().map(|it| it.target.as_str()).collect();
        let expected = ["/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys", "/dev/shm"];
        assert_eq!(targets, expected);
    }
}
