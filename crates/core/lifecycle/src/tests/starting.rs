//! Sandboxes, restarts, back-off and probes of regular containers.

use k8s_openapi::{
    api::core::v1::{PodResourceClaim, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::*;

/// Cgroup, directories and volumes come before the sandbox.
#[test]
fn a_new_pod_is_set_up_before_its_sandbox() {
    let mut scene = Scene::new(simple());
    scene.setup = Setup::default();
    assert_eq!(scene.plan(), "cgroup, files, volumes; sandbox 0");
    scene.setup = READY;
    assert_eq!(scene.plan(), "sandbox 0");
}

/// Devices are given at admission, before anything is made; a pod that is found running is
/// asked about them once.
#[test]
fn devices_come_before_all_else_and_only_where_they_are_asked_for() {
    let mut gpu = container("c");
    let limits = [("example.com/gpu".to_owned(), Quantity("1".to_owned()))];
    gpu.resources = Some(ResourceRequirements {
        limits: Some(limits.into()),
        ..ResourceRequirements::default()
    });
    let mut scene = Scene::new(pod("Always", vec![], vec![gpu]));
    scene.setup = Setup::default();
    assert_eq!(scene.plan(), "devices; cgroup, files, volumes; sandbox 0");
    scene.setup = READY;
    assert_eq!(scene.plan(), "devices; sandbox 0");
    scene.setup.devices = Presence::Present;
    assert_eq!(scene.plan(), "sandbox 0");
    let mut scene = scene.with(vec![]);
    assert_eq!(scene.plan(), "start c");
    scene.setup.devices = Presence::Unknown;
    assert_eq!(scene.plan(), "devices; start c");
}

/// Drivers prepare claims for each new sandbox, after all else is there; for one that an earlier
/// life made, somebody only has to know of them before another container starts in it.
#[test]
fn claims_are_prepared_right_before_a_sandbox() {
    let claim = PodResourceClaim {
        name: "gpu".to_owned(),
        resource_claim_name: Some("mine".to_owned()),
        ..PodResourceClaim::default()
    };
    let mut with_claim = pod("Always", vec![], vec![container("c")]);
    with_claim.spec.as_mut().unwrap().resource_claims = Some(vec![claim]);
    let mut scene = Scene::new(with_claim);
    scene.setup = Setup::default();
    assert_eq!(scene.plan(), "cgroup, files, volumes; prepare claims; sandbox 0");
    scene.setup = Setup { claims: Presence::Present, ..READY };
    assert_eq!(scene.plan(), "prepare claims; sandbox 0");
    let mut scene = scene.with(vec![]);
    assert_eq!(scene.plan(), "start c");
    scene.setup.claims = Presence::Unknown;
    assert_eq!(scene.plan(), "ensure claims; start c");
    let scene = scene.with(vec![seen_container("c", 0, running())]);
    assert_eq!(scene.plan(), "");
}

/// Without a network only pods on the node's own go on.
#[test]
fn without_a_network_only_host_network_pods_get_a_sandbox() {
    let mut scene = Scene::new(simple());
    scene.network_trouble = Some("no plugin");
    let step = scene.step();
    assert_eq!(in_words(&step), "");
    assert_eq!(step.hold, Some(Hold::NetworkNotReady("no plugin".to_owned())));
    scene.pod.as_mut().unwrap().spec.as_mut().unwrap().host_network = Some(true);
    assert_eq!(scene.plan(), "sandbox 0");
}

/// Order: ours overlap where upstream starts one after the other; nobody can tell but by the
/// time.
#[test]
fn regular_containers_start_side_by_side() {
    let scene =
        Scene::new(pod("Always", vec![], vec![container("a"), container("b")])).with(vec![]);
    assert_eq!(scene.plan(), "start a, start b");
}

/// When a sandbox must be made anew.
#[test]
fn a_sandbox_is_replaced_for_each_of_upstreams_reasons() {
    let check = |sandboxes: Vec<ObservedSandbox>, plan: &str| {
        assert_eq!(Scene::new(simple()).sandboxes(sandboxes).plan(), plan);
    };
    check(vec![sandbox(3, true)], "start c");
    check(vec![sandbox(3, false)], "sandbox 4");
    check(vec![sandbox(1, true), sandbox(0, true)], "stop s-1, stop s-0; sandbox 2");
    check(vec![ObservedSandbox { ips: vec![], ..sandbox(0, true) }], "stop s-0; sandbox 1");
    check(
        vec![ObservedSandbox { network: NetworkMode::Node, ..sandbox(0, true) }],
        "stop s-0; sandbox 1",
    );
}

/// New sandbox needed: not for a pod that is done.
#[test]
fn a_pod_that_is_done_gets_no_new_sandbox() {
    let dead = |code| vec![seen_container("c", 0, exited(code, NOW - 20, NOW - 10))];
    let check = |policy: &str, code: i32, plan: &str| {
        let scene = Scene::new(pod(policy, vec![], vec![container("c")]))
            .sandboxes(vec![sandbox(0, false)]);
        assert_eq!(scene.with(dead(code)).plan(), plan, "{policy} {code}");
    };
    check("Never", 1, "");
    check("OnFailure", 0, "");
    check("OnFailure", 1, "sandbox 1");
    check("Always", 0, "sandbox 1");
}

/// New sandbox needed; a container's own policy and rules stand above the pod's.
#[test]
fn a_container_that_comes_back_gets_a_new_sandbox_whatever_the_pods_policy() {
    let check = |own: Option<&str>, state: ContainerState, plan: &str| {
        let mut it = container("c");
        it.restart_policy = own.map(str::to_owned);
        let scene = Scene::new(pod("Never", vec![], vec![it])).sandboxes(vec![sandbox(0, false)]);
        let scene = scene.with(vec![seen_container("c", 0, state)]);
        assert_eq!(scene.plan(), plan, "{own:?}");
    };
    let dead = |code| exited(code, NOW - 20, NOW - 10);
    check(None, dead(137), "");
    check(Some("Never"), dead(137), "");
    check(Some("Always"), dead(0), "sandbox 1");
    check(Some("OnFailure"), dead(137), "sandbox 1");
    check(Some("OnFailure"), dead(0), "");
    // One that still runs is stopped first.
    check(Some("Always"), running(), "stop c-0 30s PodEnds");
}

/// New sandbox needed: what was never started has not existed.
#[test]
fn a_pod_whose_containers_were_only_made_has_yet_to_run() {
    let made = vec![seen_container("c", 0, ContainerState::Created)];
    let scene = Scene::new(pod("Never", vec![], vec![container("c")]));
    let scene = scene.sandboxes(vec![sandbox(0, false)]).with(made);
    assert_eq!(scene.plan(), "sandbox 1");
}

/// Order (2): init containers are purged when the sandbox is made anew.
#[test]
fn init_containers_of_a_dead_sandbox_are_removed_before_they_run_again() {
    let scene = Scene::new(pod("Always", vec![container("i")], vec![container("c")]))
        .sandboxes(vec![sandbox(0, false)])
        .with(vec![
            seen_container("c", 0, exited(137, NOW - 50, NOW - 10)),
            seen_container("i", 0, exited(0, NOW - 60, NOW - 55)),
        ]);
    assert_eq!(scene.plan(), "remove i-0; sandbox 1");
}

/// Regular container not running; should it be restarted.
#[test]
fn restart_policies_decide_who_comes_back() {
    // Long ago, so that no back-off applies.
    let check = |policy: &str, code: i32, plan: &str| {
        let scene =
            Scene::new(pod(policy, vec![], vec![container("a"), container("c")])).with(vec![
                seen_container("a", 0, running()),
                seen_container("c", 0, exited(code, NOW - 5000, NOW - 4000)),
            ]);
        assert_eq!(scene.plan(), plan, "{policy} {code}");
    };
    check("Always", 0, "start c#1~1");
    check("Always", 1, "start c#1~1");
    check("OnFailure", 0, "");
    check("OnFailure", 1, "start c#1~1");
    check("Never", 0, "");
    check("Never", 1, "");
}

/// Should it be restarted: not once it is deleted.
#[test]
fn a_deleted_pod_restarts_nothing() {
    let mut scene =
        Scene::new(simple()).with(vec![seen_container("c", 0, exited(1, NOW - 20, NOW - 10))]);
    scene.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at(NOW).0));
    assert_eq!(scene.plan(), "stop s-0");
}

