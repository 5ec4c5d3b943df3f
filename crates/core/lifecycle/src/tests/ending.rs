//! How pods end, and that nothing starts then.

use super::*;

/// 8.2 and 8.3: terminating, terminated, finished; 8.13: nothing is left of it.
#[test]
fn a_forgotten_pod_goes_step_by_step() {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    scene.wish = Wish::Forget { grace: None };
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
    assert_eq!(scene.plan(), "remove c-0; remove s-0");
    scene.seen.containers.clear();
    scene.seen.sandboxes.clear();
    assert_eq!(scene.plan(), "remove files, remove logs");
    scene.setup.files = Presence::Absent;
    scene.setup.logs = Presence::Absent;
    assert_eq!(scene.step(), Step::rest(PodState::Gone));
}

/// 8.2: a terminal phase ends the pod; 8.13: the newest dead container of each name stays.
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

/// 8.2, grace period: lowered, never raised, at least a second.
#[test]
fn a_second_kill_cannot_buy_more_time() {
    let check = |asked: Option<i64>, grace: i64| {
        let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
        scene.state = stopping(5);
        scene.wish = Wish::End {
            grace: asked.map(GracePeriod::from_secs),
        };
        assert_eq!(scene.step().next, stopping(grace), "asked {asked:?}");
    };
    check(None, 5);
    check(Some(50), 5);
    check(Some(3), 3);
    check(Some(0), 1);
}

/// 8.2: a pod that only the runtime knows gets a second; 8.7: the runtime is told two.
#[test]
fn what_nobody_asked_for_gets_a_second() {
    let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
    scene.pod = None;
    scene.wish = Wish::Forget { grace: None };
    assert_eq!(scene.step().next, stopping(1));
    assert_eq!(scene.plan(), "stop c-0 2s PodEnds; stop s-0");
}

/// 8.2: there is no way back from terminating.
#[test]
fn nothing_starts_once_a_pod_has_left_running() {
    let states = [
        stopping(5),
        PodState::Stopped,
        PodState::Settled,
        PodState::Gone,
    ];
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
