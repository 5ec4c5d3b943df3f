//! ginkgo's JSON report as verdicts. Pure.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::list::bare;
use super::results::{Outcome, Verdict, Verdicts};

/// One test of the suite as the report has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    /// With tags.
    pub(crate) name: String,
    pub(crate) state: String,
    /// The whole message of its failure, or of its being skipped.
    pub(crate) message: String,
    /// RFC 3339.
    pub(crate) began: String,
    pub(crate) ended: String,
    pub(crate) seconds: u64,
    /// What it logged.
    pub(crate) output: String,
}

/// The tests of a report; set-up and tear-down nodes of the suite are not among them.
pub(crate) fn specs(report: &str) -> Result<Vec<Spec>> {
    let report: Value = serde_json::from_str(report).context("the report is not JSON")?;
    let suites = report.as_array().context("the report is not a list")?;
    let specs =
        suites.iter().flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten());
    Ok(specs.filter(|spec| spec["LeafNodeType"] == "It").map(spec).collect())
}

/// What went wrong outside of tests: in the suite's own set-up.
pub(crate) fn suite_failures(report: &str) -> Result<Vec<String>> {
    let report: Value = serde_json::from_str(report).context("the report is not JSON")?;
    let mut failures = Vec::new();
    for suite in report.as_array().into_iter().flatten() {
        for node in suite["SpecReports"].as_array().into_iter().flatten() {
            if node["LeafNodeType"] != "It" && node["State"] != "passed" {
                let kind = node["LeafNodeType"].as_str().unwrap_or_default();
                let message = text(&node["Failure"]["Message"]);
                failures.push(format!("{kind}: {}", first_line(&message)));
            }
        }
    }
    Ok(failures)
}

