use ferrolet_ports::{EventKind, EventObject};
use ferrolet_types::{PodKey, PodUid};
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::fake::{FakeApi, TokioClock};

const ROOT: &str = "/api/v1/namespaces/n/events";

fn event(pod: &str, reason: &str, message: &str) -> Event {
    Event {
        object: EventObject::Pod {
            uid: PodUid::new(format!("uid-of-{pod}")),
            key: PodKey::new("n", pod),
            field_path: Some("spec.containers{main}".to_owned()),
        },
        kind: EventKind::Warning,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// Runs events through the correlator, one each `step`, and tells what became of each.
fn judge(events: &[(&str, &str)], step: Duration) -> Vec<String> {
    let mut correlator = Correlator::new();
    let mut now = Timestamp::from_second(1_800_000_000);
    let mut verdicts = Vec::new();
    for (reason, message) in events {
        let built = object::build(&event("p", reason, message), "me", now);
        verdicts.push(match correlator.correlate(built, now) {
            Verdict::Drop => "dropped".to_owned(),
            Verdict::Create { event, .. } => format!("create {}", event.message.unwrap()),
            Verdict::Patch { event, patch, .. } => {
                assert_eq!(patch["message"], json!(event.message));
                format!("patch {} x{}", event.message.unwrap(), patch["count"])
            }
        });
        now = now.after(step);
    }
    verdicts
}

#[test]
fn equal_events_are_counted_and_similar_ones_combined() {
    let check = |events: &[(&str, &str)], step: u64, expected: &[&str]| {
        assert_eq!(judge(events, Duration::from_secs(step)), expected);
    };
    check(
        &[("Failed", "a"), ("Failed", "a"), ("Failed", "b"), ("Failed", "a")],
        1,
        &["create a", "patch a x2", "create b", "patch a x3"],
    );
    let messages: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    let many: Vec<(&str, &str)> = messages.iter().map(|it| ("Failed", it.as_str())).collect();
    let singly = |n: usize| -> Vec<String> { (0..n).map(|n| format!("create {n}")).collect() };
    let mut expected = singly(9);
    expected.push("create (combined from similar events): 9".to_owned());
    expected.push("patch (combined from similar events): 10 x2".to_owned());
    expected.push("patch (combined from similar events): 11 x3".to_owned());
    assert_eq!(judge(&many, Duration::from_secs(1)), expected);
    // Far enough apart they are never alike, and the spam filter fills up between them.
    assert_eq!(judge(&many, Duration::from_secs(601)), singly(12));
}

#[test]
fn an_object_that_says_too_much_is_cut_off_and_counted_on() {
    let many = vec![("Failed", "a"); 27];
    let verdicts = judge(&many, Duration::from_millis(10));
    assert_eq!(verdicts[24], "patch a x25");
    assert_eq!(&verdicts[25..], ["dropped", "dropped"]);
    let verdicts = judge(&vec![("Failed", "a"); 40], Duration::from_secs(300));
    assert_eq!(verdicts[39], "patch a x40");
}

#[tokio::test(start_paused = true)]
async fn events_look_like_upstreams() {
    let api = FakeApi::new();
    let (sink, writer) = channel(api.client(), "me".to_owned(), Arc::new(TokioClock));
    tokio::spawn(writer.run());
    let annotations = [("starved_resource".to_owned(), "memory".to_owned())].into();
    sink.record_annotated(event("p", "Failed", "Error: no"), annotations);
    sink.record(Event { object: EventObject::Node, ..event("", "Starting", "") });
    let of_node = "/api/v1/namespaces/default/events/me.";
    api.until("both", |api| !api.objects_under(of_node).is_empty()).await;
    let stored = api.objects_under(ROOT).remove(0);
    assert_eq!(stored["source"], json!({"component": "kubelet", "host": "me"}));
    assert_eq!(stored["metadata"]["annotations"], json!({"starved_resource": "memory"}));
    assert_eq!(stored["reportingComponent"], "kubelet");
    assert_eq!(stored["reportingInstance"], "me");
    assert_eq!(
        stored["involvedObject"],
        json!({"kind": "Pod", "apiVersion": "v1", "namespace": "n", "name": "p", "uid": "uid-of-p",
            "fieldPath": "spec.containers{main}"})
    );
    assert_eq!((stored["count"].as_i64(), stored["type"].as_str()), (Some(1), Some("Warning")));
    assert_eq!(stored["firstTimestamp"], stored["lastTimestamp"]);
    let node = api.objects_under(of_node).remove(0);
    assert_eq!(node["involvedObject"], json!({"kind": "Node", "name": "me", "uid": "me"}));
}

#[tokio::test(start_paused = true)]
async fn repeats_become_one_event_with_a_count_even_after_it_expired() {
    let api = FakeApi::new();
    let (sink, writer) = channel(api.client(), "me".to_owned(), Arc::new(TokioClock));
    tokio::spawn(writer.run());
    for _ in 0..3 {
        sink.record(event("p", "BackOff", "again"));
    }
    let count = |api: &FakeApi| -> Vec<i64> {
        let stored = api.objects_under(ROOT);
        stored.iter().filter_map(|it| it["count"].as_i64()).collect()
    };
    api.until("three in one", |api| count(api) == [3]).await;
    let name = api.objects_under(ROOT)[0]["metadata"]["name"].clone();
    api.remove(&format!("{ROOT}/{}", name.as_str().unwrap()));
    sink.record(event("p", "BackOff", "again"));
    api.until("created anew", |api| count(api) == [4]).await;
}

#[tokio::test(start_paused = true)]
async fn an_absent_server_is_waited_for_and_a_refusal_is_not_repeated() {
    let api = FakeApi::new();
    let (sink, writer) = channel(api.client(), "me".to_owned(), Arc::new(TokioClock));
    tokio::spawn(writer.run());
    api.refuse_next(403, json!({"status": "Failure", "reason": "Forbidden"}));
    sink.record(event("a", "First", "refused"));
    sink.record(event("b", "Second", "taken"));
    api.until("second", |api| api.objects_under(ROOT).len() == 1).await;
    api.go_away();
    let dials = api.n_dials();
    sink.record(event("c", "Third", "waits"));
    api.until("tried", |api| api.n_dials() >= dials + 5).await;
    api.come_back();
    api.until("third", |api| api.objects_under(ROOT).len() == 2).await;
    api.go_away();
    let began = Instant::now();
    let dials = api.n_dials();
    sink.record(event("d", "Fourth", "lost"));
    api.until("gave up", |api| api.n_dials() >= dials + 12).await;
    assert!(began.elapsed() <= Duration::from_secs(120));
    api.come_back();
    sink.record(event("e", "Fifth", "taken"));
    api.until("fifth", |api| api.objects_under(ROOT).len() == 3).await;
    let reasons: Vec<_> = api.objects_under(ROOT);
    assert!(reasons.iter().all(|it| it["reason"] != "Fourth"));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_instead_of_blocking() {
    let api = FakeApi::new();
    let (sink, _writer) = channel(api.client(), "me".to_owned(), Arc::new(TokioClock));
    for _ in 0..2 * QUEUE {
        sink.record(event("p", "Failed", "much"));
    }
    assert_eq!(sink.queue.capacity(), 0);
}
