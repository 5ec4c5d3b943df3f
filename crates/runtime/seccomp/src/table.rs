//! A profile by number: what happens to each call, as ranges of numbers.

use std::collections::BTreeMap;

use crate::profile::{Action, Comparison, Condition, Profile, Rule};
use crate::syscalls::{Arch, X32_BIT};

/// The number of no call: a tracer has had the call passed over.
const SKIPPED: u32 = u32::MAX;
const ENOSYS: u16 = 38;

/// What happens to a call, which may depend on its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The first whose conditions all hold counts.
    pub(crate) cases: Vec<(Vec<Condition>, Action)>,
    pub(crate) otherwise: Action,
}

impl Decision {
    fn always(otherwise: Action) -> Self {
        Self { cases: Vec::new(), otherwise }
    }
}

/// What happens to all numbers of one of the kernel's architectures: from each number up to the
/// next. The first is 0.
pub(crate) type Ranges = Vec<(u32, Decision)>;

/// For each of the kernel's architectures that calls may be of, what happens to them.
pub(crate) fn ranges(profile: &Profile) -> Vec<(u32, Ranges)> {
    let has = |arch| profile.arches.contains(&arch);
    let mut all = Vec::new();
    for arch in [Arch::X8664, Arch::X86, Arch::Aarch64, Arch::Arm] {
        let has_x32 = arch == Arch::X8664 && has(Arch::X32);
        if !has(arch) && !has_x32 {
            continue;
        }
        let mut points = BTreeMap::new();
        part(profile, arch, has(arch), &mut points);
        if arch == Arch::X8664 {
            part(profile, Arch::X32, has_x32, &mut points);
            points.insert(SKIPPED, Decision::always(beyond(profile)));
        }
        let mut ranges: Ranges = points.into_iter().collect();
        ranges.dedup_by(|later, earlier| later.1 == earlier.1);
        all.push((arch.audit(), ranges));
    }
    all
}

/// Puts what happens to an architecture's numbers into `points`, by the first number of each range.
fn part(profile: &Profile, arch: Arch, is_there: bool, points: &mut BTreeMap<u32, Decision>) {
    let first = if arch == Arch::X32 { X32_BIT } else { 0 };
    if !is_there {
        points.insert(first, Decision::always(Action::KillProcess));
        return;
    }
    let decisions = decisions(profile, arch);
    let default = Decision::always(profile.default);
    points.insert(first, default.clone());
    for (number, decision) in &decisions {
        points.insert(*number, decision.clone());
        points.entry(number + 1).or_insert_with(|| default.clone());
    }
    let after = decisions.keys().next_back().map_or(first, |it| it + 1);
    points.insert(after, Decision::always(beyond(profile)));
}

/// What happens to calls that are newer than the profile: programs have another way when they are
/// told that there is no such call, and none when they are refused it. As runc does.
fn beyond(profile: &Profile) -> Action {
    if profile.default.is_open() { profile.default } else { Action::Errno(ENOSYS) }
}

/// Every number that a rule is about.
fn decisions(profile: &Profile, arch: Arch) -> BTreeMap<u32, Decision> {
    let mut rules: BTreeMap<u32, Vec<(Vec<Condition>, Action)>> = BTreeMap::new();
    for rule in &profile.rules {
        for name in &rule.names {
            if let Some(number) = arch.number(name) {
                rules.entry(number).or_default().push((rule.conditions.clone(), rule.action));
            }
            if let Some((number, case)) = multiplexed(arch, name, rule) {
                rules.entry(number).or_default().push(case);
            }
        }
    }
    let decided = |cases: Vec<(Vec<Condition>, Action)>| {
        let plain = cases.iter().find(|(conditions, _)| conditions.is_empty());
        match plain {
            Some((_, action)) => Decision::always(*action),
            None => Decision { cases, otherwise: profile.default },
        }
    };
    rules.into_iter().map(|(number, cases)| (number, decided(cases))).collect()
}

/// On 32 bits of Intel's, calls of sockets and of System V's IPC can also be made as one call, whose
/// first argument says which. The others are behind a pointer, where no filter sees them: a rule
/// that looks at arguments opens nothing there, and closes all.
fn multiplexed(arch: Arch, name: &str, rule: &Rule) -> Option<(u32, (Vec<Condition>, Action))> {
    if arch != Arch::X86 || (!rule.conditions.is_empty() && rule.action.is_open()) {
        return None;
    }
    let find = |names: &[(&str, u64)]| names.iter().find(|it| it.0 == name).map(|it| it.1);
    let (entry, which) = match (find(&SOCKETS), find(&IPC)) {
        (Some(which), _) => ("socketcall", which),
        (None, Some(which)) => ("ipc", which),
        (None, None) => return None,
    };
    // A version is in the upper half of ipc's.
    let comparison = Comparison::MaskedEqual { mask: 0xffff, value: which };
    let comparison = if entry == "ipc" { comparison } else { Comparison::Equal(which) };
    let condition = Condition { argument: 0, comparison };
    Some((arch.number(entry)?, (vec![condition], rule.action)))
}

const SOCKETS: [(&str, u64); 20] = [
    ("socket", 1),
    ("bind", 2),
    ("connect", 3),
    ("listen", 4),
    ("accept", 5),
    ("getsockname", 6),
    ("getpeername", 7),
    ("socketpair", 8),
    ("send", 9),
    ("recv", 10),
    ("sendto", 11),
    ("recvfrom", 12),
    ("shutdown", 13),
    ("setsockopt", 14),
    ("getsockopt", 15),
    ("sendmsg", 16),
    ("recvmsg", 17),
    ("accept4", 18),
    ("recvmmsg", 19),
    ("sendmmsg", 20),
];

const IPC: [(&str, u64); 12] = [
    ("semop", 1),
    ("semget", 2),
    ("semctl", 3),
    ("semtimedop", 4),
    ("msgsnd", 11),
    ("msgrcv", 12),
    ("msgget", 13),
    ("msgctl", 14),
    ("shmat", 21),
    ("shmdt", 22),
    ("shmget", 23),
    ("shmctl", 24),
];
