//! What is printed after a run. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::results::{Kubelet, Outcome, Results};

/// Where the node's log around a test lies, by bare name.
pub(super) type Logs = BTreeMap<String, PathBuf>;

/// One run: the count, then failures with their reasons, what is missing, and what the lab itself
/// prevents.
pub(super) fn text(
    kubelet: Kubelet,
    run: &Results,
    control: Option<&Results>,
    logs: &Logs,
) -> String {
    let mut text = String::new();
    let is_known = |name: &str| {
        kubelet == Kubelet::Ferrolet && control.is_some_and(|control| control.is_failed(name))
    };
    let (known, own): (Vec<_>, Vec<_>) =
        run.with(Outcome::Failed).partition(|(name, _)| is_known(name));
    section(&mut text, "failed", &own, logs);
    section(&mut text, "failed, as upstream's kubelet does here", &known, logs);
    let missing: Vec<_> = run.with(Outcome::Missing).collect();
    section(&mut text, "missing", &missing, logs);
    let count = run.count();
    let _ = writeln!(
        text,
        "{}: {} passed, {} failed ({} of them also with upstream's kubelet), {} missing, of {}",
        kubelet.name(),
        count.n_passed,
        count.n_failed,
        known.len(),
        count.n_missing,
        run.verdicts.len()
    );
    text
}

fn section(
    text: &mut String,
    title: &str,
    tests: &[(&String, &super::results::Verdict)],
    logs: &Logs,
) {
    if tests.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}:");
    for (name, verdict) in tests {
        let _ = writeln!(text, "  {name}\n      {}", verdict.reason);
        if let Some(log) = logs.get(*name) {
            let _ = writeln!(text, "      {}", log.display());
        }
    }
    text.push('\n');
}

/// Whether a run is as good as it can be here: nothing failed that the control group passes.
pub(super) fn is_fine(kubelet: Kubelet, run: &Results, control: Option<&Results>) -> bool {
    run.with(Outcome::Failed).all(|(name, _)| {
        kubelet == Kubelet::Upstream || control.is_some_and(|control| control.is_failed(name))
    })
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::results;
    use super::*;

    #[test]
    fn failures_of_the_lab_are_shown_apart_from_ours() {
        let run = results(&[
            ("a", Outcome::Passed, ""),
            ("b", Outcome::Failed, "timed out"),
            ("c", Outcome::Failed, "no such link"),
            ("d", Outcome::Missing, "needs image x"),
        ]);
        let control = results(&[("b", Outcome::Passed, ""), ("c", Outcome::Failed, "same")]);
        let logs = Logs::from([("b".to_owned(), PathBuf::from("b/node.log"))]);
        let shown = text(Kubelet::Ferrolet, &run, Some(&control), &logs);
        assert_eq!(
            shown,
            "failed:\n  b\n      timed out\n      b/node.log\n\n\
             failed, as upstream's kubelet does here:\n  c\n      no such link\n\n\
             missing:\n  d\n      needs image x\n\n\
             ferrolet: 1 passed, 2 failed (1 of them also with upstream's kubelet), 1 missing, of 4\n"
        );
    }

    #[test]
    fn only_what_upstream_passes_counts_against_us() {
        let passed = results(&[("a", Outcome::Passed, "")]);
        let failed = results(&[("a", Outcome::Failed, "x")]);
        let cases = [
            (Kubelet::Ferrolet, &passed, None, true),
            (Kubelet::Ferrolet, &failed, None, false),
            (Kubelet::Ferrolet, &failed, Some(&passed), false),
            (Kubelet::Ferrolet, &failed, Some(&failed), true),
            (Kubelet::Upstream, &failed, None, true),
        ];
        for (index, (kubelet, run, control, expected)) in cases.into_iter().enumerate() {
            assert_eq!(is_fine(kubelet, run, control), expected, "case {index}");
        }
    }
}
