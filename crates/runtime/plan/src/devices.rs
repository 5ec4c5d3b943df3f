//! Which devices a container may open: lines for version 1, a program for version 2.
//!
//! Everything is refused but what a rule allows.

/// What may be done with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Open it to read.
    pub read: bool,
    /// Open it to write.
    pub write: bool,
    /// Make its node.
    pub mknod: bool,
}

/// Kinds of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Character devices.
    Character,
    /// Block devices.
    Block,
    /// Both.
    Any,
}

/// Devices that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRule {
    /// Which kind.
    pub kind: Kind,
    /// The major number; none: any.
    pub major: Option<u32>,
    /// The minor number; none: any.
    pub minor: Option<u32>,
    /// What may be done.
    pub access: Access,
}

/// Reading, writing and making nodes.
pub const ALL: Access = Access { read: true, write: true, mknod: true };

/// The rules as version 1's `devices.allow` takes them.
pub(crate) fn lines(rules: &[DeviceRule]) -> Vec<String> {
    rules.iter().flat_map(line).collect()
}

fn line(rule: &DeviceRule) -> Vec<String> {
    let number = |it: Option<u32>| it.map_or("*".to_owned(), |it| it.to_string());
    let flag = |is_set: bool, letter: &'static str| if is_set { letter } else { "" };
    let access = rule.access;
    let access =
        [flag(access.read, "r"), flag(access.write, "w"), flag(access.mknod, "m")].concat();
    let kinds: &[&str] = match rule.kind {
        Kind::Character => &["c"],
        Kind::Block => &["b"],
        // `a` would mean everything, whatever the numbers.
        Kind::Any => &["c", "b"],
    };
    let numbers = format!("{}:{}", number(rule.major), number(rule.minor));
    kinds.iter().map(|kind| format!("{kind} {numbers} {access}")).collect()
}

/// One instruction of the kernel's extended BPF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// Destination register, and source register in the upper half.
    registers: u8,
    offset: i16,
    value: i32,
}

const LOAD_WORD: u8 = 0x61;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const AND: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const JUMP_UNLESS_EQUAL: u8 = 0x55;
const JUMP_UNLESS_EQUAL_REGISTER: u8 = 0x5d;
const EXIT: u8 = 0x95;

/// The kernel's numbers: what is asked in the upper half of a word, which kind in the lower.
const MKNOD: i32 = 1;
const READ: i32 = 2;
const WRITE: i32 = 4;
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;

/// The rules as a program for `BPF_PROG_TYPE_CGROUP_DEVICE`: 1 allows, 0 refuses.
pub(crate) fn program(rules: &[DeviceRule]) -> Vec<u8> {
    let instruction =
        |code, registers, offset, value| Instruction { code, registers, offset, value };
    // r1 is the context: a word of access and kind, the major and the minor number.
    let mut program = vec![
        instruction(LOAD_WORD, 0x12, 0, 0),
        instruction(AND, 0x02, 0, 0xffff),
        instruction(LOAD_WORD, 0x13, 0, 0),
        instruction(SHIFT_RIGHT, 0x03, 0, 16),
        instruction(LOAD_WORD, 0x14, 4, 0),
        instruction(LOAD_WORD, 0x15, 8, 0),
    ];
    for rule in rules {
        let mut tests = Vec::new();
        match rule.kind {
            Kind::Character => tests.push(instruction(JUMP_UNLESS_EQUAL, 0x02, 0, CHARACTER)),
            Kind::Block => tests.push(instruction(JUMP_UNLESS_EQUAL, 0x02, 0, BLOCK)),
            Kind::Any => {}
        }
        for (register, number) in [(0x04, rule.major), (0x05, rule.minor)] {
            if let Some(number) = number {
                let number = number.cast_signed();
                tests.push(instruction(JUMP_UNLESS_EQUAL, register, 0, number));
            }
        }
        let access = rule.access;
        if access != ALL {
            let bit = |is_set: bool, bit: i32| if is_set { bit } else { 0 };
            let allowed =
                bit(access.read, READ) | bit(access.write, WRITE) | bit(access.mknod, MKNOD);
            // What is asked is what is asked and allowed.
            tests.push(instruction(MOVE_REGISTER, 0x31, 0, 0));
            tests.push(instruction(AND, 0x01, 0, allowed));
            tests.push(instruction(JUMP_UNLESS_EQUAL_REGISTER, 0x31, 0, 0));
        }
        // From each test past the two instructions that allow.
        let n_tests = tests.len();
        for (at, mut test) in tests.into_iter().enumerate() {
            if matches!(test.code, JUMP_UNLESS_EQUAL | JUMP_UNLESS_EQUAL_REGISTER) {
                test.offset = i16::try_from(n_tests - at + 1).unwrap_or(i16::MAX);
            }
            program.push(test);
        }
        program.push(instruction(MOVE, 0x00, 0, 1));
        program.push(instruction(EXIT, 0, 0, 0));
    }
    program.push(instruction(MOVE, 0x00, 0, 0));
    program.push(instruction(EXIT, 0, 0, 0));
    program.iter().flat_map(encode).collect()
}

