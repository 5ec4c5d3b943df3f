//! How pods end, and that nothing starts then.

use super::*;

/// A pod that nobody wants to run on, of which its corpses and files are left.
fn ended(wish: Wish) -> Scene {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    scene.wish = wish;
    let step = scene.step();
    assert_eq!(step.next, stopping(30));
    assert_eq!(in_words(&step), "stop c-0 30s PodEnds; stop s-0");

    let mut scene = scene.sandboxes(vec![sandbox(0, false)]);
    scene.state = step.next;
    scene.seen.containers[0].state = exited(0, NOW - 20, NOW);
    assert_eq!(scene.plan(), "release volumes");
    scene.setup.volumes = Presence::Absent;
    assert_eq!(scene.plan(), "remove cgroup");
    scene.setup.cgroup = Presence::Absent;
    scene
}

/// Terminating, terminated, finished; nothing is left of it.
#[test]
fn a_forgotten_pod_goes_step_by_step() {
    let mut scene = ended(Wish::Forget { grace: None });
    assert_eq!(scene.plan(), "remove c-0; remove s-0");
    scene.seen.containers.clear();
    scene.seen.sandboxes.clear();
    assert_eq!(scene.plan(), "remove files, remove logs");
    scene.setup.files = Presence::Absent;
    scene.setup.logs = Presence::Absent;
    assert_eq!(scene.step(), Step::rest(PodState::Gone));
}

/// A terminal phase ends the pod; the newest dead container of each name stays.
#[test]
fn a_terminal_pod_is_taken_down_but_keeps_its_corpses() {
    let mut scene = Scene::new(pod("Never", vec![], vec![container("c")]))
        .with(vec![seen_container("c", 0, exited(0, NOW - 20, NOW - 10))]);
    scene.phase = Phase::Succeeded;
    assert_eq!(scene.plan(), "stop s-0");
    let mut scene = scene.sandboxes(vec![sandbox(0, false)]);
    scene.setup.volumes = Presence::Absent;
    scene.setup.cgroup = Presence::Absent;
    assert_eq!(scene.step(), Step::rest(PodState::Settled));
}

/// Dead containers, sandboxes and pod log directories: an evicted pod loses all of them, and
/// stays known.
#[test]
fn an_evicted_pod_keeps_nothing_but_its_status() {
    let mut scene = Scene::new(simple()).sandboxes(vec![sandbox(0, false)]).with(vec![
        seen_container("c", 1, exited(137, NOW - 20, NOW - 10)),
        seen_container("c", 0, exited(1, NOW - 40, NOW - 30)),
    ]);
    (scene.phase, scene.kept) = (Phase::Failed, KeptContainers::None);
    scene.wish = Wish::End { grace: None };
    scene.setup.volumes = Presence::Absent;
    scene.setup.cgroup = Presence::Absent;
    assert_eq!(scene.plan(), "remove c-1, remove c-0; remove s-0");
    scene.state = PodState::Settled;
    scene.seen.containers.clear();
    scene.seen.sandboxes.clear();
    assert_eq!(scene.plan(), "remove logs");
    scene.setup.logs = Presence::Absent;
    assert_eq!(scene.step(), Step::rest(PodState::Settled));
}

/// A pod that is turned away although it runs, because its earlier life was forgotten.
#[test]
fn what_runs_of_a_settled_pod_is_ended() {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    (scene.state, scene.phase) = (PodState::Settled, Phase::Failed);
    assert_eq!(scene.plan(), "stop c-0 30s PodEnds; stop s-0");
    assert_eq!(scene.step().next, stopping(30));
    let mut scene = Scene::new(simple()).with(vec![]);
    (scene.state, scene.phase) = (PodState::Settled, Phase::Failed);
    assert_eq!(scene.plan(), "stop s-0");
}

/// Drivers take claims back when nothing runs any more, and before the pod counts as over: whoever
/// gets them next must find them free.
#[test]
fn claims_are_taken_back_while_the_pod_is_still_stopping() {
    let mut scene = Scene::new(simple()).sandboxes(vec![sandbox(0, false)]);
    (scene.state, scene.wish) = (stopping(30), Wish::End { grace: None });
    scene.holds_claims = true;
    assert_eq!(scene.plan(), "unprepare claims");
    assert_eq!(scene.step().next, stopping(30));
    let failure = Failure { message: "away".to_owned(), count: 1, at: at(NOW) };
    scene.pod_failure = Some(failure);
    assert_eq!((scene.plan().as_str(), scene.step().next), ("", stopping(30)));
    scene.pod_failure = None;
    scene.holds_claims = false;
    assert_eq!(scene.step().next, PodState::Stopped);
    // An earlier life ended before it was done, and nobody asks for the pod.
    scene.pod = None;
    scene.holds_claims = true;
    scene.state = PodState::Settled;
    assert_eq!(scene.plan(), "unprepare claims");
}