/// Crash-loop back-off: 10 s, doubled, at most 300 s, from the end of the container.
#[test]
fn a_crash_loop_waits_longer_each_time_and_counts_from_the_end_of_the_container() {
    let check = |streak: u32, finished_ago: i64, wake_in: Option<i64>| {
        let scene = Scene::new(simple()).with(vec![seen_container(
            "c",
            streak,
            exited(1, NOW - finished_ago - 1, NOW - finished_ago),
        )]);
        let step = scene.step();
        assert_eq!(step.wake_at, wake_in.map(|secs| at(NOW + secs)), "streak {streak}");
        let why = step.waiting.get("c").map(|it| it.reason);
        let is_waiting = why == Some(WaitingReason::CrashLoopBackOff);
        assert_eq!(is_waiting, wake_in.is_some(), "streak {streak}");
        assert_eq!(step.stages.is_empty(), wake_in.is_some(), "streak {streak}");
    };
    check(0, 0, None);
    check(1, 1, Some(9));
    check(1, 9, Some(1));
    check(1, 10, None);
    check(2, 1, Some(19));
    check(5, 1, Some(159));
    check(6, 1, Some(299));
    check(40, 1, Some(299));
}

/// The error of a start is known after the look that showed the end, so a watcher
/// sees both.
#[test]
fn the_end_of_a_container_is_shown_before_its_wait_is() {
    let check =
        |longest: u64, finished_ago: i64, wake_in: Duration, reason: Option<WaitingReason>| {
            let mut scene = Scene::new(simple()).with(vec![seen_container(
                "c",
                1,
                exited(1, NOW - finished_ago - 1, NOW - finished_ago),
            )]);
            scene.back_off = BackOffPolicy::upstream(Duration::from_secs(longest));
            let step = scene.step();
            let shown = step.waiting.get("c").map(|why| why.reason);
            assert_eq!(shown, reason, "{finished_ago} s ago");
            assert_eq!(step.wake_at, Some(at(NOW).after(wake_in)));
            assert!(step.stages.is_empty(), "{finished_ago} s ago");
        };
    let (second, half) = (Duration::from_secs(1), Duration::from_millis(500));
    check(300, 0, second, None);
    check(300, 1, 9 * second, Some(WaitingReason::CrashLoopBackOff));
    check(1, 0, half, None);
}