fn spec(spec: &Value) -> Spec {
    let above = spec["ContainerHierarchyTexts"].as_array();
    let mut words: Vec<String> = above.into_iter().flatten().map(text).collect();
    words.push(text(&spec["LeafNodeText"]));
    // Upstream groups some tests under nothing, which is no part of a name.
    words.retain(|word| !word.is_empty());
    Spec {
        name: words.join(" "),
        state: text(&spec["State"]),
        message: text(&spec["Failure"]["Message"]),
        began: text(&spec["StartTime"]),
        ended: text(&spec["EndTime"]),
        seconds: spec["RunTime"].as_u64().unwrap_or_default() / 1_000_000_000,
        output: text(&spec["CapturedGinkgoWriterOutput"]),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A verdict for each of `names`. A test that failed and spoke of an image that we cannot make is
/// missing, not failed.
pub(super) fn verdicts(names: &[String], specs: &[Spec], missing_images: &[String]) -> Verdicts {
    let by_name: BTreeMap<String, &Spec> =
        specs.iter().map(|spec| (bare(&spec.name), spec)).collect();
    let verdict = |name: &String| {
        let Some(spec) = by_name.get(name) else {
            return missing("not in this suite".to_owned(), 0);
        };
        match spec.state.as_str() {
            "passed" => Verdict {
                outcome: Outcome::Passed,
                reason: String::new(),
                seconds: spec.seconds,
                n_runs: 1,
            },
            "skipped" | "pending" | "" if spec.message.is_empty() => {
                missing("was not run".to_owned(), 0)
            }
            "skipped" => {
                missing(format!("skipped itself: {}", first_line(&spec.message)), spec.seconds)
            }
            _ => {
                let wanted = missing_images.iter().find(|it| spec.output.contains(*it));
                match wanted {
                    Some(image) => missing(format!("needs image {image}"), spec.seconds),
                    None => Verdict {
                        outcome: Outcome::Failed,
                        reason: first_line(&spec.message),
                        seconds: spec.seconds,
                        n_runs: 1,
                    },
                }
            }
        }
    };
    names.iter().map(|name| (name.clone(), verdict(name))).collect()
}

fn missing(reason: String, seconds: u64) -> Verdict {
    Verdict { outcome: Outcome::Missing, reason, seconds, n_runs: 1 }
}

/// The first line that says something, shortened.
pub(crate) fn first_line(message: &str) -> String {
    const MOST: usize = 240;
    let line = message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no message");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// How many tests have passed and failed, from what ginkgo has printed so far.
pub(crate) fn progress(printed: &str) -> (usize, usize) {
    let done = printed
        .lines()
        .filter_map(|line| line.strip_prefix("• ["))
        .map(|rest| rest.starts_with(|it: char| it.is_ascii_digit()));
    done.fold(
        (0, 0),
        |(passed, failed), is_passed| {
            if is_passed { (passed + 1, failed) } else { (passed, failed + 1) }
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> String {
        let spec = |texts: &[&str], leaf: &str, state: &str, message: &str, output: &str| {
            json!({
                "LeafNodeType": "It",
                "ContainerHierarchyTexts": texts,
                "LeafNodeText": leaf,
                "State": state,
                "RunTime": 2_500_000_000_u64,
                "StartTime": "2026-01-01T00:00:01.5Z",
                "EndTime": "2026-01-01T00:00:04Z",
                "Failure": { "Message": message },
                "CapturedGinkgoWriterOutput": output,
            })
        };
        json!([{ "SpecReports": [
            { "LeafNodeType": "SynchronizedBeforeSuite", "State": "failed", "Failure": { "Message": "no nodes\nat all" } },
            { "LeafNodeType": "ReportAfterSuite", "State": "passed" },
            spec(&["[sig-a] X"], "passes [Conformance]", "passed", "", ""),
            spec(&["[sig-a] X", "", "when y"], "fails [Conformance]", "failed", "\n  timed out\nsecond line", ""),
            spec(&["[sig-a] X"], "panics", "panicked", "boom", ""),
            spec(&["[sig-a] X"], "pulls", "failed", "timed out", "pulling example.test/none:1 …"),
            spec(&["[sig-a] X"], "gives up [Serial]", "skipped", "needs two nodes", ""),
            spec(&["[sig-a] X"], "is not asked", "skipped", "", ""),
        ]}])
        .to_string()
    }

    #[test]
    fn each_state_becomes_a_verdict() {
        let cases = [
            ("[sig-a] X passes", Outcome::Passed, ""),
            ("[sig-a] X when y fails", Outcome::Failed, "timed out"),
            ("[sig-a] X panics", Outcome::Failed, "boom"),
            ("[sig-a] X pulls", Outcome::Missing, "needs image example.test/none:1"),
            ("[sig-a] X gives up", Outcome::Missing, "skipped itself: needs two nodes"),
            ("[sig-a] X is not asked", Outcome::Missing, "was not run"),
            ("[sig-a] X is unknown", Outcome::Missing, "not in this suite"),
        ];
        let names: Vec<String> = cases.iter().map(|case| case.0.to_owned()).collect();
        let specs = specs(&report()).unwrap();
        assert_eq!(specs.len(), 6);
        let verdicts = verdicts(&names, &specs, &["example.test/none:1".to_owned()]);
        for (name, outcome, reason) in cases {
            let verdict = &verdicts[name];
            assert_eq!((verdict.outcome, verdict.reason.as_str()), (outcome, reason), "{name}");
        }
        assert_eq!(verdicts["[sig-a] X passes"].seconds, 2);
    }

    #[test]
    fn failures_of_the_set_up_are_told_apart() {
        let failures = suite_failures(&report()).unwrap();
        assert_eq!(failures, ["SynchronizedBeforeSuite: no nodes"]);
    }

    #[test]
    fn a_report_that_is_none_is_refused() {
        assert!(specs("").is_err());
        assert!(specs("{}").is_err());
    }

    #[test]
    fn progress_is_counted_from_bullets() {
        let printed = "Running…\n• [5.031 seconds]\n[sig-a] x\n• [FAILED] [30.1 seconds]\n\
                       • [PANICKED] [1 seconds]\nS [SKIPPED] [0.1 seconds]\n• [0.9 seconds]\n";
        assert_eq!(progress(printed), (2, 2));
    }

    #[test]
    fn long_lines_are_cut_between_letters() {
        let line = first_line(&"ä".repeat(300));
        assert_eq!(line.chars().count(), 241);
    }
}
