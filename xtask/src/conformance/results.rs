//! Verdicts of one kubelet, how runs are laid over one another, and how two kubelets compare. Pure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// Who runs the node's pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kubelet {
    Ferrolet,
    Upstream,
}

impl Kubelet {
    pub(super) const ALL: [Kubelet; 2] = [Kubelet::Ferrolet, Kubelet::Upstream];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kubelet::Ferrolet => "ferrolet",
            Kubelet::Upstream => "upstream",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Kubelet> {
        Kubelet::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// How one test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// It could not be judged: not in the suite, skipped by itself, or without an image that it
    /// needs.
    Missing,
}

impl Outcome {
    const ALL: [Outcome; 3] = [Outcome::Passed, Outcome::Failed, Outcome::Missing];

    pub(super) fn word(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Missing => "missing",
        }
    }
}

/// What is known about one test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    /// The first line of the failure, or why it is missing; empty if it passed.
    pub(super) reason: String,
    pub(super) seconds: u64,
    /// How often it was run until this verdict.
    pub(super) n_runs: u64,
}

/// Verdicts by bare name.
pub(super) type Verdicts = BTreeMap<String, Verdict>;

/// One kubelet's run, or several laid over one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Results {
    pub(super) date: String,
    /// What ran, as pairs of part and version.
    pub(super) versions: Vec<(String, String)>,
    pub(super) verdicts: Verdicts,
    /// Every run that these verdicts come from, the oldest first: a later one speaks only for the
    /// tests that it ran.
    pub(super) runs: Vec<Run>,
}

/// One run: when, with which kubelet, and how many tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) date: String,
    pub(super) kubelet: String,
    pub(super) n_tests: u64,
}

/// How many tests ended in which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    pub(super) n_passed: usize,
    pub(super) n_failed: usize,
    pub(super) n_missing: usize,
}

impl Results {
    pub(super) fn count(&self) -> Count {
        let of = |outcome| self.with(outcome).count();
        Count {
            n_passed: of(Outcome::Passed),
            n_failed: of(Outcome::Failed),
            n_missing: of(Outcome::Missing),
        }
    }

    /// Tests that ended this way.
    pub(super) fn with(&self, outcome: Outcome) -> impl Iterator<Item = (&String, &Verdict)> {
        self.verdicts.iter().filter(move |(_, verdict)| verdict.outcome == outcome)
    }

    /// Whether a test of that name failed.
    pub(super) fn is_failed(&self, name: &str) -> bool {
        self.verdicts.get(name).is_some_and(|verdict| verdict.outcome == Outcome::Failed)
    }

    /// These results with a later run of some tests laid over them.
    pub(super) fn with_later(mut self, later: Results) -> Results {
        for (name, mut verdict) in later.verdicts {
            let before = self.verdicts.get(&name).map_or(0, |old| old.n_runs);
            verdict.n_runs += before;
            self.verdicts.insert(name, verdict);
        }
        self.runs.extend(later.runs);
        Results {
            date: later.date,
            versions: later.versions,
            verdicts: self.verdicts,
            runs: self.runs,
        }
    }

    /// These results without tests of other names: what left the list leaves the results.
    pub(super) fn only(mut self, names: &[String]) -> Results {
        let names: BTreeSet<&String> = names.iter().collect();
        self.verdicts.retain(|name, _| names.contains(name));
        self
    }

    pub(super) fn to_json(&self) -> Value {
        let verdicts: Map<String, Value> = self
            .verdicts
            .iter()
            .map(|(name, verdict)| {
                let value = json!({
                    "outcome": verdict.outcome.word(),
                    "reason": verdict.reason,
                    "seconds": verdict.seconds,
                    "runs": verdict.n_runs,
                });
                (name.clone(), value)
            })
            .collect();
        let runs: Vec<Value> = self
            .runs
            .iter()
            .map(|run| json!({ "date": run.date, "kubelet": run.kubelet, "tests": run.n_tests }))
            .collect();
        json!({ "date": self.date, "versions": self.versions, "runs": runs, "tests": verdicts })
    }

