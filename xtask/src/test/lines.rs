//! What the lines that test programs print mean. Pure.
//!
//! ```text
//! test result: ok. 12 passed; 0 failed; 1 ignored; …     cargo's harness: counts
//! 12 passed, 0 failed, 1 skipped                         ours: counts
//! skipped NAME: reason      [skipped] NAME: reason       a test that could not run; the second is counted as passed by cargo
//! flaky   NAME: reason                                   failed beside others, passed alone
//! ```

/// How many tests ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl Counts {
    pub(super) fn one(is_fine: bool) -> Counts {
        Counts { passed: u64::from(is_fine), failed: u64::from(!is_fine), skipped: 0 }
    }

    pub(super) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// A test and what was said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) test: String,
    pub(super) reason: String,
}

/// One line of a test program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Counts(Counts),
    /// Counted as skipped by the program itself.
    Skipped(Remark),
    /// Counted as passed by cargo's harness, which has no word for it.
    SkippedPassing(Remark),
    Flaky(Remark),
    /// Lists of empty test binaries, which would bury the rest.
    Noise,
    Other,
}

pub(super) fn read(line: &str) -> Line {
    if line.is_empty() || line == "running 0 tests" {
        return Line::Noise;
    }
    if let Some(counts) = unit_counts(line).or_else(|| counts_in(line, ',', "skipped")) {
        return Line::Counts(counts);
    }
    // Cargo's harness may have begun a line of its own.
    if let Some((_, rest)) = line.split_once("[skipped] ") {
        return Line::SkippedPassing(remark(rest));
    }
    if let Some(rest) = line.strip_prefix("skipped ") {
        return Line::Skipped(remark(rest));
    }
    match line.strip_prefix("flaky ") {
        Some(rest) => Line::Flaky(remark(rest.trim_start())),
        None => Line::Other,
    }
}

fn remark(text: &str) -> Remark {
    let (test, reason) = text.split_once(": ").unwrap_or((text, ""));
    Remark { test: test.trim_end().to_owned(), reason: reason.trim().to_owned() }
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in
/// 0.04s`.
fn unit_counts(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    counts_in(rest, ';', "ignored")
}

fn counts_in(text: &str, separator: char, third: &str) -> Option<Counts> {
    let mut parts = text.split(separator).map(str::trim);
    let mut number = |word: &str| parts.next()?.strip_suffix(word)?.trim_end().parse().ok();
    Some(Counts { passed: number("passed")?, failed: number("failed")?, skipped: number(third)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(test: &str, reason: &str) -> Remark {
        Remark { test: test.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn each_kind_of_line_is_told_apart() {
        let counts = Counts { passed: 12, failed: 3, skipped: 1 };
        let unit = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.04s";
        let cases = [
            (unit, Line::Counts(counts)),
            ("12 passed, 3 failed, 1 skipped", Line::Counts(counts)),
            ("skipped a_b: no Go: none", Line::Skipped(said("a_b", "no Go: none"))),
            ("[skipped] m::a_b: no XFS", Line::SkippedPassing(said("m::a_b", "no XFS"))),
            (
                "test m::a_b ... [skipped] m::a_b: no XFS",
                Line::SkippedPassing(said("m::a_b", "no XFS")),
            ),
            ("flaky   a_b: waited 60 s", Line::Flaky(said("a_b", "waited 60 s"))),
            ("", Line::Noise),
            ("running 0 tests", Line::Noise),
            ("running 3 tests", Line::Other),
            ("ok      twelve passed, 3 failed", Line::Other),
            ("12 passed", Line::Other),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line), expected, "{line}");
        }
    }
}
