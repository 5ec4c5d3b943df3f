//! Init containers and sidecars: their order, at the start and at the end.

use super::*;

#[test]
fn init_containers_run_one_after_the_other() {
    let two = || {
        Scene::new(pod(
            "Always",
            vec![container("i"), container("j")],
            vec![container("c")],
        ))
    };
    let done = |name: &str| seen_container(name, 0, exited(0, NOW - 20, NOW - 10));
    assert_eq!(two().with(vec![]).plan(), "start i");
    assert_eq!(
        two().with(vec![seen_container("i", 0, running())]).plan(),
        ""
    );
    assert_eq!(two().with(vec![done("i")]).plan(), "start j");
    // The runtime may have forgotten the first one.
    assert_eq!(two().with(vec![done("j")]).plan(), "start c");
    assert_eq!(
        two().with(vec![seen_container("c", 0, running())]).plan(),
        ""
    );
}

#[test]
fn a_failed_init_container_is_tried_again_unless_the_policy_forbids_it() {
    let check = |policy: &str, plan: &str| {
        let scene = Scene::new(pod(policy, vec![container("i")], vec![container("c")]))
            .with(vec![seen_container("i", 0, exited(1, NOW - 20, NOW - 10))]);
        assert_eq!(scene.plan(), plan, "{policy}");
    };
    check("Always", "start i#1~1");
    check("OnFailure", "start i#1~1");
    check("Never", "stop s-0");
}

#[test]
fn a_sidecar_counts_as_done_once_it_runs_and_has_started() {
    let scene = |probe: bool| {
        let mut side = sidecar("s");
        side.startup_probe = probe.then(Probe::default);
        Scene::new(pod(
            "Always",
            vec![side, container("i")],
            vec![container("c")],
        ))
        .with(vec![seen_container("s", 0, running())])
    };
    assert_eq!(scene(false).plan(), "start i");
    assert_eq!(scene(true).plan(), "");
    let mut started = scene(true);
    started.probes.insert(
        ContainerName::new("s"),
        probes(Verdict::Pending, Verdict::Success),
    );
    assert_eq!(started.plan(), "start i");
}

#[test]
fn a_sidecar_comes_back_at_any_time() {
    let spec = || {
        pod(
            "Never",
            vec![sidecar("s"), container("i")],
            vec![container("c")],
        )
    };
    let dead = || seen_container("s", 0, exited(0, NOW - 20, NOW - 10));
    let during = Scene::new(spec()).with(vec![seen_container("i", 0, running()), dead()]);
    assert_eq!(during.plan(), "start s#1~1");
    let after = Scene::new(spec()).with(vec![seen_container("c", 0, running()), dead()]);
    assert_eq!(after.plan(), "start s#1~1");
    let forgotten = Scene::new(spec()).with(vec![seen_container("c", 0, running())]);
    assert_eq!(forgotten.plan(), "start s");
}

#[test]
fn sidecars_do_not_keep_a_pod_alive_whose_work_is_done() {
    let scene = Scene::new(pod("Never", vec![sidecar("s")], vec![container("c")])).with(vec![
        seen_container("c", 0, exited(0, NOW - 20, NOW - 10)),
        seen_container("s", 0, running()),
    ]);
    assert_eq!(scene.plan(), "stop s-0 30s PodEnds; stop s-0");
}

#[test]
fn sidecars_stop_last_and_in_reverse_order() {
    let mut scene = Scene::new(pod(
        "Always",
        vec![sidecar("s"), sidecar("t")],
        vec![container("a"), container("b")],
    ))
    .with(
        ["a", "b", "t", "s"]
            .map(|name| seen_container(name, 0, running()))
            .to_vec(),
    );
    scene.wish = Wish::End { grace: None };
    assert_eq!(scene.plan(), "stop a-0 30s PodEnds, stop b-0 30s PodEnds");
    // The regular ones took ten seconds: the sidecars share what is left.
    scene.state = PodState::Stopping {
        grace: GracePeriod::from_secs(30),
        since: at(NOW - 10),
    };
    scene.seen.containers.drain(..2);
    assert_eq!(scene.plan(), "stop t-0 20s PodEnds");
    scene.seen.containers.remove(0);
    scene.state = PodState::Stopping {
        grace: GracePeriod::from_secs(30),
        since: at(NOW - 40),
    };
    assert_eq!(scene.plan(), "stop s-0 2s PodEnds");
    scene.seen.containers.clear();
    assert_eq!(scene.plan(), "stop s-0");
}
