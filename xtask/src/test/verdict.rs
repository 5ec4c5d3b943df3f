//! Whether a run of the tests may count as green. Pure.
//!
//! A count without failures is not enough: a run in which nothing ran, or in which tests stood
//! aside for a reason that nobody has approved, says nothing. `.ci/skips` lists the tests that
//! may be skipped on the machines that judge changes, each with its reason.

use super::lines::{Counts, Remark};

/// What one step of a run said.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) counts: Counts,
    pub(super) skipped: Vec<Remark>,
    pub(super) flaky: Vec<Remark>,
}

/// What is asked of a run.
#[derive(Debug)]
pub(super) struct Terms<'a> {
    /// Tests that may be skipped.
    pub(super) may_skip: &'a [Remark],
    /// Whether every test was asked for, so that a listed one that ran is a stale line.
    pub(super) is_whole: bool,
    /// How many tests may fail beside others and pass alone; without a number they are only told.
    pub(super) most_flaky: Option<usize>,
}

/// Reads `.ci/skips`: a test a line, `NAME: reason`; `#` begins a comment.
pub(super) fn read_skips(text: &str) -> Result<Vec<Remark>, String> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(at, line)| match line.split_once(": ") {
            Some((test, reason)) if !reason.trim().is_empty() => {
                Ok(Remark { test: test.to_owned(), reason: reason.trim().to_owned() })
            }
            _ => Err(format!(".ci/skips:{at}: `{line}` is not `NAME: reason`")),
        })
        .collect()
}

/// Everything that keeps a run from being green, besides failures.
pub(super) fn faults(steps: &[(&str, Report)], terms: &Terms<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    for (step, report) in steps {
        if report.counts.passed == 0 && report.counts.failed == 0 {
            faults.push(format!("{step}: nothing ran"));
        }
    }
    let skipped: Vec<&Remark> = steps.iter().flat_map(|(_, report)| &report.skipped).collect();
    for remark in &skipped {
        if !terms.may_skip.iter().any(|it| it.test == remark.test) {
            faults.push(format!(
                "{} was skipped, and .ci/skips does not allow it: {}",
                remark.test, remark.reason
            ));
        }
    }
    if terms.is_whole {
        for listed in terms.may_skip {
            if !skipped.iter().any(|it| it.test == listed.test) {
                faults.push(format!("{} ran or is gone: take it out of .ci/skips", listed.test));
            }
        }
    }
    let n_flaky: usize = steps.iter().map(|(_, report)| report.flaky.len()).sum();
    if let Some(most) = terms.most_flaky.filter(|most| n_flaky > *most) {
        faults.push(format!("{n_flaky} tests failed and then passed alone; {most} may"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remark(test: &str) -> Remark {
        Remark { test: test.to_owned(), reason: "no such kernel".to_owned() }
    }

    fn report(passed: u64, skipped: &[&str], flaky: &[&str]) -> Report {
        Report {
            counts: Counts { passed, failed: 0, skipped: 0 },
            skipped: skipped.iter().map(|it| remark(it)).collect(),
            flaky: flaky.iter().map(|it| remark(it)).collect(),
        }
    }

    fn check(step: Report, may_skip: &[&str], is_whole: bool, most_flaky: Option<usize>) -> String {
        let may_skip: Vec<Remark> = may_skip.iter().map(|it| remark(it)).collect();
        let terms = Terms { may_skip: &may_skip, is_whole, most_flaky };
        faults(&[("e2e", step)], &terms).join("; ")
    }

    #[test]
    fn a_run_that_ran_nothing_is_red() {
        assert_eq!(check(report(0, &[], &[]), &[], false, None), "e2e: nothing ran");
        assert_eq!(check(report(1, &[], &[]), &[], false, None), "");
    }

    #[test]
    fn a_skip_needs_a_line_in_the_list() {
        let unlisted = check(report(5, &["a"], &[]), &[], true, None);
        assert_eq!(unlisted, "a was skipped, and .ci/skips does not allow it: no such kernel");
        assert_eq!(check(report(5, &["a"], &[]), &["a"], true, None), "");
    }

    #[test]
    fn a_line_of_the_list_that_no_longer_applies_is_a_fault_of_a_whole_run() {
        let stale = "a ran or is gone: take it out of .ci/skips";
        assert_eq!(check(report(5, &[], &[]), &["a"], true, None), stale);
        assert_eq!(check(report(5, &[], &[]), &["a"], false, None), "");
    }

    #[test]
    fn a_few_flaky_tests_are_told_and_many_fail_where_that_is_asked_for() {
        let four = || report(5, &[], &["a", "b", "c", "d"]);
        assert_eq!(check(four(), &[], true, None), "");
        assert_eq!(check(four(), &[], true, Some(4)), "");
        let told = "4 tests failed and then passed alone; 3 may";
        assert_eq!(check(four(), &[], true, Some(3)), told);
    }

    #[test]
    fn the_list_has_a_reason_for_each_test() {
        let read = read_skips("# on our machines\n\na_b: no such kernel\n").unwrap();
        assert_eq!(read, [remark("a_b")]);
        let error = read_skips("a_b: ok\nc_d\n").unwrap_err();
        assert_eq!(error, ".ci/skips:2: `c_d` is not `NAME: reason`");
    }
}