/// Crash-loop back-off: the waiting reason and its message.
#[test]
fn the_message_of_a_crash_loop_names_wait_container_and_pod() {
    let scene =
        Scene::new(simple()).with(vec![seen_container("c", 2, exited(1, NOW - 2, NOW - 1))]);
    let message = &scene.step().waiting["c"].message;
    assert_eq!(message, "back-off 20s restarting failed container=c pod=p_default(u)");
}

/// Crash-loop back-off: forgotten after 600 s.
#[test]
fn ten_good_minutes_end_a_crash_loop() {
    let check = |ran: i64, plan: &str| {
        let scene =
            Scene::new(simple()).with(vec![seen_container("c", 7, exited(1, NOW - ran, NOW))]);
        assert_eq!(scene.plan(), plan, "ran {ran}");
    };
    check(600, "");
    check(601, "start c#8~1");
}

/// Crash-loop back-off, for containers that were handed over.
#[test]
fn a_container_of_upstreams_kubelet_has_no_streak_and_its_restart_count_stands_in() {
    let mut dead = seen_container("c", 3, exited(1, NOW - 2, NOW - 1));
    dead.crash_streak = None;
    assert_eq!(Scene::new(simple()).with(vec![dead]).step().wake_at, Some(at(NOW + 39)));
}

/// Crash-loop back-off: its key has the image in it, and the resources.
#[test]
fn another_image_and_other_resources_leave_the_crash_loop_behind() {
    let mut dead = seen_container("c", 7, exited(1, NOW - 1, NOW));
    let mut scene = Scene::new(simple()).with(vec![dead.clone()]);
    assert_eq!(scene.plan(), "", "the same again waits");
    scene.resize.updates.insert(ContainerName::new("c"));
    assert_eq!(scene.plan(), "resize ; start c#8~1");
    dead.spec_hash = Some("0".to_owned());
    assert_eq!(Scene::new(simple()).with(vec![dead]).plan(), "start c#8~1");
}

/// Containers without their pod's cgroup are killed once; the cgroup is made for what
/// may run again.
#[test]
fn a_pod_that_lost_its_cgroup_is_killed_and_made_anew_there() {
    let lost = |policy: &str, init: Vec<Container>, seen: &str| {
        let spec = pod(policy, init, vec![container("c")]);
        let mut scene = Scene::new(spec).with(vec![seen_container(seen, 0, running())]);
        scene.setup.cgroup = Presence::Absent;
        scene
    };
    for policy in ["Always", "Never"] {
        let plan = lost(policy, vec![], "c").plan();
        assert_eq!(plan, "stop c-0 30s PodEnds; stop s-0", "{policy}");
    }
    // Before a regular container runs there is nothing to kill for.
    let early = lost("Always", vec![container("i")], "i");
    assert_eq!(early.plan(), "cgroup");
    for (policy, plan) in [("Always", "cgroup; sandbox 1"), ("Never", "")] {
        let mut scene = lost(policy, vec![], "c").sandboxes(vec![sandbox(0, false)]);
        scene.seen.containers[0].state = exited(137, NOW - 20, NOW);
        assert_eq!(scene.plan(), plan, "{policy}");
    }
}

