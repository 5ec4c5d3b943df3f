//! The profile of containers that ask for the runtime's default.
//!
//! Calls that this code knows are open unless a group below closes them; what it does not know is
//! not there (ENOSYS). A group is opened by any of its capabilities, because whoever has one was
//! meant to use it. Compared call by call with containerd's from outside: see `tests/real/seccomp.rs`
//! of the monitor.

use crate::profile::{Action, Comparison, Condition, Profile, Rule};
use crate::syscalls::{self, Arch};

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;
const SPEC_ALLOW: u32 = 4;

/// The kernel's numbers of capabilities.
const DAC_READ_SEARCH: u32 = 2;
const SYS_MODULE: u32 = 16;
const SYS_RAWIO: u32 = 17;
const SYS_CHROOT: u32 = 18;
const SYS_PTRACE: u32 = 19;
const SYS_PACCT: u32 = 20;
const SYS_ADMIN: u32 = 21;
const SYS_BOOT: u32 = 22;
const SYS_NICE: u32 = 23;
const SYS_TIME: u32 = 25;
const SYS_TTY_CONFIG: u32 = 26;
const SYSLOG: u32 = 34;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// Calls that are closed unless the container has one of some capabilities.
struct Group {
    capabilities: &'static [u32],
    names: &'static [&'static str],
}

/// What is closed. Groups without capabilities stay closed.
const CLOSED: [Group; 21] = [
    // Namespaces: new ones, and those of others.
    Group { capabilities: &[SYS_ADMIN], names: &["setns", "unshare"] },
    // Mounts.
    Group {
        capabilities: &[SYS_ADMIN],
        names: &[
            "fsconfig",
            "fsmount",
            "fsopen",
            "fspick",
            "mount",
            "mount_setattr",
            "move_mount",
            "open_tree",
            "open_tree_attr",
            "umount",
            "umount2",
        ],
    },
    // The root of all processes: with the above there is no need for it.
    Group { capabilities: &[], names: &["pivot_root"] },
    Group { capabilities: &[SYS_CHROOT], names: &["chroot"] },
    // The names of the machine.
    Group { capabilities: &[SYS_ADMIN], names: &["setdomainname", "sethostname"] },
    // Files past their directories, and watching whole file systems.
    Group { capabilities: &[DAC_READ_SEARCH], names: &["open_by_handle_at"] },
    Group { capabilities: &[SYS_ADMIN], names: &["fanotify_init", "lookup_dcookie"] },
    // The kernel itself.
    Group { capabilities: &[SYS_MODULE], names: &["delete_module", "finit_module", "init_module"] },
    Group { capabilities: &[], names: &["kexec_file_load", "kexec_load"] },
    Group { capabilities: &[SYS_BOOT], names: &["reboot"] },
    Group { capabilities: &[SYS_ADMIN, SYSLOG], names: &["syslog"] },
    // The clock of the machine.
    Group {
        capabilities: &[SYS_TIME],
        names: &["clock_settime", "clock_settime64", "settimeofday", "stime"],
    },
    // Keys are not in namespaces.
    Group { capabilities: &[], names: &["add_key", "keyctl", "request_key"] },
    // Programs in the kernel, and its counters.
    Group { capabilities: &[SYS_ADMIN, BPF], names: &["bpf"] },
    Group { capabilities: &[SYS_ADMIN, PERFMON], names: &["perf_event_open"] },
    // Looking into other processes, past what tracing one's own needs.
    Group { capabilities: &[SYS_PTRACE], names: &["kcmp", "pidfd_getfd", "process_madvise"] },
    // Raw access to hardware, the terminal of others, accounting.
    Group { capabilities: &[SYS_RAWIO], names: &["ioperm", "iopl"] },
    Group { capabilities: &[SYS_TTY_CONFIG], names: &["vhangup"] },
    Group { capabilities: &[SYS_PACCT], names: &["acct"] },
    // Where memory is.
    Group {
        capabilities: &[SYS_NICE],
        names: &["get_mempolicy", "mbind", "set_mempolicy", "set_mempolicy_home_node"],
    },
    Group { capabilities: &[SYS_ADMIN], names: &["quotactl", "quotactl_fd"] },
];

/// Closed whatever a container has: each has been the way into kernels, or is of no use in one.
const NEVER: [&str; 15] = [
    // Swap, and moving the memory of others.
    "migrate_pages",
    "move_pages",
    "swapoff",
    "swapon",
    // A second way to make most calls, which no filter sees.
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    // Stops the kernel in the middle of reading memory.
    "userfaultfd",
    // Buses of old machines, and modes of old processors.
    "pciconfig_iobase",
    "pciconfig_read",
    "pciconfig_write",
    "vm86",
    "vm86old",
    "nfsservctl",
    "uselib",
];

/// Superseded for decades: nothing that runs in a container calls them.
const OBSOLETE: [&str; 39] = [
    "_sysctl",
    "afs_syscall",
    "bdflush",
    "break",
    "create_module",
    "ftime",
    "get_kernel_syms",
    "get_tls",
    "getpmsg",
    "gtty",
    "idle",
    "lock",
    "mpx",
    "nice",
    "oldfstat",
    "oldlstat",
    "oldolduname",
    "oldstat",
    "olduname",
    "prof",
    "profil",
    "putpmsg",
    "query_module",
    "readdir",
    "security",
    "sgetmask",
    "sigaction",
    "signal",
    "sigpending",
    "sigsuspend",
    "ssetmask",
    "stty",
    "sysfs",
    "tuxcall",
    "ulimit",
    "usr26",
    "usr32",
    "ustat",
    "vserver",
];

