//! The judge: one answer against the recordings of another kubelet. A pure function from values to
//! differences.
//!
//! A value is right when any of the recordings has it, field by field, because two recordings of
//! upstream itself differ in places. Lists of named things are compared by name, so that a path
//! says what it is about: `final.p.containerStatuses[c].state.waiting.reason`. Events are matched
//! by what they say; how often is compared where the recordings agree closely enough for a number
//! to mean something.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::answer::{Answer, Event};

#[cfg(test)]
mod tests;

/// One place where ours is like none of theirs. Null means that there is nothing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    pub(crate) path: String,
    pub(crate) ours: Value,
    /// Without repetitions.
    pub(crate) theirs: Vec<Value>,
}

impl Difference {
    /// For lists of lines: what turns the nearest of theirs into ours.
    pub(crate) fn changes(&self) -> Vec<String> {
        let lines = |value: &Value| -> Option<Vec<String>> {
            let all = value.as_array()?.iter();
            all.map(|it| it.as_str().map(str::to_owned)).collect()
        };
        let Some(ours) = lines(&self.ours) else {
            return Vec::new();
        };
        let theirs = self.theirs.iter().filter_map(lines);
        let changes = theirs.map(|it| changes(&it, &ours));
        changes.min_by_key(Vec::len).unwrap_or_default()
    }
}

/// How much longer or shorter a deletion may take, in seconds: the machine is shared.
const GONE_SLACK: f64 = 3.0;

/// Every difference of an answer to the recordings, in the order of their paths.
pub(crate) fn compare(ours: &Answer, theirs: &[Answer]) -> Vec<Difference> {
    let mut found = Vec::new();
    let map = |answer: &Answer| json!(answer.last);
    let recorded: Vec<Value> = theirs.iter().map(map).collect();
    let recorded = recorded.iter().map(Some).collect();
    values("final", Some(&map(ours)), recorded, &mut found);
    sequences(ours, theirs, &mut found);
    events(ours, theirs, &mut found);
    gone(ours, theirs, &mut found);
    if theirs.iter().all(|it| it.times != ours.times) {
        let theirs = theirs.iter().map(|it| json!(it.times)).collect();
        push(&mut found, "times".to_owned(), json!(ours.times), theirs);
    }
    if theirs.iter().all(|it| it.said != ours.said) {
        let theirs = theirs.iter().map(|it| json!(it.said)).collect();
        push(&mut found, "said".to_owned(), json!(ours.said), theirs);
    }
    found
}

fn push(found: &mut Vec<Difference>, path: String, ours: Value, theirs: Vec<Value>) {
    let mut distinct: Vec<Value> = Vec::new();
    for value in theirs {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    found.push(Difference { path, ours, theirs: distinct });
}

/// Walks down as long as both sides have a shape in common.
fn values(
    path: &str,
    ours: Option<&Value>,
    theirs: Vec<Option<&Value>>,
    found: &mut Vec<Difference>,
) {
    if theirs.contains(&ours) {
        return;
    }
    let shape = ours.and_then(fields);
    let shapes: Vec<Map<String, Value>> =
        theirs.iter().filter_map(|it| it.and_then(fields)).collect();
    let Some(shape) = shape.filter(|_| !shapes.is_empty()) else {
        let text = |it: Option<&Value>| it.cloned().unwrap_or_default();
        let theirs = theirs.into_iter().map(text).collect();
        push(found, path.to_owned(), text(ours), theirs);
        return;
    };
    let is_list = ours.is_some_and(Value::is_array);
    let keys: BTreeSet<&String> = shapes.iter().flat_map(Map::keys).chain(shape.keys()).collect();
    for key in keys {
        let path = match (is_list, key.as_str()) {
            (true, ORDER) => format!("{path}.{ORDER}"),
            (true, key) => format!("{path}[{key}]"),
            (false, key) => format!("{path}.{key}"),
        };
        let theirs = shapes.iter().map(|it| it.get(key)).collect();
        values(&path, shape.get(key), theirs, found);
    }
}

/// The names of a list in their order, as a field beside the named things.
const ORDER: &str = "order";

/// The named parts of a map, or of a list of things with names.
fn fields(value: &Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map.clone()),
        Value::Array(all) if !all.is_empty() => {
            let name = |it: &Value| {
                let keys = ["type", "mountPath", "name", "resourceType"];
                keys.iter().find_map(|key| it[*key].as_str().map(str::to_owned))
            };
            let names: Vec<String> = all.iter().map(name).collect::<Option<_>>()?;
            let mut map: Map<String, Value> =
                names.iter().cloned().zip(all.iter().cloned()).collect();
            map.insert(ORDER.to_owned(), json!(names));
            Some(map)
        }
        _ => None,
    }
}

/// Orders of states; a difference is shown as the lines to take away (-) and to add (+) to the
/// nearest recording. Whether two changes are told together or one after the other is a matter of
/// moments and no difference.
fn sequences(ours: &Answer, theirs: &[Answer], found: &mut Vec<Difference>) {
    let pods = theirs.iter().chain([ours]).flat_map(|it| it.sequence.keys());
    for pod in pods.collect::<BTreeSet<&String>>() {
        let of = |answer: &Answer| answer.sequence.get(pod).cloned().unwrap_or_default();
        let (ours, recorded) =
            (essential(&of(ours)), theirs.iter().map(|it| essential(&of(it))).collect::<Vec<_>>());
        let nearest =
            recorded.iter().map(|it| changes(it, &ours)).min_by_key(Vec::len).unwrap_or_default();
        if !nearest.is_empty() {
            let theirs = recorded.iter().map(|it| json!(it)).collect();
            push(found, format!("sequence.{pod}"), json!(ours), theirs);
        }
    }
}