/// Should it be restarted: one that was only made is.
#[test]
fn a_container_that_never_started_is_removed_and_made_again_with_the_same_count_and_streak() {
    let scene = Scene::new(simple()).with(vec![seen_container("c", 2, ContainerState::Created)]);
    assert_eq!(scene.plan(), "remove c-2; start c#2~2");
}

/// Regular container not running: in an unknown state it is killed first.
#[test]
fn a_container_the_runtime_lost_is_stopped_first() {
    let scene = Scene::new(simple()).with(vec![seen_container("c", 0, ContainerState::Unknown)]);
    assert_eq!(scene.plan(), "stop c-0 30s Unknown; start c#1~0");
}

/// Regular container running: another specification always restarts it.
#[test]
fn a_changed_container_is_stopped_whatever_its_restart_policy() {
    let mut old = seen_container("c", 0, running());
    old.spec_hash = Some("0".to_owned());
    let scene = Scene::new(pod("Never", vec![], vec![container("c")])).with(vec![old]);
    assert_eq!(scene.plan(), "stop c-0 30s Changed; start c#1~0");
}

/// Regular container running; grace: liveness and startup failures.
#[test]
fn failing_probes_stop_a_container_with_the_probes_own_grace() {
    let check = |verdicts: ContainerProbes, plan: &str| {
        let mut scene = Scene::new(simple()).with(vec![seen_container("c", 0, running())]);
        scene.probes.insert(ContainerName::new("c"), verdicts);
        assert_eq!(scene.plan(), plan);
    };
    let failed = Verdict::Failure { grace: None };
    let failed_in_a_hurry = Verdict::Failure { grace: Some(GracePeriod::from_secs(3)) };
    check(probes(Verdict::Success, Verdict::Success), "");
    check(probes(failed, Verdict::Success), "stop c-0 30s NotLive; start c#1~0");
    check(probes(failed_in_a_hurry, Verdict::Success), "stop c-0 3s NotLive; start c#1~0");
    check(probes(Verdict::Pending, failed), "stop c-0 30s NotStarted; start c#1~0");
}

