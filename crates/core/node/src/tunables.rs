//! Settings of the kernel that a node relies on: what they should be, and what to do about one that
//! is not. Pure; whoever reads and writes them is an adapter.

/// One setting of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// Its name as people write it, `vm.overcommit_memory`.
    pub name: &'static str,
    /// What a node needs.
    pub value: i64,
}

/// What a node needs of its kernel, as upstream has it: memory is promised freely because eviction
/// takes care of shortage, a process is killed rather than the machine, and a machine that has
/// failed comes back by itself.
pub const TUNABLES: [Tunable; 6] = [
    Tunable { name: "vm.overcommit_memory", value: 1 },
    Tunable { name: "vm.panic_on_oom", value: 0 },
    Tunable { name: "kernel.panic", value: 10 },
    Tunable { name: "kernel.panic_on_oops", value: 1 },
    Tunable { name: "kernel.keys.root_maxkeys", value: 1_000_000 },
    Tunable { name: "kernel.keys.root_maxbytes", value: 25_000_000 },
];

/// Whether settings that differ are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunablePolicy {
    /// They are.
    Set,
    /// They are left alone, and the agent does not start (`protectKernelDefaults`).
    Protect,
}

/// What to do about one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunablePlan {
    /// It is as it should be.
    Leave,
    /// Write what it should be.
    Set,
    /// Refuse to start, for this reason.
    Refuse(String),
}

/// Decides about one setting with the value that was found.
pub fn plan_tunable(tunable: Tunable, found: i64, policy: TunablePolicy) -> TunablePlan {
    let Tunable { name, value } = tunable;
    match policy {
        _ if found == value => TunablePlan::Leave,
        TunablePolicy::Set => TunablePlan::Set,
        TunablePolicy::Protect => TunablePlan::Refuse(format!(
            "invalid kernel flag: {}, expected value: {value}, actual value: {found}",
            name.replace('.', "/")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_set_or_refused() {
        let [overcommit, ..] = TUNABLES;
        let check = |found: i64, policy: TunablePolicy, expected: TunablePlan| {
            assert_eq!(plan_tunable(overcommit, found, policy), expected, "{found} {policy:?}");
        };
        check(1, TunablePolicy::Set, TunablePlan::Leave);
        check(1, TunablePolicy::Protect, TunablePlan::Leave);
        check(0, TunablePolicy::Set, TunablePlan::Set);
        let why = "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0";
        check(0, TunablePolicy::Protect, TunablePlan::Refuse(why.to_owned()));
    }
}
