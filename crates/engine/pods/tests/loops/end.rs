//! How pods end: graces that only shrink, teardowns that are tried again.

use ferrolet_ports::RuntimeErrorKind;
use ferrolet_testkit::{Act, Call, Script, World, pod};
use ferrolet_types::{
    Pod, PodChange, PodUid,
    pod::{PodView as _, ProbeKind, RestartPolicy},
    probe::ProbeResult,
};

use crate::rig::*;

/// A pod whose only container does not hear the polite signal.
async fn deaf(world: &World, agent: &Agent, grace: i64) -> Pod {
    let web = pod("web").container("main", IMAGE).grace(grace).build();
    world.script_name("main", Script::IgnoresSignal);
    agent.add(&web).await;
    main_runs(world, &web.uid(), SOON).await;
    web
}

fn deleting(world: &World, pod: &Pod, grace: i64) -> PodChange {
    let mut pod = (**pod).clone();
    let since = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now().0);
    pod.metadata.deletion_timestamp = Some(since);
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    PodChange::Deleting(pod.into())
}

/// Graces of the signals a pod's containers got, in seconds.
fn graces(world: &World, uid: &PodUid) -> Vec<i64> {
    let journal = world.journal_of(uid).into_iter();
    journal
        .filter_map(|entry| match entry.act {
            Act::ContainerSignalled { grace, .. } => Some(grace.as_secs()),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_interrupts_a_longer_one_and_a_longer_one_does_nothing() {
    let world = world();
    let agent = Agent::start(&world);
    let web = deaf(&world, &agent, 300).await;
    let (uid, began) = (web.uid(), world.now());
    agent.tell([deleting(&world, &web, 120)]).await;
    tokio::time::sleep(secs(5)).await;
    agent.tell([deleting(&world, &web, 200)]).await;
    tokio::time::sleep(secs(5)).await;
    agent.tell([deleting(&world, &web, 10)]).await;
    world.until("it ended", secs(60), |world| !world.is_running(&uid, "main")).await;
    assert_eq!(graces(&world, &uid), [120, 10]);
    assert_eq!(world.now().since(began).as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_forgotten_while_it_stops_gets_no_second_grace() {
    let world = world();
    let agent = Agent::start(&world);
    let web = deaf(&world, &agent, 30).await;
    let (uid, began) = (web.uid(), world.now());
    agent.tell([deleting(&world, &web, 30)]).await;
    tokio::time::sleep(secs(20)).await;
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, secs(60)).await;
    assert_eq!(graces(&world, &uid), [30]);
    assert_eq!(world.now().since(began).as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_stays_known_until_it_is_removed() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    agent.add(&web).await;
    eventually("it runs", SOON, || agent.phase(&uid) == "Running").await;
    agent.tell([deleting(&world, &web, 30)]).await;
    eventually("its cgroup is gone", SOON, || world.pod_cgroups().is_empty()).await;
    tokio::time::sleep(secs(600)).await;
    assert_eq!(world.containers_of(&uid).len(), 1);
    assert!(agent.status(&uid).is_some());
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn sidecars_stop_after_the_containers_they_serve_the_last_one_first() {
    let world = world();
    let agent = Agent::start(&world);
    let web =
        pod("web").sidecar("outer", IMAGE).sidecar("inner", IMAGE).container("main", IMAGE).build();
    world.script_name("main", Script::StopsAfter(secs(4)));
    world.script_name("inner", Script::StopsAfter(secs(2)));
    let uid = web.uid();
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, secs(60)).await;
    let ends: Vec<String> = world
        .journal_of(&uid)
        .into_iter()
        .filter_map(|entry| match entry.act {
            Act::ContainerExited { name, .. } => Some(name.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(ends, ["main", "inner", "outer"]);
}

#[tokio::test(start_paused = true)]
async fn sidecars_share_the_pods_grace() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web")
        .sidecar("outer", IMAGE)
        .sidecar("inner", IMAGE)
        .container("main", IMAGE)
        .grace(30)
        .build();
    world.script_image(IMAGE, Script::IgnoresSignal);
    let uid = web.uid();
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    let began = world.now();
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, secs(200)).await;
    // Whoever is late still gets the two seconds that every container has, and nobody waits any
    // longer for a turn then.
    assert_eq!(world.now().since(began).as_secs(), 32);
}

/// A sandbox is not taken from under a container that is being started: that would be told as a
/// failure of the container.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pod_waits_for_what_the_runtime_is_making() {
    let check = async |is_answered: bool, waited: u64| {
        let world = world();
        let agent = Agent::start(&world);
        let web = pod("web").container("main", IMAGE).build();
        let uid = web.uid();
        world.hang_pod_call(&uid, Call::StartContainer);
        agent.add(&web).await;
        eventually("it is being started", SOON, || !world.containers_of(&uid).is_empty()).await;
        tokio::time::sleep(secs(1)).await;
        let began = world.now();
        agent.remove(&web).await;
        tokio::time::sleep(secs(3)).await;
        assert!(!world.is_gone(&uid), "nothing is stopped meanwhile");
        if is_answered {
            world.free_hung();
        }
        nothing_is_left(&world, &uid, secs(60)).await;
        assert_eq!(world.now().since(began).as_secs(), waited);
        let has_run = graces(&world, &uid) == [30];
        assert_eq!(has_run, is_answered, "who was started is stopped politely");
    };
    check(true, 3).await;
    check(false, 10).await;
}

/// Every container's hook begins with the end of the pod; only the signal of a sidecar waits
/// for its turn.
#[tokio::test(start_paused = true)]
async fn hooks_of_sidecars_do_not_wait_for_the_containers_they_serve() {
    let world = world();
    let agent = Agent::start(&world);
    let with_hook = |it: &mut k8s_openapi::api::core::v1::Container| {
        let lifecycle = serde_json::json!({"preStop": {"exec": {"command": ["bye"]}}});
        it.lifecycle = Some(serde_json::from_value(lifecycle).unwrap());
    };
    let web = pod("web")
        .sidecar("outer", IMAGE)
        .sidecar("inner", IMAGE)
        .container("main", IMAGE)
        .edit_container("outer", with_hook)
        .edit_container("main", with_hook)
        .grace(10)
        .build();
    agent.hooks.hang_for("main");
    agent.hooks.hang_for("outer");
    let uid = web.uid();
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    let began = world.now();
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, secs(60)).await;
    // Both hooks took the same ten seconds; nobody is left to wait for then.
    assert_eq!(world.now().since(began).as_secs(), 10);
    let killed = world.recorded_events().into_iter();
    let killed = killed.filter(|(_, event)| event.reason == "Killing");
    assert_eq!(killed.count(), 3);
}

/// A container whose hook failed after its start is seen off like any other.
#[tokio::test(start_paused = true)]
async fn a_failed_start_hook_leaves_the_stop_hook_its_share_of_the_grace() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web")
        .container("main", IMAGE)
        .edit_container("main", |it| {
            let hook = serde_json::json!({"exec": {"command": ["x"]}});
            let lifecycle = serde_json::json!({"postStart": hook, "preStop": hook});
            it.lifecycle = Some(serde_json::from_value(lifecycle).unwrap());
        })
        .build();
    agent.hooks.fail_for("main");
    agent.add(&web).await;
    let told = |reason: &str| {
        let events = world.recorded_events().into_iter();
        events.filter(|(_, it)| it.reason == reason).count()
    };
    eventually("both hooks failed", SOON, || {
        told("FailedPostStartHook") == 1 && told("FailedPreStopHook") == 1
    })
    .await;
    assert_eq!(graces(&world, &web.uid()), [30]);
}

#[tokio::test(start_paused = true)]
async fn every_part_of_a_teardown_is_tried_again() {
    let calls = [
        Call::StopContainer,
        Call::StopSandbox,
        Call::ReleaseVolumes,
        Call::RemoveCgroup,
        Call::RemoveContainer,
        Call::RemoveSandbox,
        Call::RemovePodFiles,
        Call::RemoveLogs,
    ];
    for call in calls {
        let world = world();
        let agent = Agent::start(&world);
        let web = pod("web").container("main", IMAGE).empty_dir("data").build();
        let uid = web.uid();
        agent.add(&web).await;
        main_runs(&world, &uid, SOON).await;
        world.fail_next(call, 2, RuntimeErrorKind::Internal, "not now");
        let began = world.now();
        agent.remove(&web).await;
        world.until(call.name(), secs(10), |world| world.is_gone(&uid)).await;
        // One second, then two.
        assert_eq!(world.now().since(began).as_secs(), 3, "{call:?}");
    }
}

/// Pod cgroups: volumes still there, so the weight goes down and the cgroup stays.
#[tokio::test(start_paused = true)]
async fn what_an_ended_pod_left_is_slowed_down_while_its_volumes_stay() {
    type Trouble = fn(&World, &PodUid);
    let refused: Trouble = |world, _| {
        let kind = RuntimeErrorKind::Internal;
        world.fail_next(Call::ReleaseVolumes, usize::MAX, kind, "busy");
    };
    let slow: Trouble = |world, uid| world.hang_pod_call(uid, Call::ReleaseVolumes);
    let also_refused: Trouble = |world, _| {
        let kind = RuntimeErrorKind::Internal;
        world.fail_next(Call::ReleaseVolumes, 5, kind, "busy");
        world.fail_next(Call::LowerCpu, usize::MAX, kind, "read-only");
    };
    // What is wrong with the volumes, and the weight after one, three and thirty seconds; `None`
    // when the cgroup is gone.
    let (whole, least) = (Some(512), Some(2));
    let rows = [
        ("nothing", (|_, _| ()) as Trouble, [None, None, None]),
        ("refused", refused, [least, least, least]),
        ("slow", slow, [whole, least, least]),
        ("also refused", also_refused, [whole, whole, None]),
    ];
    for (name, trouble, expected) in rows {
        let world = world();
        let agent = Agent::start(&world);
        let web = pod("web")
            .container("main", IMAGE)
            .limits("main", "500m", "64Mi")
            .empty_dir("data")
            .build();
        let uid = web.uid();
        agent.add(&web).await;
        main_runs(&world, &uid, SOON).await;
        let weight = || {
            let cgroup = world.pod_cgroups().remove(&uid);
            cgroup.map(|it| it.limits.cpu_shares.unwrap_or_default())
        };
        assert_eq!(weight(), whole);
        trouble(&world, &uid);
        agent.remove(&web).await;
        let mut found = Vec::new();
        for pause in [1500, 1500, 27_000] {
            tokio::time::sleep(millis(pause)).await;
            found.push(weight());
        }
        assert_eq!(found, expected, "{name}");
        // Nothing of it is in the way of the end.
        world.free_hung();
        world.heal();
        nothing_is_left(&world, &uid, secs(30)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_with_a_start_does_not_delay_the_end() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    world.fail_next(Call::RunSandbox, usize::MAX, RuntimeErrorKind::Internal, "no network");
    agent.add(&web).await;
    tokio::time::sleep(secs(60)).await;
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_fails_again_and_again_does_not_spin() {
    let check = async |call: Call, policy: RestartPolicy, what: &str| {
        let world = world();
        let agent = Agent::start(&world);
        let builder =
            pod("web").sidecar("beside", IMAGE).container("main", IMAGE).restart_policy(policy);
        let web = builder.clone().build();
        let uid = web.uid();
        world.script_name("main", Script::ExitsAfter(secs(1), 1));
        world.fail_next(call, usize::MAX, RuntimeErrorKind::Internal, "never");
        agent.add(&web).await;
        tokio::time::sleep(secs(2)).await;
        let changed = builder.edit_container("beside", |it| {
            it.image = Some("registry.example/app:2".to_owned());
        });
        agent.tell([PodChange::Updated(changed.build())]).await;
        tokio::time::sleep(secs(60)).await;
        let failed = world.recorded_events().into_iter();
        let failed = failed.filter(|(_, event)| event.message.contains("never"));
        let n_failed = failed.count();
        assert!((1..=20).contains(&n_failed), "{what}: {n_failed} failures");
        drop((agent, uid));
    };
    let changed = "a changed container that cannot be stopped";
    check(Call::StopContainer, RestartPolicy::Always, changed).await;
    let surplus = "a dead container that cannot be removed";
    check(Call::RemoveContainer, RestartPolicy::Always, surplus).await;
    let ended = "the sidecar of an ended pod that cannot be stopped";
    check(Call::StopContainer, RestartPolicy::Never, ended).await;
}

/// A hook has the whole grace, be it a single second, and its container then the shortest
/// stop.
#[tokio::test(start_paused = true)]
async fn a_hook_that_outlasts_the_grace_has_failed_unless_it_only_sleeps() {
    let check = async |grace: i64, hook: serde_json::Value, n_told: usize| {
        let world = world();
        let agent = Agent::start(&world);
        agent.hooks.hang_for("main");
        world.script_name("main", Script::IgnoresSignal);
        let web = pod("web").container("main", IMAGE).grace(grace);
        let web = web
            .edit_container("main", |it| {
                let lifecycle = serde_json::json!({"preStop": hook});
                it.lifecycle = Some(serde_json::from_value(lifecycle).unwrap());
            })
            .build();
        agent.add(&web).await;
        let uid = web.uid();
        main_runs(&world, &uid, SOON).await;
        agent.tell([deleting(&world, &web, grace)]).await;
        tokio::time::sleep(secs(grace.unsigned_abs()) + millis(500)).await;
        assert_eq!(graces(&world, &uid), [2], "the hook took the rest");
        // What it does in the container goes on for as long as that runs.
        assert_eq!(agent.hooks.n_under_way(), n_told);
        world.until("it ended", secs(20), |world| !world.is_running(&uid, "main")).await;
        eventually("nothing goes on", SOON, || agent.hooks.n_under_way() == 0).await;
        let events = world.recorded_events().into_iter();
        let told = events.filter(|(_, it)| it.reason == "FailedPreStopHook");
        assert_eq!(told.count(), n_told);
    };
    let exec = serde_json::json!({"exec": {"command": ["sleep", "60"]}});
    check(5, exec.clone(), 1).await;
    check(1, exec, 1).await;
    check(5, serde_json::json!({"sleep": {"seconds": 60}}), 0).await;
}

/// Pod being deleted: readiness goes on until the containers have stopped, and is told while
/// they do.
#[tokio::test(start_paused = true)]
async fn a_pod_that_takes_long_to_end_shows_what_its_readiness_is_meanwhile() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web")
        .container("main", IMAGE)
        .edit_container("main", |it| it.readiness_probe = Some(Default::default()))
        .grace(60)
        .build();
    let uid = web.uid();
    world.script_name("main", Script::IgnoresSignal);
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    let is_ready = || agent.container(&uid, "main").is_some_and(|it| it.ready);
    let says = |result| agent.report((&world, &uid), "main", ProbeKind::Readiness, result);
    says(ProbeResult::Success);
    eventually("it is ready", SOON, is_ready).await;
    agent.remove(&web).await;
    tokio::time::sleep(secs(10)).await;
    assert!(world.is_running(&uid, "main") && is_ready());
    says(ProbeResult::Failure { grace: None });
    eventually("it is not ready any more", secs(1), || !is_ready()).await;
    assert!(world.is_running(&uid, "main"), "it still ends");
    says(ProbeResult::Success);
    eventually("it is ready again", secs(1), is_ready).await;
    assert!(world.is_running(&uid, "main"), "it still ends");
}
