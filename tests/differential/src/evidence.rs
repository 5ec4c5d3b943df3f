//! What the recordings of a case show anywhere, so that a difference that is known to be there can
//! still be wrong.
//!
//! Two kubelets may show a container's end at different moments; neither may show another exit code,
//! another reason, a restart more, or nothing at all. Pure. In: the recordings of one case. Out:
//! whether a value could be theirs at another moment. Refuses: judging where no difference is known.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::answer::Answer;
use crate::compare::Difference;
use crate::known::Known;

/// How much more often than the most often recorded an event may come, where its number is known to
/// differ: tries that follow each other faster, for as long as a case lasts.
const COUNT_FACTOR: u64 = 4;
const COUNT_MORE: u64 = 6;
/// How much longer than the longest recorded a deletion may take, in seconds, where it is known to
/// take another time.
const GONE_MORE: f64 = 10.0;

/// Everything that recordings of one case show.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// Exit codes by container.
    codes: BTreeMap<String, BTreeSet<i64>>,
    /// How often containers were restarted, at most.
    restarts: BTreeMap<String, i64>,
    reasons: BTreeSet<String>,
    messages: BTreeSet<String>,
    phases: BTreeSet<String>,
    /// Containers that have ended before in every recording.
    ended_before: BTreeSet<String>,
    /// The longest deletion.
    slowest: f64,
}

impl Evidence {
    pub(crate) fn of(recordings: &[Answer]) -> Self {
        let mut all = Self::default();
        for (index, recording) in recordings.iter().enumerate() {
            let mut ended_before = BTreeSet::new();
            for status in recording.last.values() {
                all.learn(status, None);
                each_container(status, &mut |name, container| {
                    if !container["lastState"]["terminated"].is_null() {
                        ended_before.insert(name.to_owned());
                    }
                });
            }
            all.ended_before = match index {
                0 => ended_before,
                _ => all.ended_before.intersection(&ended_before).cloned().collect(),
            };
            for line in recording.sequence.values().flatten() {
                all.learn_line(line);
            }
            let messages = recording.events.iter().map(|it| it.message.clone());
            all.messages.extend(messages);
            let spans = recording.gone.values().flatten();
            all.slowest = spans.copied().fold(all.slowest, f64::max);
        }
        all
    }

    /// Whether ours could be theirs at another moment, or is what the entry says.
    pub(crate) fn allows(&self, difference: &Difference, known: &Known) -> bool {
        let (path, ours) = (difference.path.as_str(), &difference.ours);
        if path.ends_with(".count") {
            let most = difference.theirs.iter().filter_map(Value::as_u64).max().unwrap_or(1);
            let bound = COUNT_FACTOR * most + COUNT_MORE;
            return ours.as_u64().is_some_and(|count| (1..=bound).contains(&count));
        }
        if path.starts_with("events.") {
            // `Normal x1: message`.
            let message = ours.as_str().and_then(|it| it.split_once(": "));
            return message.is_none_or(|(_, it)| self.has_message(it, known));
        }
        if path.starts_with("gone.") {
            return ours.as_f64().is_none_or(|took| took <= self.slowest + GONE_MORE);
        }
        if path.starts_with("sequence.") {
            let mut lines = ours.as_array().into_iter().flatten().filter_map(Value::as_str);
            let has_lines = ours.as_array().is_some_and(|it| !it.is_empty());
            return has_lines && lines.all(|line| self.allows_line(line, known));
        }
        let is_whole_pod = path.split('.').count() == 2;
        if is_whole_pod && ours.is_null() {
            return false;
        }
        let container = container_of(path);
        let is_about_before = path.contains(".lastState");
        if ours.is_null() && is_about_before && !path.ends_with(".message") {
            return container.is_none_or(|it| !self.ended_before.contains(it));
        }
        self.allows_value(last_key(path), ours, container, known)
    }

    fn allows_value(
        &self,
        key: &str,
        value: &Value,
        container: Option<&str>,
        known: &Known,
    ) -> bool {
        match (key, value) {
            ("exitCode", Value::Number(code)) => self.has_code(container, code.as_i64()),
            ("restartCount", Value::Number(n)) => self.has_restarts(container, n.as_i64()),
            ("reason", Value::String(reason)) => self.has_reason(reason, known),
            ("message", Value::String(message)) => self.has_message(message, known),
            ("phase", Value::String(phase)) => self.has_phase(phase, known),
            (_, Value::Object(fields)) => {
                let container = fields.get("name").and_then(Value::as_str).or(container);
                let mut fields = fields.iter();
                fields.all(|(key, value)| self.allows_value(key, value, container, known))
            }
            (_, Value::Array(all)) => {
                all.iter().all(|value| self.allows_value("", value, container, known))
            }
            _ => true,
        }
    }