/// Grace period: lowered, never raised, at least a second.
#[test]
fn a_second_kill_cannot_buy_more_time() {
    let check = |asked: Option<i64>, grace: i64| {
        let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
        scene.state = stopping(5);
        scene.wish = Wish::End { grace: asked.map(GracePeriod::from_secs) };
        assert_eq!(scene.step().next, stopping(grace), "asked {asked:?}");
    };
    check(None, 5);
    check(Some(50), 5);
    check(Some(3), 3);
    check(Some(0), 1);
}

/// A pod that only the runtime knows gets a second; the runtime is told two.
#[test]
fn what_nobody_asked_for_gets_a_second() {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    scene.pod = None;
    scene.wish = Wish::Forget { grace: None };
    assert_eq!(scene.step().next, stopping(1));
    assert_eq!(scene.plan(), "stop c-0 1s PodEnds; stop s-0");
}

/// `create` for a UID that is terminating: the next life finds the containers of this one, and
/// counts on.
#[test]
fn a_pod_that_begins_anew_ends_and_keeps_its_corpses() {
    let scene = ended(Wish::Renew { grace: None });
    assert_eq!(scene.step(), Step::rest(PodState::Gone));
}

/// There is no way back from terminating.
#[test]
fn nothing_starts_once_a_pod_has_left_running() {
    let states = [stopping(5), PodState::Stopped, PodState::Settled, PodState::Gone];
    for state in states {
        let mut scene = Scene::new(simple()).with(vec![]);
        scene.state = state;
        let starts = scene.step().stages.into_iter().flatten().any(|action| {
            matches!(
                action,
                Action::Start { .. } | Action::CreateSandbox { .. } | Action::EnsureCgroup
            )
        });
        assert!(!starts, "{state:?}");
    }
}

