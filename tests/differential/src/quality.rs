//! Which recordings may be kept: those of a kubelet, not of a machine that was too busy.
//!
//! Pure. In: all recordings of a case so far. Out: two that can be trusted, or nothing. A value
//! counts as right when any recording has it, so a recording that was cut short would quietly
//! approve of every pod that never starts.

use serde_json::Value;

use crate::answer::Answer;
use crate::compare::compare;

/// The first two recordings that end in the same state and are not cut short.
pub(crate) fn agreeing(recordings: &[Answer]) -> Option<Vec<Answer>> {
    let whole: Vec<&Answer> = recordings.iter().filter(|it| !is_cut_short(it)).collect();
    for (index, one) in whole.iter().enumerate() {
        let other = whole[index + 1..].iter().find(|it| ends_alike(one, it));
        if let Some(other) = other {
            return Some(vec![(*one).clone(), (*other).clone()]);
        }
    }
    None
}

/// Orders of states and events differ between two runs of upstream itself; where a pod ends up does
/// not.
fn ends_alike(one: &Answer, other: &Answer) -> bool {
    let is_end = |path: &str| !path.starts_with("sequence.") && !path.starts_with("events.");
    let found = compare(one, std::slice::from_ref(other));
    !found.iter().any(|it| is_end(&it.path))
}

/// True when a pod was still being made and nobody said why.
fn is_cut_short(answer: &Answer) -> bool {
    let is_waited_for = |(name, status): (&String, &Value)| {
        let is_explained = answer.events.iter().any(|it| it.pod == *name && it.kind == "Warning");
        !is_explained && !answer.gone.contains_key(name) && is_being_made(status)
    };
    answer.last.iter().any(is_waited_for)
}

/// A pod without conditions was not looked at yet, unless it was refused; init containers that run
/// hold the others back.
fn is_being_made(status: &Value) -> bool {
    let list = |key: &str| status[key].as_array().cloned().unwrap_or_default();
    let is_new = |it: &Value| {
        let reason = &it["state"]["waiting"]["reason"];
        reason == "ContainerCreating" || reason == "PodInitializing"
    };
    let init = list("initContainerStatuses");
    let regular = list("containerStatuses");
    if init.is_empty() && regular.is_empty() {
        return status["phase"] == "Pending";
    }
    let is_any_made = init.iter().any(|it| !is_new(it));
    !is_any_made && (init.iter().any(is_new) || regular.iter().any(is_new))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::answer::Event;

    fn answer(status: Value) -> Answer {
        Answer { last: BTreeMap::from([("p".to_owned(), status)]), ..Answer::default() }
    }

    fn container(state: Value) -> Value {
        json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": state}]})
    }

    #[test]
    fn a_pod_that_is_still_being_made_is_cut_short_unless_something_says_why() {
        let making = json!({"waiting": {"reason": "ContainerCreating"}});
        let warned = Answer {
            events: vec![Event {
                pod: "p".to_owned(),
                field: String::new(),
                kind: "Warning".to_owned(),
                reason: "FailedMount".to_owned(),
                message: "no".to_owned(),
                count: 1,
            }],
            ..answer(container(making.clone()))
        };
        let gone = Answer {
            gone: BTreeMap::from([("p".to_owned(), None)]),
            ..answer(container(making.clone()))
        };
        let in_init = json!({
            "phase": "Pending",
            "initContainerStatuses": [{"name": "i", "state": {"running": {}}}],
            "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "PodInitializing"}}}],
        });
        let cases = [
            (answer(container(making)), true),
            (answer(json!({"phase": "Pending"})), true),
            (warned, false),
            (gone, false),
            (answer(in_init), false),
            (answer(json!({"phase": "Failed"})), false),
            (answer(container(json!({"running": {}}))), false),
        ];
        for (answer, expected) in cases {
            assert_eq!(is_cut_short(&answer), expected, "{:?}", answer.last);
        }
    }

    #[test]
    fn two_recordings_count_when_they_end_alike() {
        let ended = |code: i32| answer(container(json!({"terminated": {"exitCode": code}})));
        assert!(agreeing(&[ended(1)]).is_none());
        assert!(agreeing(&[ended(1), ended(2)]).is_none());
        assert_eq!(agreeing(&[ended(1), ended(2), ended(1)]), Some(vec![ended(1), ended(1)]));
    }
}