    pub(super) fn parse(text: &str) -> Result<Results> {
        let value: Value = serde_json::from_str(text)?;
        let tests = value["tests"].as_object().context("no tests")?;
        let mut verdicts = Verdicts::new();
        for (name, test) in tests {
            let word = test["outcome"].as_str().unwrap_or_default();
            let outcome = Outcome::ALL
                .into_iter()
                .find(|it| it.word() == word)
                .with_context(|| format!("{name} has the outcome {word:?}"))?;
            let verdict = Verdict {
                outcome,
                reason: test["reason"].as_str().unwrap_or_default().to_owned(),
                seconds: test["seconds"].as_u64().unwrap_or_default(),
                n_runs: test["runs"].as_u64().unwrap_or(1),
            };
            verdicts.insert(name.clone(), verdict);
        }
        let pair = |it: &Value| Some((it[0].as_str()?.to_owned(), it[1].as_str()?.to_owned()));
        let versions = value["versions"].as_array().into_iter().flatten();
        let runs = value["runs"].as_array().into_iter().flatten();
        let run = |it: &Value| Run {
            date: it["date"].as_str().unwrap_or_default().to_owned(),
            kubelet: it["kubelet"].as_str().unwrap_or_default().to_owned(),
            n_tests: it["tests"].as_u64().unwrap_or_default(),
        };
        Ok(Results {
            runs: runs.map(run).collect(),
            date: value["date"].as_str().unwrap_or_default().to_owned(),
            versions: versions.filter_map(pair).collect(),
            verdicts,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn verdict(outcome: Outcome, reason: &str) -> Verdict {
        Verdict { outcome, reason: reason.to_owned(), seconds: 3, n_runs: 1 }
    }

    pub(in super::super) fn results(verdicts: &[(&str, Outcome, &str)]) -> Results {
        Results {
            date: "2026-01-01 00:00 UTC".to_owned(),
            versions: vec![("kubelet".to_owned(), "v1".to_owned())],
            verdicts: verdicts
                .iter()
                .map(|(name, outcome, reason)| ((*name).to_owned(), verdict(*outcome, reason)))
                .collect(),
            runs: vec![Run {
                date: "2026-01-01 00:00 UTC".to_owned(),
                kubelet: "v1".to_owned(),
                n_tests: u64::try_from(verdicts.len()).unwrap(),
            }],
        }
    }

    #[test]
    fn results_survive_being_written() {
        let before = results(&[
            ("a", Outcome::Passed, ""),
            ("b", Outcome::Failed, "it \"broke\""),
            ("c", Outcome::Missing, "no image"),
        ]);
        let after = Results::parse(&before.to_json().to_string()).unwrap();
        assert_eq!(after, before);
        let count = Count { n_passed: 1, n_failed: 1, n_missing: 1 };
        assert_eq!(after.count(), count);
    }

    #[test]
    fn what_left_the_list_leaves_the_results() {
        let all = results(&[("a", Outcome::Passed, ""), ("b", Outcome::Failed, "x")]);
        let kept = all.only(&["a".to_owned(), "c".to_owned()]);
        let names: Vec<&String> = kept.verdicts.keys().collect();
        assert_eq!(names, ["a"]);
        assert_eq!(kept.runs[0].n_tests, 2, "the run had them nevertheless");
    }

    #[test]
    fn an_unknown_outcome_is_refused() {
        let text = r#"{"tests": {"a": {"outcome": "maybe"}}}"#;
        assert!(Results::parse(text).is_err());
    }

    #[test]
    fn a_later_run_replaces_what_it_ran_and_counts_the_runs() {
        let first = results(&[("a", Outcome::Failed, "x"), ("b", Outcome::Passed, "")]);
        let mut second = results(&[("a", Outcome::Passed, "")]);
        second.date = "later".to_owned();
        let both = first.with_later(second);
        assert_eq!(both.date, "later");
        let sizes: Vec<u64> = both.runs.iter().map(|run| run.n_tests).collect();
        assert_eq!(sizes, [2, 1]);
        assert_eq!(both.verdicts["a"].outcome, Outcome::Passed);
        assert_eq!(both.verdicts["a"].n_runs, 2);
        assert_eq!(both.verdicts["b"].n_runs, 1);
    }
}