fn encode(it: &Instruction) -> [u8; 8] {
    let offset = it.offset.to_ne_bytes();
    let value = it.value.to_ne_bytes();
    [it.code, it.registers, offset[0], offset[1], value[0], value[1], value[2], value[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(kind: Kind, major: Option<u32>, minor: Option<u32>, access: Access) -> DeviceRule {
        DeviceRule { kind, major, minor, access }
    }

    fn rules() -> Vec<DeviceRule> {
        let read = Access { read: true, write: false, mknod: false };
        let mknod = Access { read: false, write: false, mknod: true };
        vec![
            rule(Kind::Character, Some(1), Some(3), ALL),
            rule(Kind::Block, Some(8), None, read),
            rule(Kind::Any, None, None, mknod),
        ]
    }

    /// What the kernel would do with such a program.
    fn run(program: &[u8], kind: i32, access: i32, major: u32, minor: u32) -> u64 {
        let context = [(access << 16 | kind).cast_unsigned(), major, minor];
        let mut registers = [0_u64; 6];
        let (instructions, _) = program.as_chunks::<8>();
        let mut at = 0;
        loop {
            let [code, both, o0, o1, value @ ..] = instructions[at];
            let offset = i16::from_ne_bytes([o0, o1]);
            let value = i64::from(i32::from_ne_bytes(value)).cast_unsigned();
            let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
            at += 1;
            match code {
                LOAD_WORD => {
                    registers[to] =
                        context[usize::try_from(offset).expect("jumps go forward") / 4].into();
                }
                MOVE => registers[to] = value,
                MOVE_REGISTER => registers[to] = registers[from],
                AND => registers[to] &= value,
                SHIFT_RIGHT => registers[to] >>= value,
                JUMP_UNLESS_EQUAL if registers[to] != value => {
                    at += usize::try_from(offset).expect("jumps go forward");
                }
                JUMP_UNLESS_EQUAL_REGISTER if registers[to] != registers[from] => {
                    at += usize::try_from(offset).expect("jumps go forward");
                }
                JUMP_UNLESS_EQUAL | JUMP_UNLESS_EQUAL_REGISTER => {}
                EXIT => return registers[0],
                other => panic!("{other:x}"),
            }
        }
    }

    #[test]
    fn lines_are_version_ones() {
        let expected = ["c 1:3 rwm", "b 8:* r", "c *:* m", "b *:* m"];
        assert_eq!(lines(&rules()), expected);
    }

    #[test]
    fn a_program_allows_what_a_rule_allows_and_nothing_else() {
        let program = program(&rules());
        let cases = [
            ((CHARACTER, READ | WRITE, 1, 3), 1),
            ((CHARACTER, READ | WRITE | MKNOD, 1, 3), 1),
            ((CHARACTER, READ, 1, 5), 0),
            ((BLOCK, READ, 8, 1), 1),
            ((BLOCK, READ | WRITE, 8, 1), 0),
            ((BLOCK, READ, 9, 1), 0),
            ((BLOCK, READ, 1, 3), 0),
            ((CHARACTER, MKNOD, 250, 9), 1),
            ((CHARACTER, MKNOD | WRITE, 250, 9), 0),
        ];
        for ((kind, access, major, minor), expected) in cases {
            let seen = run(&program, kind, access, major, minor);
            assert_eq!(seen, expected, "{kind} {access} {major}:{minor}");
        }
        assert_eq!(run(&super::program(&[]), CHARACTER, READ, 1, 3), 0);
    }
}
