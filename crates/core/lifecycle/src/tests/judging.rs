//! Verdicts of the node over a pod at work, and what a step gives to tell.

use ferrolet_types::EvictionReason;

use super::*;

fn ending(step: &Step) -> Option<&EndReason> {
    step.verdict.as_ref().map(|it| &it.reason)
}

#[test]
fn a_pod_that_outlives_its_deadline_is_ended_once() {
    let mut pod = simple();
    pod.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
    let check = |age: Option<i64>, is_judged: bool, plan: &str, expected: Option<EndReason>| {
        let mut scene = Scene::new(pod.clone()).with(vec![seen_container("c", 0, running())]);
        scene.started_at = age.map(|age| at(NOW - age));
        scene.is_judged = is_judged;
        let step = scene.step();
        assert_eq!((in_words(&step).as_str(), ending(&step)), (plan, expected.as_ref()), "{age:?}");
        let told: Vec<StepEvent> = step.verdict.into_iter().map(StepEvent::Ends).collect();
        assert_eq!(step.events, told);
    };
    check(None, false, "", None);
    check(Some(59), false, "", None);
    check(Some(60), false, "stop c-0 30s PodEnds; stop s-0", Some(EndReason::DeadlineExceeded));
    check(Some(60), true, "", None);
}

#[test]
fn a_deadline_to_come_wakes_the_worker() {
    let mut pod = simple();
    pod.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
    let mut scene = Scene::new(pod).with(vec![seen_container("c", 0, running())]);
    scene.started_at = Some(at(NOW - 20));
    assert_eq!(scene.step().wake_at, Some(at(NOW + 40)));
    scene.state = stopping(30);
    assert_eq!(scene.step().verdict, None);
}

#[test]
fn an_evicted_pod_fails_and_leaves_nothing_behind() {
    let mut scene = Scene::new(simple()).with(vec![
        seen_container("c", 1, running()),
        seen_container("c", 0, exited(1, NOW - 90, NOW - 80)),
    ]);
    let order = |disruption: Option<&str>| Eviction {
        uid: "u".into(),
        reason: EvictionReason::Evicted,
        message: "too much".to_owned(),
        annotations: [("starved_resource".to_owned(), "memory".to_owned())].into(),
        disruption: disruption.map(str::to_owned),
        grace: None,
    };
    scene.eviction = Some(order(Some("short")));
    scene.wish = Wish::End { grace: Some(GracePeriod::from_secs(5)) };
    let step = scene.step();
    let verdict = Ending {
        reason: EndReason::Evicted,
        message: "too much".to_owned(),
        disruption: Some("short".to_owned()),
        annotations: order(None).annotations,
    };
    assert_eq!(in_words(&step), "stop c-1 5s PodEnds; stop s-0");
    assert_eq!(step.events, [StepEvent::Ends(verdict.clone())]);
    assert_eq!(step.verdict, Some(verdict));
    // One that ends already needs no other reason to.
    scene.state = stopping(30);
    assert_eq!(scene.step().verdict, None);
}

#[test]
fn what_newly_holds_a_container_back_is_told_once() {
    let mut scene =
        Scene::new(simple()).with(vec![seen_container("c", 3, exited(1, NOW - 9, NOW - 8))]);
    let back_off = StepEvent::RestartBackOff { container: "c".into() };
    let step = scene.step();
    assert_eq!(step.events, [back_off]);
    scene.waiting = step.waiting;
    assert_eq!(scene.step().events, []);
}

#[test]
fn a_failed_pull_is_told_when_it_becomes_a_back_off() {
    let mut scene = Scene::new(simple()).with(vec![]);
    let error = StartError {
        kind: FailureKind::ImagePull { image: "busybox".to_owned() },
        reason: WaitingReason::ErrImagePull,
        message: "no such tag".to_owned(),
    };
    let mut check = |failed_ago: i64, reason: WaitingReason, events: &[StepEvent]| {
        let failure = StartFailure { error: error.clone(), count: 1, at: at(NOW - failed_ago) };
        scene.failures.insert(ContainerName::new("c"), failure);
        let step = scene.step();
        assert_eq!(step.waiting["c"].reason, reason, "{failed_ago} s ago");
        assert_eq!(step.events, events, "{failed_ago} s ago");
        scene.waiting = step.waiting;
    };
    let back_off = StepEvent::PullBackOff { container: "c".into(), image: "busybox".to_owned() };
    check(0, WaitingReason::ErrImagePull, &[]);
    check(5, WaitingReason::ImagePullBackOff, std::slice::from_ref(&back_off));
    check(6, WaitingReason::ImagePullBackOff, &[]);
    // The next try is under way: what it waits for is the failure.
    check(11, WaitingReason::ErrImagePull, &[]);
}

#[test]
fn a_container_that_leaves_its_back_off_waits_until_it_runs() {
    let mut scene =
        Scene::new(simple()).with(vec![seen_container("c", 1, exited(1, NOW - 60, NOW - 50))]);
    let was =
        Waiting { reason: WaitingReason::CrashLoopBackOff, message: "back-off 10s".to_owned() };
    scene.waiting.insert("c".into(), was.clone());
    let step = scene.step();
    assert_eq!(in_words(&step), "start c#2~2");
    assert_eq!((step.waiting.get("c"), step.events), (Some(&was), Vec::new()));
}

#[test]
fn a_network_that_is_not_ready_is_told_once() {
    let mut scene = Scene::new(simple());
    scene.network_trouble = Some("no plugin");
    let hold = Hold::NetworkNotReady("no plugin".to_owned());
    assert_eq!(scene.step().events, [StepEvent::Held(hold.clone())]);
    scene.hold = Some(hold);
    assert_eq!(scene.step().events, []);
}
