//! A profile as a program of classic BPF.
//!
//! The kernel runs a filter for every number when it is loaded, so numbers are found by a balanced
//! tree over ranges. Code is put together from pieces whose jumps all stay inside, so that a piece
//! can be anywhere:
//!
//! ```text
//!  load architecture
//!  is it x86_64? ── tree: number ≥ 200? ─┬─ tree of those below
//!  is it i386?                           └─ tree of the others ── leaf: return, or look at arguments
//!  end the process
//! ```

use thiserror::Error;

use crate::profile::{Action, Comparison, Condition, Profile};
use crate::table::{self, Decision};

/// The most instructions that the kernel takes.
const MOST: usize = 4096;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
const JUMP_IF_NOT_LESS: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Where the kernel puts what a filter looks at.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// A program for the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Eight bytes an instruction, as the kernel takes them.
    pub program: Vec<u8>,
    /// The flags that it is loaded with.
    pub flags: u32,
}

/// A profile that no program of the kernel's size can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the profile needs {0} instructions, the kernel takes {MOST}")]
pub struct TooLarge(pub usize);

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

type Code = Vec<Instruction>;

impl Profile {
    /// The filter that does what this profile says.
    ///
    /// # Errors
    ///
    /// When the kernel would not take it.
    pub fn compile(&self) -> Result<Filter, TooLarge> {
        let mut code = vec![plain(LOAD, ARCHITECTURE)];
        for (audit, ranges) in table::ranges(self) {
            let mut part = vec![plain(LOAD, NUMBER)];
            part.extend(tree(&ranges));
            code.extend(branch(JUMP_IF_EQUAL, audit, part));
        }
        code.push(answer(Action::KillProcess));
        if code.len() > MOST {
            return Err(TooLarge(code.len()));
        }
        Ok(Filter { program: code.iter().flat_map(encode).collect(), flags: self.flags })
    }
}

fn encode(it: &Instruction) -> [u8; 8] {
    let (code, value) = (it.code.to_ne_bytes(), it.value.to_ne_bytes());
    [code[0], code[1], it.if_true, it.if_false, value[0], value[1], value[2], value[3]]
}

fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, value }
}

fn answer(action: Action) -> Instruction {
    plain(RETURN, action.code())
}

/// `then` if the comparison holds, and whatever follows if not. A jump over much code is an
/// instruction of its own.
fn branch(code: u16, value: u32, then: Code) -> Code {
    let mut all = match u8::try_from(then.len()) {
        Ok(length) => vec![Instruction { code, if_true: 0, if_false: length, value }],
        Err(_) => vec![
            Instruction { code, if_true: 1, if_false: 0, value },
            plain(JUMP, u32::try_from(then.len()).unwrap_or(u32::MAX)),
        ],
    };
    all.extend(then);
    all
}

/// With a number loaded, what happens to it.
fn tree(ranges: &[(u32, Decision)]) -> Code {
    match ranges {
        [] => vec![answer(Action::KillProcess)],
        [(_, decision)] => leaf(decision),
        several => {
            let (below, above) = several.split_at(several.len() / 2);
            let mut all = branch(JUMP_IF_NOT_LESS, above[0].0, tree(above));
            all.extend(tree(below));
            all
        }
    }
}

fn leaf(decision: &Decision) -> Code {
    let mut all = Code::new();
    for (conditions, action) in &decision.cases {
        let mut case = vec![answer(*action)];
        for condition in conditions.iter().rev() {
            case = test(*condition, case);
        }
        all.extend(case);
    }
    all.push(answer(decision.otherwise));
    all
}

/// `then` if the condition holds, and whatever follows if not. An argument is two words, the lower
/// one first.
fn test(Condition { argument, comparison }: Condition, then: Code) -> Code {
    let low = ARGUMENTS + 8 * u32::from(argument);
    let halves = |value: u64| {
        let half = |it: u64| u32::try_from(it & 0xffff_ffff).unwrap_or(u32::MAX);
        (half(value >> 32), half(value))
    };
    let load = |at: u32, rest: Code| {
        let mut all = vec![plain(LOAD, at)];
        all.extend(rest);
        all
    };
    match comparison {
        Comparison::Equal(value) => {
            let (upper, lower) = halves(value);
            let rest = load(low, branch(JUMP_IF_EQUAL, lower, then));
            load(low + 4, branch(JUMP_IF_EQUAL, upper, rest))
        }
        Comparison::NotEqual(value) => unless(test_equal(argument, value), then),
        Comparison::Greater(value) => ordered(low, halves(value), JUMP_IF_GREATER, then),
        Comparison::GreaterOrEqual(value) => ordered(low, halves(value), JUMP_IF_NOT_LESS, then),
        Comparison::Less(value) => {
            let not = Comparison::GreaterOrEqual(value);
            unless(|then| test(Condition { argument, comparison: not }, then), then)
        }
        Comparison::LessOrEqual(value) => {
            let not = Comparison::Greater(value);
            unless(|then| test(Condition { argument, comparison: not }, then), then)
        }
        Comparison::MaskedEqual { mask, value } => {
            let ((mask_upper, mask_lower), (upper, lower)) = (halves(mask), halves(value));
            let masked = |at: u32, mask: u32, value: u32, then: Code| {
                let mut all = vec![plain(LOAD, at), plain(AND, mask)];
                all.extend(branch(JUMP_IF_EQUAL, value, then));
                all
            };
            masked(low + 4, mask_upper, upper, masked(low, mask_lower, lower, then))
        }
    }
}

fn test_equal(argument: u8, value: u64) -> impl FnOnce(Code) -> Code {
    let comparison = Comparison::Equal(value);
    move |then| test(Condition { argument, comparison }, then)
}

/// `then` if the condition does not hold.
fn unless(condition: impl FnOnce(Code) -> Code, then: Code) -> Code {
    let over = plain(JUMP, u32::try_from(then.len()).unwrap_or(u32::MAX));
    let mut all = condition(vec![over]);
    all.extend(then);
    all
}

/// `then` if the upper word is greater, or if it is the same and the lower one passes the test.
fn ordered(low: u32, (upper, lower): (u32, u32), code: u16, then: Code) -> Code {
    // The lower word decides if the upper one is neither greater nor less.
    let mut by_lower = vec![plain(LOAD, low)];
    let length = u32::try_from(then.len()).unwrap_or(u32::MAX);
    // On to `then`, which comes after this piece, past the jump that leaves.
    by_lower.extend(branch(code, lower, vec![plain(JUMP, 1)]));
    let leave = plain(JUMP, length);
    let mut all = vec![plain(LOAD, low + 4)];
    let equal = branch(JUMP_IF_EQUAL, upper, by_lower);
    // Greater: past the piece for equal words and past the jump that leaves.
    let past = u32::try_from(equal.len()).unwrap_or(u32::MAX) + 1;
    all.extend(branch(JUMP_IF_GREATER, upper, vec![plain(JUMP, past)]));
    all.extend(equal);
    all.push(leave);
    all.extend(then);
    all
}

#[cfg(test)]
mod tests;
