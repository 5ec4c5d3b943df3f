//! Programs are run as the kernel runs them, and compared with what the profile says when it is read
//! rule by rule.

use proptest::prelude::*;

use super::*;
use crate::profile::Rule;
use crate::syscalls::{self, Arch, X32_BIT};

/// What the kernel shows a filter.
#[derive(Debug, Clone, Copy)]
struct Call {
    audit: u32,
    number: u32,
    arguments: [u64; 6],
}

/// What the kernel does with a program.
fn run(filter: &Filter, call: Call) -> u32 {
    let (instructions, rest) = filter.program.as_chunks::<8>();
    assert!(rest.is_empty());
    let mut data = [0_u8; 64];
    data[..4].copy_from_slice(&call.number.to_ne_bytes());
    data[4..8].copy_from_slice(&call.audit.to_ne_bytes());
    for (at, argument) in call.arguments.iter().enumerate() {
        data[16 + 8 * at..][..8].copy_from_slice(&argument.to_le_bytes());
    }
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let [c0, c1, if_true, if_false, value @ ..] = instructions[at];
        let value = u32::from_ne_bytes(value);
        at += 1;
        let mut jump = |is_so: bool| at += usize::from(if is_so { if_true } else { if_false });
        match u16::from_ne_bytes([c0, c1]) {
            LOAD => {
                let word = &data[usize::try_from(value).unwrap()..][..4];
                accumulator = u32::from_ne_bytes(word.try_into().unwrap());
            }
            AND => accumulator &= value,
            JUMP => at += usize::try_from(value).unwrap(),
            JUMP_IF_EQUAL => jump(accumulator == value),
            JUMP_IF_GREATER => jump(accumulator > value),
            JUMP_IF_NOT_LESS => jump(accumulator >= value),
            RETURN => return value,
            other => panic!("{other:x}"),
        }
    }
}

fn holds(condition: &Condition, arguments: &[u64; 6]) -> bool {
    let argument = arguments[usize::from(condition.argument)];
    match condition.comparison {
        Comparison::NotEqual(value) => argument != value,
        Comparison::Less(value) => argument < value,
        Comparison::LessOrEqual(value) => argument <= value,
        Comparison::Equal(value) => argument == value,
        Comparison::GreaterOrEqual(value) => argument >= value,
        Comparison::Greater(value) => argument > value,
        Comparison::MaskedEqual { mask, value } => argument & mask == value,
    }
}

/// What a profile says about a call, read rule by rule.
fn read(profile: &Profile, call: Call) -> Action {
    let has = |arch| profile.arches.contains(&arch);
    let arch = match call.audit {
        0xc000_003e if call.number == u32::MAX => Arch::X8664,
        0xc000_003e if call.number >= X32_BIT => Arch::X32,
        0xc000_003e => Arch::X8664,
        0x4000_0003 => Arch::X86,
        0xc000_00b7 => Arch::Aarch64,
        0x4000_0028 => Arch::Arm,
        _ => return Action::KillProcess,
    };
    if call.number == u32::MAX && call.audit == 0xc000_003e {
        let is_known = has(Arch::X8664) || has(Arch::X32);
        return if is_known { unknown(profile) } else { Action::KillProcess };
    }
    if !has(arch) {
        return Action::KillProcess;
    }
    let about = |rule: &Rule| rule.names.iter().any(|it| arch.number(it) == Some(call.number));
    let rules: Vec<&Rule> = profile.rules.iter().filter(|it| about(it)).collect();
    if let Some(rule) = rules.iter().find(|it| it.conditions.is_empty()) {
        return rule.action;
    }
    let fits = |rule: &&&Rule| rule.conditions.iter().all(|it| holds(it, &call.arguments));
    if let Some(rule) = rules.iter().find(fits) {
        return rule.action;
    }
    let named = profile.rules.iter().flat_map(|it| &it.names);
    let last = named.filter_map(|it| arch.number(it)).max();
    if last.is_some_and(|it| call.number <= it) { profile.default } else { unknown(profile) }
}

fn unknown(profile: &Profile) -> Action {
    match profile.default {
        open @ (Action::Allow | Action::Log | Action::Trace(_)) => open,
        _ => Action::Errno(38),
    }
}

const AUDIT: [u32; 5] = [0xc000_003e, 0x4000_0003, 0xc000_00b7, 0x4000_0028, 7];

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::KillProcess),
        Just(Action::KillThread),
        Just(Action::Trap),
        (0..4096_u16).prop_map(Action::Errno),
        (0..4096_u16).prop_map(Action::Trace),
        Just(Action::Log),
        Just(Action::Allow),
    ]
}

