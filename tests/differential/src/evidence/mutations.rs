//! The judge judged: every recording of upstream's kubelet is changed in one place after the other,
//! and played to the judge as ours. What goes unseen is what ours could be wrong in without anybody
//! noticing.

use std::path::Path;

use serde_json::json;

use super::*;
use crate::{answer, compare::compare, known};

/// The part of the mutations that may go unseen.
const UNSEEN: f64 = 0.01;

/// A recording with one thing changed, and what.
type Mutation = (String, Answer);

#[test]
fn nearly_every_change_of_a_recording_is_seen() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let known = known::read(&home.join("known.yaml")).unwrap();
    let cases = crate::case::read_all(&home.join("cases")).unwrap();
    let (mut n_all, mut unseen) = (0_usize, Vec::new());
    for case in &cases {
        let recordings = answer::read(&home.join("answers"), &case.name).unwrap();
        let evidence = Evidence::of(&recordings);
        let is_seen = |ours: &Answer| {
            let mut found = compare(ours, &recordings).into_iter();
            found.any(|it| !known.iter().any(|known| known.covers(&case.name, &it, &evidence)))
        };
        for recording in &recordings {
            assert!(!is_seen(recording), "{}: a recording differs from itself", case.name);
            for (what, mutated) in mutations(recording, &recordings) {
                n_all += 1;
                if !is_seen(&mutated) {
                    unseen.push(format!("{}: {what}", case.name));
                }
            }
        }
    }
    let bound = f64::from(u32::try_from(n_all).unwrap()) * UNSEEN;
    let n_unseen = f64::from(u32::try_from(unseen.len()).unwrap());
    assert!(n_all > 5000, "only {n_all} mutations: are the recordings there?");
    assert!(n_unseen <= bound, "{n_unseen} of {n_all} go unseen: {unseen:#?}");
}

fn mutations(recording: &Answer, all: &[Answer]) -> Vec<Mutation> {
    let mut made = Vec::new();
    for pod in recording.last.keys() {
        in_status(recording, pod, &mut made);
        missing_pod(recording, pod, &mut made);
        let mut untimed = recording.clone();
        untimed.times.insert(pod.clone(), vec!["c ended at no time in state".to_owned()]);
        made.push((format!("{pod} has an end without a time"), untimed));
    }
    for (pod, lines) in &recording.sequence {
        in_sequence(recording, pod, lines, &mut made);
    }
    in_events(recording, all, &mut made);
    for (pod, took) in &recording.gone {
        if let Some(took) = took {
            let mut slow = recording.clone();
            slow.gone.insert(pod.clone(), Some(took + 60.0));
            made.push((format!("gone.{pod} a minute later"), slow));
        }
    }
    made
}

/// One change at each place of a pod's last status that has a meaning.
fn in_status(recording: &Answer, pod: &str, made: &mut Vec<Mutation>) {
    let status = &recording.last[pod];
    let mut places = Vec::new();
    leaves(status, String::new(), &mut places);
    for (place, value) in places {
        let changed = match (place.rsplit('/').next().unwrap_or_default(), &value) {
            ("exitCode", Value::Number(code)) => json!(code.as_i64().unwrap() + 6),
            ("restartCount", Value::Number(n)) => json!(n.as_i64().unwrap() + 5),
            ("reason", Value::String(_)) => json!("Mutated"),
            ("message", Value::String(text)) => json!(format!("{text} mutated")),
            ("phase", Value::String(phase)) if phase == "Failed" => json!("Unknown"),
            ("phase", Value::String(_)) => json!("Failed"),
            ("lastState", Value::Object(ended)) if !ended.is_empty() => json!({}),
            ("ready", Value::Bool(is_ready)) => json!(!is_ready),
            _ => continue,
        };
        let mut mutated = recording.clone();
        let status = mutated.last.get_mut(pod).unwrap();
        *status.pointer_mut(&place).unwrap() = changed.clone();
        made.push((format!("final.{pod}{place} is {changed}"), mutated));
    }
}

fn leaves(value: &Value, place: String, places: &mut Vec<(String, Value)>) {
    places.push((place.clone(), value.clone()));
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                leaves(value, format!("{place}/{key}"), places);
            }
        }
        Value::Array(all) => {
            for (index, value) in all.iter().enumerate() {
                leaves(value, format!("{place}/{index}"), places);
            }
        }
        _ => {}
    }
}

fn missing_pod(recording: &Answer, pod: &str, made: &mut Vec<Mutation>) {
    let mut missing = recording.clone();
    missing.last.remove(pod);
    missing.sequence.remove(pod);
    missing.gone.remove(pod);
    made.push((format!("{pod} is not there"), missing));
}

fn in_sequence(recording: &Answer, pod: &str, lines: &[String], made: &mut Vec<Mutation>) {
    let with = |lines: Vec<String>| {
        let mut mutated = recording.clone();
        mutated.sequence.insert(pod.to_owned(), lines);
        mutated
    };
    for (index, line) in lines.iter().enumerate() {
        let Some((before, rest)) = line.split_once(":terminated/") else {
            continue;
        };
        let (state, after) = rest.split_once('#').unwrap_or((rest, ""));
        let reason = state.split('/').next().unwrap_or_default();
        let mut other = lines.to_vec();
        other[index] = format!("{before}:terminated/{reason}/77#{after}");
        made.push((format!("sequence.{pod} line {index} ends with 77"), with(other)));
        let mut other = lines.to_vec();
        other[index] = line.replacen(reason, "Mutated", 1);
        made.push((format!("sequence.{pod} line {index} has another reason"), with(other)));
    }
    made.push((format!("sequence.{pod} is empty"), with(Vec::new())));
}

fn in_events(recording: &Answer, all: &[Answer], made: &mut Vec<Mutation>) {
    for (index, event) in recording.events.iter().enumerate() {
        let name = format!("event {} of {}", event.reason, event.pod);
        let mut often = recording.clone();
        often.events[index].count = event.count * 10 + 20;
        made.push((format!("{name} comes far more often"), often));
        let mut other = recording.clone();
        other.events[index].message.push_str(" mutated");
        made.push((format!("{name} says something else"), other));
        let is_same = |it: &answer::Event| {
            (&it.pod, &it.field, &it.reason, &it.message)
                == (&event.pod, &event.field, &event.reason, &event.message)
        };
        // What only one recording has may be missing.
        if all.iter().all(|it| it.events.iter().any(is_same)) {
            let mut fewer = recording.clone();
            fewer.events.remove(index);
            made.push((format!("{name} is not there"), fewer));
        }
    }
}
