//! What can change about the log while the agent runs: format, threshold, exceptions from it.
//!
//! Owner: whoever started the log; the layer and whoever may turn it up hold handles. Refuses
//! deciding where lines go ([`super::streams`]).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::Format;

/// Another threshold for some source files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The file's name without `.rs`, in which `*` and `?` stand for any letters and any letter.
    /// With a slash in it, as many directories before the name are compared too:
    /// `pods/src/worker/*`.
    pub pattern: String,
    /// The threshold there, if it is the higher one.
    pub threshold: u32,
}

impl Rule {
    fn covers(&self, file: &str) -> bool {
        let file = file.strip_suffix(".rs").unwrap_or(file);
        let n_parts = self.pattern.matches('/').count() + 1;
        let start = file.rmatch_indices('/').nth(n_parts - 1).map_or(0, |(at, _)| at + 1);
        is_like(self.pattern.as_bytes(), &file.as_bytes()[start..])
    }
}

/// Whether a name is what a pattern says.
fn is_like(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|at| is_like(rest, &name[at..])),
        Some((b'?', rest)) => name.split_first().is_some_and(|(_, after)| is_like(rest, after)),
        Some((letter, rest)) => {
            name.split_first().is_some_and(|(first, after)| first == letter && is_like(rest, after))
        }
    }
}

/// A handle to the settings of one log. Cloning gives another handle to the same ones.
#[derive(Clone, Debug)]
pub struct LogControl(Arc<Settings>);

#[derive(Debug)]
struct Settings {
    is_json: AtomicBool,
    threshold: AtomicU32,
    rules: RwLock<Vec<Rule>>,
}

impl LogControl {
    /// Settings of their own.
    pub fn new(format: Format, threshold: u32) -> Self {
        Self(Arc::new(Settings {
            is_json: AtomicBool::new(format == Format::Json),
            threshold: AtomicU32::new(threshold),
            rules: RwLock::default(),
        }))
    }

    /// Moves the threshold while the agent runs.
    pub fn set_threshold(&self, threshold: u32) {
        self.0.threshold.store(threshold, Ordering::Relaxed);
        // Each place that logs remembers whether anybody listens; now the answer may differ.
        tracing::callsite::rebuild_interest_cache();
    }

    /// Has some files follow other thresholds, if theirs is the higher one. Of several rules for a
    /// file the first counts, as upstream has it.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        *self.0.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
        tracing::callsite::rebuild_interest_cache();
    }

    /// Has lines look otherwise from now on.
    pub fn set_format(&self, format: Format) {
        self.0.is_json.store(format == Format::Json, Ordering::Relaxed);
    }

    /// The threshold now.
    pub fn threshold(&self) -> u32 {
        self.0.threshold.load(Ordering::Relaxed)
    }

    pub(super) fn format(&self) -> Format {
        if self.0.is_json.load(Ordering::Relaxed) { Format::Json } else { Format::Text }
    }

    /// Whether a line of this verbosity, logged in this file, is to be heard.
    pub(super) fn hears(&self, verbosity: u64, file: Option<&str>) -> bool {
        if verbosity <= u64::from(self.threshold()) {
            return true;
        }
        let rules = self.0.rules.read().unwrap_or_else(PoisonError::into_inner);
        let rule = file.and_then(|file| rules.iter().find(|rule| rule.covers(file)));
        rule.is_some_and(|rule| verbosity <= u64::from(rule.threshold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_compared_with_as_much_of_the_path_as_it_has() {
        let check = |pattern: &str, file: &str, expected: bool| {
            let rule = Rule { pattern: pattern.to_owned(), threshold: 1 };
            assert_eq!(rule.covers(file), expected, "{pattern} {file}");
        };
        for (pattern, expected) in [
            ("run", true),
            ("r*", true),
            ("*", true),
            ("?un", true),
            ("ru", false),
            ("running", false),
            ("*n?", false),
            ("worker/run", true),
            ("*/run", true),
            ("pods/src/worker/r?n", true),
            ("src/run", false),
            ("run.rs", false),
        ] {
            check(pattern, "crates/engine/pods/src/worker/run.rs", expected);
        }
        check("a/run", "run.rs", false);
        check("", "run.rs", false);
    }

    #[test]
    fn a_rule_only_makes_files_louder_and_the_first_one_counts() {
        let control = LogControl::new(Format::Text, 2);
        let rule = |pattern: &str, threshold| Rule { pattern: pattern.to_owned(), threshold };
        control.set_rules(vec![rule("run", 5), rule("r*", 9), rule("quiet", 0)]);
        let check = |verbosity, file, expected| {
            assert_eq!(control.hears(verbosity, file), expected, "{verbosity} {file:?}");
        };
        check(5, Some("src/run.rs"), true);
        check(6, Some("src/run.rs"), false);
        check(9, Some("src/rest.rs"), true);
        check(2, Some("src/quiet.rs"), true);
        check(3, Some("src/quiet.rs"), false);
        check(3, None, false);
    }
}
