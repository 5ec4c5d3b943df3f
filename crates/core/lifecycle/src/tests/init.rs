//! Init containers and sidecars: their order, at the start and at the end.

use super::*;

/// The last init container with a status says how far the pod is.
#[test]
fn init_containers_run_one_after_the_other() {
    let two =
        || Scene::new(pod("Always", vec![container("i"), container("j")], vec![container("c")]));
    let done = |name: &str| seen_container(name, 0, exited(0, NOW - 20, NOW - 10));
    assert_eq!(two().with(vec![]).plan(), "start i");
    assert_eq!(two().with(vec![seen_container("i", 0, running())]).plan(), "");
    assert_eq!(two().with(vec![done("i")]).plan(), "start j");
    // The runtime may have forgotten the first one.
    assert_eq!(two().with(vec![done("j")]).plan(), "start c");
    assert_eq!(two().with(vec![seen_container("c", 0, running())]).plan(), "");
}

/// A failed init container restarts, or ends the pod.
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

/// A sidecar is done when it runs and its startup probe succeeded.
#[test]
fn a_sidecar_counts_as_done_once_it_runs_and_has_started() {
    let scene = |probe: bool| {
        let mut side = sidecar("s");
        side.startup_probe = probe.then(Probe::default);
        Scene::new(pod("Always", vec![side, container("i")], vec![container("c")]))
            .with(vec![seen_container("s", 0, running())])
    };
    assert_eq!(scene(false).plan(), "start i");
    assert_eq!(scene(true).plan(), "");
    let mut started = scene(true);
    started.probes.insert(ContainerName::new("s"), probes(Verdict::Pending, Verdict::Success));
    assert_eq!(started.plan(), "start i");
}

/// Sidecars restart at any time, whatever the pod's policy.
#[test]
fn a_sidecar_comes_back_at_any_time() {
    let spec = || pod("Never", vec![sidecar("s"), container("i")], vec![container("c")]);
    let dead = || seen_container("s", 0, exited(0, NOW - 20, NOW - 10));
    let during = Scene::new(spec()).with(vec![seen_container("i", 0, running()), dead()]);
    assert_eq!(during.plan(), "start s#1~1");
    let after = Scene::new(spec()).with(vec![seen_container("c", 0, running()), dead()]);
    assert_eq!(after.plan(), "start s#1~1");
    let forgotten = Scene::new(spec()).with(vec![seen_container("c", 0, running())]);
    assert_eq!(forgotten.plan(), "start s");
}

/// Nothing kept and nothing to start ends the pod, sidecars included.
#[test]
fn sidecars_do_not_keep_a_pod_alive_whose_work_is_done() {
    let scene = Scene::new(pod("Never", vec![sidecar("s")], vec![container("c")])).with(vec![
        seen_container("c", 0, exited(0, NOW - 20, NOW - 10)),
        seen_container("s", 0, running()),
    ]);
    assert_eq!(scene.plan(), "stop s-0 30s PodEnds; stop s-0");
}

/// Everybody's end begins at once; sidecars are signalled after the others, the last first, on
/// what is left of the grace.
#[test]
fn sidecars_stop_last_and_in_reverse_order() {
    let mut scene = Scene::new(pod(
        "Always",
        vec![sidecar("s"), sidecar("t")],
        vec![container("a"), container("b")],
    ))
    .with(["a", "b", "t", "s"].map(|name| seen_container(name, 0, running())).to_vec());
    scene.wish = Wish::End { grace: None };
    assert_eq!(
        scene.plan(),
        "stop a-0 30s PodEnds, stop b-0 30s PodEnds, stop t-0 30s PodEnds after a-0 after b-0, \
         stop s-0 30s PodEnds after a-0 after b-0 after t-0; stop s-0"
    );
    // The regular ones took ten seconds: the sidecars share what is left.
    scene.state = PodState::Stopping { grace: GracePeriod::from_secs(30), since: at(NOW - 10) };
    scene.seen.containers.drain(..2);
    assert_eq!(scene.plan(), "stop t-0 20s PodEnds, stop s-0 20s PodEnds after t-0; stop s-0");
    scene.seen.containers.remove(0);
    scene.state = PodState::Stopping { grace: GracePeriod::from_secs(30), since: at(NOW - 40) };
    assert_eq!(scene.plan(), "stop s-0 0s PodEnds; stop s-0");
    scene.seen.containers.clear();
    assert_eq!(scene.plan(), "stop s-0");
}

