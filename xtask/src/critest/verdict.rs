//! What critest's cases came to, beside the list of those that may fail. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, bail};

use crate::conformance::report::{Spec, first_line};

/// Names of cases that may fail, each with its reason.
pub(super) type Expected = BTreeMap<String, String>;

/// Reads the list: paragraphs of a reason, `# …`, and the names below it.
pub(super) fn parse(text: &str) -> Result<Expected> {
    let mut expected = Expected::new();
    let mut reason = None;
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("# ") {
            Some(words) => reason = Some(words),
            None if line.is_empty() => reason = None,
            None => {
                let Some(reason) = reason else {
                    bail!("the list of expected failures gives no reason for {line:?}");
                };
                expected.insert(line.to_owned(), reason.to_owned());
            }
        }
    }
    Ok(expected)
}

/// Cases by what they came to, each with a few words.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    n_passed: usize,
    /// Failed, and nobody expected it: with critest's words.
    failed: Vec<(String, String)>,
    /// Failed as the list says: with its reason.
    expected: Vec<(String, String)>,
    /// Passed although the list says that they fail.
    surprising: Vec<String>,
    /// Left out by critest itself: with its words.
    skipped: Vec<(String, String)>,
}

impl Verdict {
    /// Lays a run's cases beside the list. Cases that were not asked for do not count.
    pub(super) fn of(specs: &[Spec], expected: &Expected) -> Verdict {
        let mut verdict = Verdict::default();
        for spec in specs {
            let name = spec.name.clone();
            let message = first_line(&spec.message);
            match (spec.state.as_str(), expected.get(&spec.name)) {
                ("passed", None) => verdict.n_passed += 1,
                ("passed", Some(_)) => {
                    verdict.n_passed += 1;
                    verdict.surprising.push(name);
                }
                ("skipped" | "pending", _) if spec.message.is_empty() => {}
                ("skipped" | "pending", _) => verdict.skipped.push((name, message)),
                (_, Some(reason)) => verdict.expected.push((name, reason.clone())),
                (_, None) => verdict.failed.push((name, message)),
            }
        }
        verdict
    }

    /// Whether the run is as the list says; a run of nothing is not.
    pub(super) fn is_well(&self) -> bool {
        let has_run = self.n_passed + self.expected.len() > 0;
        self.failed.is_empty() && self.surprising.is_empty() && has_run
    }

    /// Everything but what passed, and the count.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let mut list = |title: &str, cases: &[(String, String)]| {
            for (name, words) in cases {
                writeln!(text, "{title}: {name}\n    {words}").expect("a string takes all");
            }
        };
        list("SKIPPED", &self.skipped);
        list("failed as expected", &self.expected);
        list("FAILED", &self.failed);
        let surprising: BTreeSet<&String> = self.surprising.iter().collect();
        for name in surprising {
            writeln!(text, "PASSED though expected to fail: {name}").expect("a string takes all");
        }
        let n_failed = self.failed.len() + self.expected.len();
        writeln!(
            text,
            "critest: {} passed, {n_failed} failed ({} of them expected), {} skipped",
            self.n_passed,
            self.expected.len(),
            self.skipped.len()
        )
        .expect("a string takes all");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, state: &str, message: &str) -> Spec {
        Spec {
            name: name.to_owned(),
            state: state.to_owned(),
            message: message.to_owned(),
            began: String::new(),
            ended: String::new(),
            seconds: 0,
            output: String::new(),
        }
    }

    #[test]
    fn each_case_is_laid_beside_the_list() {
        let expected = parse("# nobody has it\na\nb\n\n# too slow\nc\n").unwrap();
        let specs = [
            spec("a", "failed", "boom"),
            spec("b", "passed", ""),
            spec("d", "passed", ""),
            spec("e", "panicked", "\n  lost\nmore"),
            spec("f", "skipped", "no AppArmor"),
            spec("benchmark", "skipped", ""),
        ];
        let verdict = Verdict::of(&specs, &expected);
        assert_eq!(
            verdict,
            Verdict {
                n_passed: 2,
                failed: vec![("e".to_owned(), "lost".to_owned())],
                expected: vec![("a".to_owned(), "nobody has it".to_owned())],
                surprising: vec!["b".to_owned()],
                skipped: vec![("f".to_owned(), "no AppArmor".to_owned())],
            }
        );
        let table = verdict.table();
        assert!(table.ends_with("critest: 2 passed, 2 failed (1 of them expected), 1 skipped\n"));
        assert!(table.contains("FAILED: e\n    lost\n"));
        assert!(table.contains("PASSED though expected to fail: b\n"));
    }

    #[test]
    fn a_run_is_well_when_the_list_says_all_of_it() {
        let expected = parse("# reason\na\n").unwrap();
        let check = |specs: &[Spec], is_well: bool| {
            assert_eq!(Verdict::of(specs, &expected).is_well(), is_well, "{specs:?}");
        };
        check(&[spec("a", "failed", "x"), spec("b", "passed", "")], true);
        check(&[spec("b", "failed", "x")], false);
        check(&[spec("a", "passed", "")], false);
        check(&[spec("c", "skipped", "no")], false);
        check(&[], false);
    }

    #[test]
    fn a_name_without_a_reason_is_refused() {
        assert!(parse("a\n").is_err());
        assert!(parse("# reason\na\n\nb\n").is_err());
        assert_eq!(parse("").unwrap(), Expected::new());
    }

    #[test]
    fn the_committed_list_has_reasons() {
        let expected = parse(super::super::EXPECTED).unwrap();
        assert!(expected.values().all(|reason| reason.len() > 10));
    }
}