/// Values near one another, in both halves.
fn word() -> impl Strategy<Value = u64> {
    (0..3_u64, 0..3_u64, any::<bool>()).prop_map(|(upper, lower, is_far)| {
        let value = upper << 32 | lower;
        if is_far { u64::MAX - value } else { value }
    })
}

fn condition() -> impl Strategy<Value = Condition> {
    (0..6_u8, 0..7_u8, word(), word()).prop_map(|(argument, kind, value, mask)| Condition {
        argument,
        comparison: match kind {
            0 => Comparison::NotEqual(value),
            1 => Comparison::Less(value),
            2 => Comparison::LessOrEqual(value),
            3 => Comparison::Equal(value),
            4 => Comparison::GreaterOrEqual(value),
            5 => Comparison::Greater(value),
            _ => Comparison::MaskedEqual { mask, value: value & mask },
        },
    })
}

/// Names that are not reached through another call, so that [`read`] need not know of those.
fn name() -> impl Strategy<Value = String> {
    let plain = |it: &&str| {
        let other = ["sem", "msg", "shm", "recv", "send", "socket", "ipc", "accept", "bind"];
        let more = ["connect", "listen", "getsock", "setsock", "getpeer", "shutdown"];
        // Two names of one number.
        !other.iter().chain(&more).any(|start| it.starts_with(start)) && !it.contains("sync_file")
    };
    let names: Vec<&str> = syscalls::names().filter(plain).collect();
    proptest::sample::select(names).prop_map(str::to_owned)
}

fn profile() -> impl Strategy<Value = Profile> {
    let rule = (
        proptest::collection::vec(name(), 0..12),
        action(),
        proptest::collection::vec(condition(), 0..4),
    );
    let rule = rule.prop_map(|(names, action, conditions)| Rule { names, action, conditions });
    let all = vec![Arch::X8664, Arch::X86, Arch::X32, Arch::Aarch64, Arch::Arm];
    (
        action(),
        proptest::sample::subsequence(all, 0..=5),
        proptest::collection::vec(rule, 0..6),
        0..8_u32,
    )
        .prop_map(|(default, arches, rules, flags)| Profile { default, arches, rules, flags })
}

fn call() -> impl Strategy<Value = Call> {
    let number = prop_oneof![
        8 => 0..520_u32,
        2 => (0..560_u32).prop_map(|it| it | X32_BIT),
        1 => 983_040..983_050_u32,
        1 => any::<u32>(),
        1 => Just(u32::MAX),
    ];
    let arguments = proptest::array::uniform6(word());
    (proptest::sample::select(AUDIT.to_vec()), number, arguments)
        .prop_map(|(audit, number, arguments)| Call { audit, number, arguments })
}

proptest! {
    #[test]
    fn a_program_does_what_its_profile_says(
        profile in profile(),
        calls in proptest::collection::vec(call(), 60),
    ) {
        // Many names under one condition are many times its code: that some are refused is tested below.
        let compiled = profile.compile();
        prop_assume!(compiled.is_ok());
        let filter = compiled.unwrap();
        prop_assert_eq!(filter.flags, profile.flags);
        for call in calls {
            prop_assert_eq!(run(&filter, call), read(&profile, call).code(), "{:?}", call);
        }
    }

    #[test]
    fn one_rule_with_many_conditions_is_exact(
        conditions in proptest::collection::vec(condition(), 1..12),
        arguments in proptest::array::uniform6(word()),
    ) {
        let rule = Rule { names: vec!["read".to_owned()], action: Action::Allow, conditions };
        let (default, arches) = (Action::Errno(1), vec![Arch::X8664]);
        let profile = Profile { default, arches, rules: vec![rule], flags: 0 };
        let call = Call { audit: AUDIT[0], number: 0, arguments };
        prop_assert_eq!(run(&profile.compile().unwrap(), call), read(&profile, call).code());
    }
}

/// What the default profile answers: with the container's usual capabilities, or others.
fn by_default(capabilities: u64, audit: u32, number: u32, first: u64) -> u32 {
    let filter = crate::default_profile(Arch::X8664, capabilities).compile().unwrap();
    run(&filter, Call { audit, number, arguments: [first, 0, 0, 0, 0, 0] })
}