/// Ephemeral containers: started when they have no status, never again.
#[test]
fn ephemeral_containers_start_once() {
    use k8s_openapi::api::core::v1::EphemeralContainer;
    let mut spec = simple();
    let debug = EphemeralContainer {
        name: "d".to_owned(),
        image: Some("busybox".to_owned()),
        ..Default::default()
    };
    spec.spec.as_mut().unwrap().ephemeral_containers = Some(vec![debug]);
    let fresh = Scene::new(spec.clone()).with(vec![seen_container("c", 0, running())]);
    assert_eq!(fresh.plan(), "start d");
    let kinds: Vec<ContainerKind> = fresh
        .step()
        .stages
        .into_iter()
        .flatten()
        .filter_map(|action| match action {
            Action::Start { kind, .. } => Some(kind),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [ContainerKind::Ephemeral]);
    let ended = Scene::new(spec).with(vec![
        seen_container("c", 0, running()),
        seen_container("d", 0, exited(1, NOW - 20, NOW - 10)),
    ]);
    assert_eq!(ended.plan(), "");
}

/// Every start first checks the crash-loop back-off.
#[test]
fn a_container_that_we_stop_waits_for_the_one_that_died_before_it() {
    // As upstream: the wait is that of the streak, counted from the end of the container before.
    let check_after = |ran: i64, streak: u32, died_ago: Option<i64>, plan: &str| {
        let started_at = at(NOW - ran);
        let state = ContainerState::Running { started_at };
        let mut containers = vec![seen_container("c", streak, state)];
        containers.extend(
            died_ago.map(|ago| seen_container("c", 0, exited(137, NOW - ago - 5, NOW - ago))),
        );
        let mut scene = Scene::new(simple()).with(containers);
        let verdicts = probes(Verdict::Failure { grace: None }, Verdict::Success);
        scene.probes.insert(ContainerName::new("c"), verdicts);
        assert_eq!(scene.plan(), plan, "streak {streak}");
    };
    let check =
        |streak: u32, died_ago: Option<i64>, plan: &str| check_after(2, streak, died_ago, plan);
    check(0, None, "stop c-0 30s NotLive; start c#1~0");
    check(0, Some(3), "stop c-0 30s NotLive; start c#1~1");
    check(1, Some(3), "stop c-1 30s NotLive");
    check(1, Some(10), "stop c-1 30s NotLive; start c#2~2");
    // Ten good minutes end a streak in this way too.
    check_after(601, 5, Some(602), "stop c-5 30s NotLive; start c#6~1");
    check_after(600, 5, Some(602), "stop c-5 30s NotLive; start c#6~6");
}

/// Order (7), and postStart: who follows a container with a hook starts when the hook is done.
#[test]
fn a_container_waits_for_the_hook_that_greets_the_one_before_it() {
    use k8s_openapi::api::core::v1::{Lifecycle, LifecycleHandler};
    let greeted = |name: &str| Container {
        lifecycle: Some(Lifecycle {
            post_start: Some(LifecycleHandler::default()),
            ..Default::default()
        }),
        ..container(name)
    };
    let check = |containers: Vec<Container>, plan: &str| {
        let scene = Scene::new(pod("Always", vec![], containers)).with(vec![]);
        assert_eq!(scene.plan(), plan);
    };
    check(vec![greeted("a"), container("b")], "start a; start b");
    check(
        vec![container("a"), greeted("b"), container("c"), container("d")],
        "start a, start b; start c, start d",
    );
}

/// Regular container running: a policy that forbids the restart leaves the stop; nothing to
/// keep then ends the pod.
#[test]
fn a_failing_probe_ends_a_container_that_may_not_restart() {
    let check = |policy: &str, plan: &str| {
        let two = pod(policy, vec![], vec![container("a"), container("c")]);
        let mut scene = Scene::new(two)
            .with(vec![seen_container("a", 0, running()), seen_container("c", 0, running())]);
        let failed = probes(Verdict::Failure { grace: None }, Verdict::Success);
        scene.probes.insert(ContainerName::new("c"), failed);
        assert_eq!(scene.plan(), plan, "{policy}");
    };
    check("Always", "stop c-0 30s NotLive; start c#1~0");
    check("OnFailure", "stop c-0 30s NotLive; start c#1~0");
    check("Never", "stop c-0 30s NotLive");
}

/// Nothing kept and nothing to start: the pod is killed.
#[test]
fn a_pod_with_nothing_left_to_do_ends() {
    let check = |policy: &str, codes: [i32; 2], plan: &str| {
        let two = pod(policy, vec![], vec![container("a"), container("c")]);
        let dead = |name: &str, code| seen_container(name, 0, exited(code, NOW - 5000, NOW - 4000));
        let scene = Scene::new(two).with(vec![dead("a", codes[0]), dead("c", codes[1])]);
        assert_eq!(scene.plan(), plan, "{policy} {codes:?}");
    };
    check("Never", [0, 1], "stop s-0");
    check("OnFailure", [0, 0], "stop s-0");
    check("OnFailure", [0, 1], "start c#1~1");
}

/// Execution order: stops, then the resize, then ephemeral containers, then init containers in
/// the order of their list, then the rest.
#[test]
fn one_step_does_everything_in_upstreams_order() {
    use k8s_openapi::api::core::v1::EphemeralContainer;
    let mut spec = pod(
        "Always",
        vec![sidecar("s"), sidecar("t")],
        vec![container("a"), container("b"), container("c")],
    );
    spec.spec.as_mut().unwrap().ephemeral_containers = Some(vec![EphemeralContainer {
        name: "d".to_owned(),
        image: Some("busybox".to_owned()),
        ..Default::default()
    }]);
    let mut changed = seen_container("a", 0, running());
    changed.spec_hash = Some("0".to_owned());
    let dead = |name: &str| seen_container(name, 0, exited(1, NOW - 5000, NOW - 4000));
    let mut scene = Scene::new(spec).with(vec![
        changed,
        seen_container("b", 0, running()),
        dead("c"),
        dead("t"),
        dead("s"),
    ]);
    scene.resize.updates.insert(ContainerName::new("b"));
    assert_eq!(
        scene.plan(),
        "stop a-0 30s Changed; resize b; start d; start s#1~1; start t#1~1; start a#1~0, start c#1~1"
    );
}