    fn allows_line(&self, line: &str, known: &Known) -> bool {
        let mut words = line.split(' ');
        let phase = words.next().unwrap_or_default().trim_end_matches('*');
        let is_end = phase == "gone";
        let is_container = |word: &&str| word.contains(':');
        (is_end || self.has_phase(phase, known))
            && words.filter(is_container).all(|word| {
                let word = ContainerWord::read(word);
                word.reason.is_none_or(|it| self.has_reason(it, known))
                    && word.code.is_none_or(|it| self.has_code(Some(word.name), Some(it)))
                    && self.has_restarts(Some(word.name), word.restarts)
            })
    }

    /// Where the recordings show no end of the container at all, any may be.
    fn has_code(&self, container: Option<&str>, code: Option<i64>) -> bool {
        let known = container.and_then(|it| self.codes.get(it));
        known.is_none_or(|known| code.is_some_and(|it| known.contains(&it)))
    }

    /// One more than recorded may have happened in the time of a case.
    fn has_restarts(&self, container: Option<&str>, n: Option<i64>) -> bool {
        let most = container.and_then(|it| self.restarts.get(it)).copied().unwrap_or(0);
        n.is_none_or(|n| (0..=most + 1).contains(&n))
    }

    fn has_reason(&self, reason: &str, known: &Known) -> bool {
        self.reasons.contains(reason) || known.has_reason(reason)
    }

    fn has_phase(&self, phase: &str, known: &Known) -> bool {
        self.phases.contains(phase) || known.has_phase(phase)
    }

    fn has_message(&self, message: &str, known: &Known) -> bool {
        self.messages.contains(message) || known.has_message(message)
    }

    fn learn(&mut self, value: &Value, container: Option<&str>) {
        match value {
            Value::Object(fields) => {
                let container = fields.get("name").and_then(Value::as_str).or(container);
                for (key, value) in fields {
                    match (key.as_str(), value) {
                        ("exitCode", Value::Number(code)) => {
                            self.learn_code(container, code.as_i64());
                        }
                        ("restartCount", Value::Number(n)) => {
                            self.learn_restarts(container, n.as_i64());
                        }
                        ("reason", Value::String(text)) => self.reasons.extend([text.clone()]),
                        ("message", Value::String(text)) => self.messages.extend([text.clone()]),
                        ("phase", Value::String(text)) => self.phases.extend([text.clone()]),
                        _ => self.learn(value, container),
                    }
                }
            }
            Value::Array(all) => all.iter().for_each(|value| self.learn(value, container)),
            _ => {}
        }
    }

    fn learn_line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let phase = words.next().unwrap_or_default().trim_end_matches('*');
        self.phases.insert(phase.to_owned());
        for word in words.filter(|word| word.contains(':')) {
            let word = ContainerWord::read(word);
            self.reasons.extend(word.reason.map(str::to_owned));
            if let Some(code) = word.code {
                self.learn_code(Some(word.name), Some(code));
            }
            self.learn_restarts(Some(word.name), word.restarts);
        }
    }

    fn learn_code(&mut self, container: Option<&str>, code: Option<i64>) {
        if let (Some(container), Some(code)) = (container, code) {
            self.codes.entry(container.to_owned()).or_default().insert(code);
        }
    }

    fn learn_restarts(&mut self, container: Option<&str>, n: Option<i64>) {
        if let (Some(container), Some(n)) = (container, n) {
            let most = self.restarts.entry(container.to_owned()).or_default();
            *most = (*most).max(n);
        }
    }
}

/// `name:state/reason/code#restarts+`, as the history writes it.
struct ContainerWord<'a> {
    name: &'a str,
    reason: Option<&'a str>,
    code: Option<i64>,
    restarts: Option<i64>,
}

impl<'a> ContainerWord<'a> {
    fn read(word: &'a str) -> Self {
        let (name, rest) = word.split_once(':').unwrap_or((word, ""));
        let (state, restarts) = rest.split_once('#').unwrap_or((rest, ""));
        let mut parts = state.split('/').skip(1);
        let (mut reason, mut code) = (parts.next(), parts.next().and_then(|it| it.parse().ok()));
        // An end without a reason has its code in that place.
        if let Some(number) = reason.and_then(|it| it.parse().ok()) {
            (reason, code) = (None, Some(number));
        }
        let restarts = restarts.trim_end_matches('+').parse().ok();
        Self { name, reason, code, restarts }
    }
}

fn each_container(status: &Value, take: &mut dyn FnMut(&str, &Value)) {
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in status[list].as_array().into_iter().flatten() {
            take(container["name"].as_str().unwrap_or_default(), container);
        }
    }
}

/// `c` of `final.p.containerStatuses[c].state`.
fn container_of(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("ontainerStatuses[")?;
    rest.split_once(']').map(|(name, _)| name)
}

fn last_key(path: &str) -> &str {
    path.rsplit(['.', ']']).next().unwrap_or_default()
}

#[cfg(test)]
#[path = "evidence/mutations.rs"]
mod mutations;