#[test]
fn the_default_profile_is_what_it_should_be() {
    let (allow, eperm) = (Action::Allow.code(), Action::Errno(1).code());
    let enosys = Action::Errno(38).code();
    let (usual, admin) = (0xa804_25fb, 1 << 21);
    let (x64, x86) = (AUDIT[0], AUDIT[1]);
    let cases = [
        ((usual, x64, 0, 0), allow),
        ((usual, x64, 165, 0), eperm), // mount
        ((usual | admin, x64, 165, 0), allow),
        ((usual, x64, 56, 17), allow),          // clone(SIGCHLD)
        ((usual, x64, 56, 0x1000_0011), eperm), // clone(CLONE_NEWUSER)
        ((usual | admin, x64, 56, 0x1000_0011), allow),
        ((usual, x64, 435, 0), enosys), // clone3
        ((usual | admin, x64, 435, 0), allow),
        ((usual, x64, 41, 2), allow),  // socket(AF_INET)
        ((usual, x64, 41, 38), eperm), // AF_ALG
        ((usual, x64, 41, 40), eperm), // AF_VSOCK
        ((usual, x64, 41, 39), allow),
        ((usual, x64, 41, 1 << 32 | 38), eperm), // AF_ALG again, to the kernel
        ((usual, x64, 135, 0xffff_ffff), allow), // personality
        ((usual, x64, 135, 0x40_0000), eperm),
        ((usual, x64, 425, 0), eperm),  // io_uring_setup
        ((usual, x64, 470, 0), enosys), // listns
        ((usual, x64, 5000, 0), enosys),
        ((usual, x64, X32_BIT, 0), allow), // read, of x32
        ((usual, x64, X32_BIT | 165, 0), eperm),
        ((usual, x64, X32_BIT | 5000, 0), enosys),
        ((usual, x86, 3, 0), allow),    // read
        ((usual, x86, 21, 0), eperm),   // mount
        ((usual, x86, 359, 38), eperm), // socket(AF_ALG)
        ((usual, 7, 0, 0), Action::KillProcess.code()),
    ];
    for ((capabilities, audit, number, first), expected) in cases {
        let seen = by_default(capabilities, audit, number, first);
        assert_eq!(seen, expected, "{capabilities:x} {audit:x} {number} {first:x}: {seen:x}");
    }
}

#[test]
fn the_default_programs_are_small() {
    for arch in [Arch::X8664, Arch::Aarch64] {
        let n = crate::default_profile(arch, 0xa804_25fb).compile().unwrap().program.len() / 8;
        println!("{arch:?}: {n} instructions");
        assert!(n < 1000, "{arch:?}: {n}");
    }
}

#[test]
fn sockets_and_ipc_are_closed_by_their_other_name_too() {
    let rule = |name: &str, conditions| Rule {
        names: vec![name.to_owned()],
        action: Action::Errno(13),
        conditions,
    };
    let third = Condition { argument: 2, comparison: Comparison::Equal(1) };
    let profile = Profile {
        default: Action::Allow,
        arches: vec![Arch::X8664, Arch::X86],
        rules: vec![rule("socket", Vec::new()), rule("bind", vec![third]), rule("shmat", vec![])],
        flags: 0,
    };
    let filter = profile.compile().unwrap();
    let answer = |number, first| {
        run(&filter, Call { audit: AUDIT[1], number, arguments: [first, 0, 0, 0, 0, 0] })
    };
    let (refused, allowed) = (Action::Errno(13).code(), Action::Allow.code());
    let (socketcall, ipc) = (102, 117);
    assert_eq!((answer(socketcall, 1), answer(socketcall, 2)), (refused, refused));
    assert_eq!((answer(socketcall, 3), answer(ipc, 21)), (allowed, refused));
    // A version in the upper half is the same call.
    assert_eq!((answer(ipc, 1 << 16 | 21), answer(ipc, 22)), (refused, allowed));
}

#[test]
fn what_the_kernel_would_not_take_is_refused() {
    let name = |at: usize| syscalls::names().nth(at % 400).unwrap().to_owned();
    let rules = (0..900_usize).map(|at| Rule {
        names: vec![name(at)],
        action: Action::Allow,
        conditions: vec![
            Condition { argument: 0, comparison: Comparison::Less(at as u64) },
            Condition { argument: 1, comparison: Comparison::Equal(at as u64) },
        ],
    });
    let arches = vec![Arch::X8664];
    let profile = Profile { default: Action::Trap, arches, rules: rules.collect(), flags: 0 };
    assert!(matches!(profile.compile(), Err(TooLarge(n)) if n > 4096));
}