/// Newer than anything that was looked at: as if they were not there.
const TOO_NEW: [&str; 4] = ["file_getattr", "file_setattr", "listns", "rseq_slice_yield"];

/// Flags of `clone` that make namespaces: cgroup, uts, ipc, user, pid, net, mount.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// Linux, with and without one of two harmless flags, and the question what it is.
const PERSONALITIES: [u64; 5] = [0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];
/// The kernel's own cryptography, and virtual machines' own network.
const AF_ALG: u64 = 38;
const AF_VSOCK: u64 = 40;
/// The last address family that there is.
const AF_MCTP: u64 = 45;

/// Calls whose arguments, or whose very number, decide.
const SPECIAL: [&str; 4] = ["clone", "clone3", "personality", "socket"];

/// The default profile for a container with these capabilities, one bit each, on a node.
#[must_use]
pub fn profile(native: Arch, capabilities: u64) -> Profile {
    let has = |number: &u32| capabilities >> number & 1 == 1;
    let rule = |names: Vec<String>, action| Rule { names, action, conditions: Vec::new() };
    let texts = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let is_closed = |name: &str| {
        let closed = CLOSED.iter().filter(|it| !it.capabilities.iter().any(has));
        closed.into_iter().any(|it| it.names.contains(&name))
            || NEVER.contains(&name)
            || OBSOLETE.contains(&name)
    };
    let is_apart = |name: &str| SPECIAL.contains(&name) || TOO_NEW.contains(&name);
    let known = syscalls::names().filter(|it| !is_apart(it));
    let (closed, open): (Vec<_>, Vec<_>) = known.partition(|it| is_closed(it));
    let mut rules =
        vec![rule(texts(&open), Action::Allow), rule(texts(&closed), Action::Errno(EPERM))];
    rules.extend(special(has(&SYS_ADMIN)));
    Profile {
        default: Action::Errno(ENOSYS),
        arches: native.with_others(),
        rules,
        flags: SPEC_ALLOW,
    }
}

fn special(may_make_namespaces: bool) -> Vec<Rule> {
    let rule = |name: &str, conditions: Vec<Condition>, action| Rule {
        names: vec![name.to_owned()],
        action,
        conditions,
    };
    let first = |comparison| Condition { argument: 0, comparison };
    let mut rules = Vec::new();
    if may_make_namespaces {
        rules.push(rule("clone", Vec::new(), Action::Allow));
        rules.push(rule("clone3", Vec::new(), Action::Allow));
    } else {
        let makes_none = Comparison::MaskedEqual { mask: NEW_NAMESPACES, value: 0 };
        rules.push(rule("clone", vec![first(makes_none)], Action::Allow));
        // Everything else it asks for.
        let asks = Comparison::GreaterOrEqual(0);
        rules.push(rule("clone", vec![first(asks)], Action::Errno(EPERM)));
        // Its flags are in memory, where no filter sees them. C libraries go back to `clone`.
        rules.push(rule("clone3", Vec::new(), Action::Errno(ENOSYS)));
    }
    for value in PERSONALITIES {
        let it = vec![first(Comparison::Equal(value))];
        rules.push(rule("personality", it, Action::Allow));
    }
    // The kernel looks at the lower half of the argument only: what is not in range is refused.
    let families = [
        Comparison::NotEqual(AF_ALG),
        Comparison::NotEqual(AF_VSOCK),
        Comparison::LessOrEqual(AF_MCTP),
    ];
    rules.push(rule("socket", families.map(first).to_vec(), Action::Allow));
    for name in ["personality", "socket"] {
        let any = vec![first(Comparison::GreaterOrEqual(0))];
        rules.push(rule(name, any, Action::Errno(EPERM)));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_of_a_group_is_a_call_and_is_in_one_group() {
        let known: BTreeSet<&str> = syscalls::names().collect();
        let mut seen = BTreeSet::new();
        let grouped = CLOSED.iter().flat_map(|it| it.names);
        let all = grouped.chain(&NEVER).chain(&OBSOLETE).chain(&TOO_NEW).chain(&SPECIAL);
        for name in all {
            assert!(known.contains(name), "{name}");
            assert!(seen.insert(name), "{name}");
        }
    }

    #[test]
    fn a_capability_opens_its_group() {
        let is_open = |name: &str, capabilities: u64| {
            let profile = profile(Arch::X8664, capabilities);
            profile.rules[0].names.iter().any(|it| it == name)
        };
        let cases = [
            ("mount", SYS_ADMIN, true),
            ("mount", SYS_BOOT, false),
            ("bpf", BPF, true),
            ("bpf", SYS_ADMIN, true),
            ("io_uring_setup", SYS_ADMIN, false),
            ("keyctl", SYS_ADMIN, false),
            ("reboot", SYS_BOOT, true),
            ("read", SYS_BOOT, true),
        ];
        for (name, number, expected) in cases {
            assert_eq!(is_open(name, 1 << number), expected, "{name} {number}");
        }
    }
}
