use std::collections::BTreeMap;

use super::*;

fn answer(status: Value) -> Answer {
    Answer { last: BTreeMap::from([("p".to_owned(), status)]), ..Answer::default() }
}

fn event(reason: &str, message: &str, count: u64) -> Event {
    Event {
        pod: "p".to_owned(),
        field: "spec.containers{c}".to_owned(),
        kind: "Normal".to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        count,
    }
}

/// `path: ours | theirs`.
fn found(ours: &Answer, theirs: &[Answer]) -> Vec<String> {
    let line = |it: Difference| {
        let theirs: Vec<String> = it.theirs.iter().map(Value::to_string).collect();
        format!("{}: {} | {}", it.path, it.ours, theirs.join(" or "))
    };
    compare(ours, theirs).into_iter().map(line).collect()
}

#[test]
fn a_field_is_right_when_any_recording_has_it() {
    let one = json!({"phase": "Running", "resources": {}, "reason": "A"});
    let other = json!({"phase": "Running", "resources": {"limits": {"cpu": "1"}}, "reason": "B"});
    let cases = [
        (json!({"phase": "Running", "resources": {}, "reason": "B"}), vec![]),
        (json!({"phase": "Running", "resources": {"limits": {"cpu": "1"}}, "reason": "A"}), vec![]),
        (
            json!({"phase": "Failed", "resources": {}, "reason": "A"}),
            vec![r#"final.p.phase: "Failed" | "Running""#],
        ),
        (
            json!({"phase": "Running", "resources": {}}),
            vec![r#"final.p.reason: null | "A" or "B""#],
        ),
        (
            json!({"phase": "Running", "resources": {"limits": {"cpu": "2"}}, "reason": "A", "message": "new"}),
            vec![r#"final.p.message: "new" | null"#, r#"final.p.resources.limits.cpu: "2" | "1""#],
        ),
    ];
    for (ours, expected) in cases {
        assert_eq!(found(&answer(ours), &[answer(one.clone()), answer(other.clone())]), expected);
    }
}

#[test]
fn named_things_are_compared_by_name_and_their_order_is_one_difference() {
    let conditions = |names: [&str; 2], status: &str| {
        answer(json!({"conditions": [
            {"type": names[0], "status": status},
            {"type": names[1], "status": "True"},
        ]}))
    };
    let theirs = [conditions(["Ready", "Initialized"], "True")];
    assert_eq!(
        found(&conditions(["Ready", "Initialized"], "False"), &theirs),
        [r#"final.p.conditions[Ready].status: "False" | "True""#]
    );
    assert_eq!(
        found(&conditions(["Initialized", "Ready"], "True"), &theirs),
        [r#"final.p.conditions.order: ["Initialized","Ready"] | ["Ready","Initialized"]"#]
    );
}

#[test]
fn events_differ_in_being_there_in_what_they_say_and_in_how_often() {
    let with = |events: &[Event]| Answer { events: events.to_vec(), ..Answer::default() };
    let (once, often) = (event("Started", "go", 1), event("Unhealthy", "sick", 12));
    let theirs = [
        with(&[once.clone(), often.clone()]),
        with(&[event("Unhealthy", "sick", 13), once.clone(), event("Extra", "now and then", 1)]),
    ];
    let cases = [
        (vec![once.clone(), often.clone()], vec![]),
        (
            vec![once.clone(), event("Unhealthy", "sick", 9), event("Extra", "now and then", 1)],
            vec![],
        ),
        (
            vec![once.clone(), event("Unhealthy", "sick", 2)],
            vec!["events.p.c.Unhealthy.count: 2 | 12 or 13"],
        ),
        (vec![event("Started", "go", 2), often.clone()], vec!["events.p.c.Started.count: 2 | 1"]),
        (
            vec![event("Started", "went", 1), often.clone()],
            vec![r#"events.p.c.Started: "Normal x1: went" | "Normal x1: go""#],
        ),
        (vec![often.clone()], vec![r#"events.p.c.Started: null | "Normal x1: go""#]),
        (
            vec![once, often, event("Odd", "what", 1)],
            vec![r#"events.p.c.Odd: "Normal x1: what" | null"#],
        ),
    ];
    for (ours, expected) in cases {
        assert_eq!(found(&with(&ours), &theirs), expected);
    }
}

#[test]
fn the_order_of_states_must_be_that_of_a_recording() {
    let with = |states: &[&str]| Answer {
        sequence: BTreeMap::from([(
            "p".to_owned(),
            states.iter().map(|it| (*it).to_owned()).collect(),
        )]),
        ..Answer::default()
    };
    let theirs = [with(&["Pending", "Running"]), with(&["Pending", "Running", "gone"])];
    assert!(found(&with(&["Pending", "Running"]), &theirs).is_empty());
    assert_eq!(
        found(&with(&["Running", "Pending"]), &theirs),
        [
            r#"sequence.p: ["Running","Pending"] | ["Pending","Running"] or ["Pending","Running","gone"]"#
        ]
    );
}

#[test]
fn a_list_becomes_another_by_the_fewest_lines() {
    let list = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
    let cases = [
        ("abc", "abc", vec![]),
        ("abc", "ac", vec!["- b"]),
        ("ac", "abc", vec!["+ b"]),
        ("abc", "axc", vec!["- b", "+ x"]),
        ("", "a", vec!["+ a"]),
    ];
    for (from, to, expected) in cases {
        assert_eq!(changes(&list(from), &list(to)), expected, "{from} to {to}");
    }
}

#[test]
fn a_deletion_takes_about_as_long_as_in_a_recording() {
    let with = |gone: Option<Option<f64>>| Answer {
        gone: gone.map(|it| ("p".to_owned(), it)).into_iter().collect(),
        ..Answer::default()
    };
    let cases = [
        (Some(Some(2.0)), Some(Some(3.1)), true),
        (Some(Some(2.0)), Some(None), true),
        (Some(Some(2.0)), Some(Some(30.0)), false),
        (None, Some(None), false),
        (Some(Some(2.0)), None, false),
        (None, None, true),
    ];
    for (ours, theirs, is_right) in cases {
        assert_eq!(found(&with(ours), &[with(theirs)]).is_empty(), is_right, "{ours:?} {theirs:?}");
    }
}

#[test]
fn changes_may_be_told_together_or_one_after_the_other() {
    let check = |one: &[&str], other: &[&str], is_same: bool| {
        let with = |lines: &[&str]| Answer {
            sequence: BTreeMap::from([(
                "p".to_owned(),
                lines.iter().map(|it| (*it).to_owned()).collect(),
            )]),
            ..Answer::default()
        };
        for (one, other) in [(one, other), (other, one)] {
            let found = found(&with(one), &[with(other)]);
            assert_eq!(found.is_empty(), is_same, "{one:?} {other:?}");
        }
    };
    let begin = "Pending Made=F a:waiting#0 b:waiting#0";
    let both = "Running Made=T a:running#0+ b:running#0+";
    // The sandbox alone, then one container, or all at once.
    check(&[begin, "Pending Made=T a:waiting#0 b:waiting#0", both], &[begin, both], true);
    check(&[begin, "Running Made=T a:running#0+ b:waiting#0", both], &[begin, both], true);
    // Running and not ready is something else.
    check(&[begin, "Running Made=T a:running#0 b:running#0+", both], &[begin, both], false);
    let (after, end) = (
        "Running Made=T a:terminated/0#0 b:terminated/0#0",
        "Succeeded Made=F a:terminated/0#0 b:terminated/0#0",
    );
    check(
        &[both, "Running Made=T a:running#0+ b:terminated/0#0", after],
        &[both, "Running Made=T a:terminated/0#0 b:running#0+", after],
        true,
    );
    // Something ran, or nothing did and the pod was not over: that is said only there.
    check(&[both, after, end], &[both, end], false);
    check(&[begin, both, end], &[begin, end], false);
    check(&[both, "Running Made=T a:waiting/Crash#0 b:running#0+", both], &[both], false);
}
