//! Damage for whatever reads what others write: manifests, files of the kernel and of earlier lives,
//! frames of clients.
//!
//! ```text
//!  seeds (whole, and taken) ─► damaged ─► a parser ─► no panic, no endless loop, and what the case says
//! ```
//!
//! A parser's case hands its seeds and a check to [`survive`]. Which damage is done follows from a
//! number, so every run can be had again: numbers that once failed are run for ever, and each run
//! adds a fresh one, which is told when it fails. Refuses: judging answers; each case does.
#![forbid(unsafe_code)]

use std::thread;

use fastrand::Rng;

/// Damaged texts for each number.
const N_DAMAGED: usize = 2000;
/// Numbers that are always run: one for the start, and those that once found something.
const NUMBERS: [u64; 1] = [1];
/// Set to a number that was told, to have that run again.
const AGAIN: &str = "FERROLET_DAMAGE";
/// What damage is made of besides the seeds themselves: ends, brackets, signs, and numbers at which
/// arithmetic ends.
const PIECES: [&[u8]; 20] = [
    b"\0",
    b"\xff",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"&a [*a]",
    b"null",
    b"-1",
    b"1e999",
    b"9223372036854775808",
    b"18446744073709551616",
    b"\\040\\",
    "\u{2028}\u{1f600}".as_bytes(),
];

/// Checks every seed as it is, and then damaged.
///
/// # Panics
///
/// When `check` does; which damage it was is written to standard error.
pub fn survive(parser: &str, seeds: &[&[u8]], check: impl Fn(&[u8])) {
    for seed in seeds {
        check(seed);
    }
    let fresh = std::env::var(AGAIN).ok().and_then(|it| it.parse().ok());
    let fresh = fresh.unwrap_or_else(|| fastrand::u64(..));
    for number in NUMBERS.into_iter().chain([fresh]) {
        let mut rng = Rng::with_seed(number);
        for _ in 0..N_DAMAGED {
            let text = damaged(seeds, &mut rng);
            let told = Told { parser, number, text: &text };
            check(&text);
            drop(told);
        }
    }
}

/// Says on the way out of a panic what it was about.
struct Told<'a> {
    parser: &'a str,
    number: u64,
    text: &'a [u8],
}

impl Drop for Told<'_> {
    #[expect(clippy::print_stderr, reason = "the output of a failed test")]
    fn drop(&mut self) {
        if thread::panicking() {
            let Self { parser, number, text } = self;
            eprintln!("{parser}, {AGAIN}={number}: {}", text.escape_ascii());
        }
    }
}

/// A seed with one to four kinds of damage.
fn damaged(seeds: &[&[u8]], rng: &mut Rng) -> Vec<u8> {
    let mut text = one_of(seeds, rng).to_vec();
    for _ in 0..rng.usize(1..=4) {
        let at = rng.usize(0..=text.len());
        let to = rng.usize(at..=text.len()).min(at + 64);
        match rng.u8(0..8) {
            0 => text.truncate(at),
            1 => drop(text.drain(at..to)),
            2 => {
                // Again, as often as a mistake in a loop would write it.
                let piece = text[at..to].repeat(rng.usize(1..=8));
                drop(text.splice(at..at, piece));
            }
            3 if at < text.len() => text[at] ^= 1 << rng.u8(0..8),
            4 if at < text.len() => text[at] = rng.u8(..),
            5 => {
                // The end of another one.
                let other = one_of(seeds, rng);
                let from = rng.usize(0..=other.len());
                text.truncate(at);
                text.extend_from_slice(&other[from..]);
            }
            _ => drop(text.splice(at..at, one_of(&PIECES, rng).iter().copied())),
        }
    }
    text
}

fn one_of<'a>(all: &[&'a [u8]], rng: &mut Rng) -> &'a [u8] {
    all[rng.usize(0..all.len())]
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_number_does_the_same_damage_again_and_each_seed_is_seen_whole() {
        let seen = RefCell::new(Vec::new());
        let seeds: [&[u8]; 2] = [b"one: 1", b"two: [2]"];
        survive("a list", &seeds, |text| seen.borrow_mut().push(text.to_vec()));
        let seen = seen.into_inner();
        assert_eq!(seen[..2], seeds);
        assert_eq!(seen.len(), 2 + N_DAMAGED * (NUMBERS.len() + 1));
        let mut rng = Rng::with_seed(NUMBERS[0]);
        assert!(seen[2..].iter().take(N_DAMAGED).all(|it| *it == damaged(&seeds, &mut rng)));
        let n_whole = seen.iter().filter(|it| seeds.contains(&it.as_slice())).count();
        assert!(n_whole < seen.len() / 10, "{n_whole} are not damaged at all");
    }

    #[test]
    fn a_parser_that_panics_fails() {
        let careless = |text: &[u8]| assert!(text.iter().all(u8::is_ascii), "not ASCII");
        let survived = catch_unwind(AssertUnwindSafe(|| {
            survive("a careless one", &[b"abc"], careless);
        }));
        assert!(survived.is_err());
    }
}