/// A sequence without the states that lie between two others and say nothing that one of these does
/// not say: on the way up, or while the phase stays. Where a pod ends, a state in between has a
/// meaning of its own.
fn essential(sequence: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for (index, line) in sequence.iter().enumerate() {
        let is_between = match (kept.last(), sequence.get(index + 1)) {
            (Some(before), Some(after)) => is_between(before, line, after),
            _ => false,
        };
        if !is_between && kept.last() != Some(line) {
            kept.push(line.clone());
        }
    }
    kept
}

fn is_between(before: &str, line: &str, after: &str) -> bool {
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    let (before, words, after) = (words(before), words(line), words(after));
    let is_going_up = before.first().is_some_and(|it| it == "Pending");
    (is_going_up || before.first() == after.first())
        && words.iter().all(|it| before.contains(it) || after.contains(it))
}

/// The lines that turn one list into another: `- line` is only in the first, `+ line` only in the
/// second.
fn changes(from: &[String], to: &[String]) -> Vec<String> {
    // The classic table of longest common subsequences, from the end.
    let mut longest = vec![vec![0_usize; to.len() + 1]; from.len() + 1];
    for i in (0..from.len()).rev() {
        for j in (0..to.len()).rev() {
            longest[i][j] = if from[i] == to[j] {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < from.len() || j < to.len() {
        if i < from.len() && j < to.len() && from[i] == to[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == to.len() || (i < from.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            out.push(format!("- {}", from[i]));
            i += 1;
        } else {
            out.push(format!("+ {}", to[j]));
            j += 1;
        }
    }
    out
}

fn is_same(a: &Event, b: &Event) -> bool {
    is_about_same(a, b) && a.kind == b.kind && a.message == b.message
}

fn is_about_same(a: &Event, b: &Event) -> bool {
    (&a.pod, &a.field, &a.reason) == (&b.pod, &b.field, &b.reason)
}

/// `events.p.c.Killing`: pod, container or `-`, reason.
fn event_path(event: &Event) -> String {
    let inner = event.field.split_once('{').map_or("", |(_, rest)| rest.trim_end_matches('}'));
    let container = if inner.is_empty() { "-" } else { inner };
    format!("events.{}.{container}.{}", event.pod, event.reason)
}

fn events(ours: &Answer, theirs: &[Answer], found: &mut Vec<Difference>) {
    let mut unknown: Vec<&Event> = Vec::new();
    for event in &ours.events {
        let alike: Vec<&Event> =
            theirs.iter().filter_map(|it| it.events.iter().find(|it| is_same(it, event))).collect();
        if alike.is_empty() {
            unknown.push(event);
        } else {
            let counts: Vec<u64> = alike.iter().map(|it| it.count).collect();
            if !is_count_right(event, &counts) {
                let theirs = counts.iter().map(|it| json!(it)).collect();
                push(found, format!("{}.count", event_path(event)), json!(event.count), theirs);
            }
        }
    }
    let mut lacking: Vec<&Event> = Vec::new();
    let mut all = theirs.iter();
    for event in all.next().map(|it| it.events.as_slice()).unwrap_or_default() {
        let is_in_all = all.clone().all(|it| it.events.iter().any(|it| is_same(it, event)));
        if is_in_all && !ours.events.iter().any(|it| is_same(it, event)) {
            lacking.push(event);
        }
    }
    for event in unknown {
        let pair = lacking.iter().position(|it| is_about_same(it, event));
        match pair.map(|index| lacking.remove(index)) {
            Some(other) => push(found, event_path(event), words(event), vec![words(other)]),
            None => push(found, event_path(event), words(event), vec![Value::Null]),
        }
    }
    for event in lacking {
        push(found, event_path(event), Value::Null, vec![words(event)]);
    }
}

fn words(event: &Event) -> Value {
    json!(format!("{} x{}: {}", event.kind, event.count, event.message))
}

/// Once is once, but a warning comes again for as long as its cause lasts; the more often something
/// happens, the less the number means.
fn is_count_right(event: &Event, theirs: &[u64]) -> bool {
    let (least, most) = (theirs.iter().min(), theirs.iter().max());
    let (Some(least), Some(most)) = (least.copied(), most.copied()) else {
        return true;
    };
    let slack = if most <= 1 && event.kind == "Normal" { 0 } else { 1 + most / 4 };
    (least.saturating_sub(slack).max(1)..=most + slack).contains(&event.count)
}

fn gone(ours: &Answer, theirs: &[Answer], found: &mut Vec<Difference>) {
    let pods = theirs.iter().chain([ours]).flat_map(|it| it.gone.keys());
    for pod in pods.collect::<BTreeSet<&String>>() {
        let (mine, recorded) =
            (ours.gone.get(pod), theirs.iter().map(|it| it.gone.get(pod)).collect::<Vec<_>>());
        let is_right = recorded.iter().any(|it| match (mine, it) {
            (None, None) => true,
            (Some(Some(mine)), Some(Some(it))) => (mine - it).abs() <= GONE_SLACK,
            // A recording that took no time says only that it went.
            (Some(_), Some(_)) => true,
            _ => false,
        });
        if !is_right {
            let theirs = recorded.into_iter().map(|it| json!(it)).collect();
            push(found, format!("gone.{pod}"), json!(mine), theirs);
        }
    }
}