/// A sidecar serves the regular containers; init containers that still run, and ephemeral
/// ones, keep it from nothing.
#[test]
fn sidecars_wait_for_regular_containers_and_later_sidecars_only() {
    let mut scene =
        Scene::new(pod("Always", vec![sidecar("s"), container("i")], vec![container("a")]))
            .with(["i", "debug", "s"].map(|name| seen_container(name, 0, running())).to_vec());
    scene.wish = Wish::End { grace: None };
    assert_eq!(
        scene.plan(),
        "stop i-0 30s PodEnds, stop debug-0 30s PodEnds, stop s-0 30s PodEnds; stop s-0"
    );
}

/// Out of memory and an unknown state are failures too, whatever the exit code.
#[test]
fn an_init_container_that_ran_out_of_memory_or_sight_has_failed() {
    let out_of_memory = ContainerState::Exited(Exit {
        started_at: Some(at(NOW - 5000)),
        finished_at: at(NOW - 4000),
        code: 0,
        reason: "OOMKilled".to_owned(),
        message: String::new(),
    });
    let check = |policy: &str, state: &ContainerState, plan: &str| {
        let scene = Scene::new(pod(policy, vec![container("i")], vec![container("c")]))
            .with(vec![seen_container("i", 0, state.clone())]);
        assert_eq!(scene.plan(), plan, "{policy} {state:?}");
    };
    check("Always", &out_of_memory, "start i#1~1");
    check("Never", &out_of_memory, "stop s-0");
    let lost = ContainerState::Unknown;
    check("Always", &lost, "stop i-0 30s Unknown; start i#1~0");
    check("Never", &lost, "stop s-0");
}

/// Sidecars are killed and restarted on a startup failure, another specification or a liveness
/// failure, in this order, after initialisation too and whatever the pod's policy. Nothing else is
/// looked at before the startup probe has spoken.
#[test]
fn a_sidecar_that_changed_or_is_not_well_is_replaced() {
    let failed = Verdict::Failure { grace: None };
    let check = |is_changed: bool, verdicts: Option<ContainerProbes>, plan: &str| {
        let mut side = seen_container("s", 0, running());
        if is_changed {
            side.spec_hash = Some("0".to_owned());
        }
        let mut spec = sidecar("s");
        if verdicts.is_some() {
            spec.startup_probe = Some(Probe::default());
        }
        let list = pod("Never", vec![spec], vec![container("c")]);
        let mut scene = Scene::new(list).with(vec![seen_container("c", 0, running()), side]);
        if let Some(verdicts) = verdicts {
            scene.probes.insert(ContainerName::new("s"), verdicts);
        }
        assert_eq!(scene.plan(), plan);
    };
    check(false, None, "");
    check(true, None, "stop s-0 30s Changed; start s#1~0");
    check(false, Some(probes(failed, Verdict::Success)), "stop s-0 30s NotLive; start s#1~0");
    check(false, Some(probes(Verdict::Pending, failed)), "stop s-0 30s NotStarted; start s#1~0");
    check(true, Some(probes(failed, failed)), "stop s-0 30s NotStarted; start s#1~0");
    check(true, Some(probes(failed, Verdict::Success)), "stop s-0 30s Changed; start s#1~0");
    check(true, Some(probes(failed, Verdict::Pending)), "");
}

/// A sidecar that has started lets the next one begin, also when it is about to be replaced.
#[test]
fn a_sidecar_that_changed_holds_nobody_up_once_it_has_started() {
    let mut side = seen_container("s", 0, running());
    side.spec_hash = Some("0".to_owned());
    let list = pod("Always", vec![sidecar("s"), container("i")], vec![container("c")]);
    let scene = Scene::new(list).with(vec![side]);
    assert_eq!(scene.plan(), "stop s-0 30s Changed; start s#1~0; start i");
}