/// Enter terminating: each of upstream's causes, and nothing else.
#[test]
fn each_of_upstreams_causes_ends_a_pod() {
    type Cause = (&'static str, fn(&mut Scene));
    let causes: [Cause; 6] = [
        ("only the runtime knows it", |scene| {
            scene.pod = None;
            scene.wish = Wish::Forget { grace: None };
        }),
        ("it is deleted", |scene| {
            let meta = &mut scene.pod.as_mut().unwrap().metadata;
            meta.deletion_timestamp = Some(Time(at(NOW).0));
        }),
        ("it failed", |scene| scene.phase = Phase::Failed),
        ("it succeeded", |scene| scene.phase = Phase::Succeeded),
        ("it is evicted", |scene| {
            let grace = Some(GracePeriod::from_secs(1));
            scene.wish = Wish::End { grace };
        }),
        ("its source dropped it", |scene| {
            scene.wish = Wish::Forget { grace: None };
        }),
    ];
    let living = || Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    assert_eq!(living().step().next, PodState::Running);
    for (why, cause) in causes {
        let mut scene = living();
        cause(&mut scene);
        let next = scene.step().next;
        assert!(matches!(next, PodState::Stopping { .. }), "{why}: {next:?}");
    }
}

/// Grace period: the deletion's, else the specification's; lowered by who asks for less; at
/// least a second.
#[test]
fn the_grace_is_the_least_that_anybody_asks_for() {
    let check = |spec: Option<i64>, deletion: Option<i64>, asked: Option<i64>, grace: i64| {
        let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
        let pod = scene.pod.as_mut().unwrap();
        pod.spec.as_mut().unwrap().termination_grace_period_seconds = spec;
        if deletion.is_some() {
            pod.metadata.deletion_timestamp = Some(Time(at(NOW).0));
            pod.metadata.deletion_grace_period_seconds = deletion;
        }
        let asked = asked.map(GracePeriod::from_secs);
        scene.wish = Wish::End { grace: asked };
        assert_eq!(scene.step().next, stopping(grace), "{spec:?} {deletion:?} {asked:?}");
    };
    check(None, None, None, 30);
    check(Some(60), None, None, 60);
    check(Some(60), Some(20), None, 20);
    check(Some(60), Some(90), None, 90);
    check(Some(60), Some(20), Some(5), 5);
    check(Some(60), Some(20), Some(40), 20);
    check(Some(0), None, None, 1);
    check(Some(60), Some(0), None, 1);
}

/// First sight of a pod that has ended: nothing runs, so there is nothing to stop.
#[test]
fn a_pod_that_was_over_before_it_was_seen_is_cleaned_up_at_once() {
    for phase in [Phase::Succeeded, Phase::Failed] {
        let mut scene = Scene::new(simple())
            .sandboxes(vec![sandbox(0, false)])
            .with(vec![seen_container("c", 0, exited(0, NOW - 90, NOW - 80))]);
        scene.phase = phase;
        scene.setup = Setup::default();
        let step = scene.step();
        assert_eq!(step.next, PodState::Stopped, "{phase:?}");
        assert_eq!(in_words(&step), "release volumes", "{phase:?}");
    }
}

/// Active deadline: counted from the start of the pod, and none without one.
#[test]
fn a_deadline_counts_from_the_start_of_the_pod() {
    let check = |secs: Option<i64>, due: Option<i64>| {
        let mut pod = simple();
        pod.spec.as_mut().unwrap().active_deadline_seconds = secs;
        assert_eq!(deadline(&pod, at(NOW)), due.map(at), "{secs:?}");
    };
    check(None, None);
    check(Some(60), Some(NOW + 60));
    check(Some(0), Some(NOW));
    check(Some(-1), Some(NOW));
}

/// Pod cgroups: while volumes are still there the cgroup stays, and what may be left in it
/// gets little of the processors.
#[test]
fn a_pod_whose_volumes_stay_keeps_its_cgroup_and_loses_its_weight() {
    let failure = Failure { message: "busy".to_owned(), count: 1, at: at(NOW - 1) };
    let check = |volumes, failure: Option<Failure>, expected: &str| {
        for pod in [Some(simple()), None] {
            let mut scene = Scene::new(simple()).sandboxes(vec![sandbox(0, false)]);
            scene.pod = pod;
            scene.state = PodState::Stopped;
            scene.wish = Wish::Forget { grace: None };
            scene.setup.volumes = volumes;
            scene.pod_failure = failure.clone();
            assert_eq!(scene.plan(), expected, "{volumes:?} {failure:?}");
        }
    };
    let again = || Some(failure.clone());
    for volumes in [Presence::Unknown, Presence::Present] {
        check(volumes, None, "release volumes");
        check(volumes, again(), "lower cpu; release volumes");
    }
    check(Presence::Absent, None, "remove cgroup");
    check(Presence::Absent, again(), "remove cgroup");
}

/// What the runtime will not remove holds up nobody who is wanted, and is asked for
/// again where it is all that is left.
#[test]
fn a_refused_removal_holds_up_only_what_nobody_asked_for() {
    for (refusal, claim, expected) in [
        (Refusal::Standing, Claim::Wanted, AfterRefusal::GoOn),
        (Refusal::Standing, Claim::Unclaimed, AfterRefusal::TryAgain),
        (Refusal::Passing, Claim::Wanted, AfterRefusal::TryAgain),
        (Refusal::Passing, Claim::Unclaimed, AfterRefusal::TryAgain),
    ] {
        let found = after_refusal(refusal, claim);
        assert_eq!(found, expected, "{refusal:?} {claim:?}");
    }
}

/// Hook and order take whole seconds of the grace; two seconds are the shortest stop, whatever
/// was asked for.
#[test]
fn a_hook_takes_whole_seconds_of_the_grace_and_leaves_the_shortest_stop() {
    for (grace, spent_ms, left) in [
        (30, 0, 30),
        (5, 2_001, 3),
        (5, 2_999, 3),
        (5, 4_500, 2),
        (5, 60_000, 2),
        (1, 0, 2),
        (0, 0, 2),
    ] {
        let spent = Duration::from_millis(spent_ms);
        let found = left_to_stop(GracePeriod::from_secs(grace), spent);
        let expected = GracePeriod::from_secs(left);
        assert_eq!(found, expected, "{grace} s, {spent_ms} ms");
    }
}

/// Kill waiters: ten seconds, or one and a half times the grace when that is longer.
#[test]
fn a_kill_is_overdue_after_half_as_much_again_as_its_grace() {
    for (grace, secs) in [(0, 10), (1, 10), (6, 10), (8, 12), (30, 45)] {
        let due = kill_is_overdue_at(at(NOW), GracePeriod::from_secs(grace));
        assert_eq!(due, at(NOW + secs), "{grace} s");
    }
}
