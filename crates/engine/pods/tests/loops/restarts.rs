//! Containers that end, and when they come back.

use ferrolet_ports::{EventObject, RuntimeErrorKind};
use ferrolet_testkit::{Act, Call, Script, World, pod};
use ferrolet_types::{
    PodChange, PodUid,
    pod::{PodView as _, ProbeKind, RestartPolicy},
    probe::ProbeResult,
};

use crate::rig::*;

/// Seconds between each end of a container and its next start.
fn waits(world: &World, uid: &PodUid, container: &str) -> Vec<u64> {
    let ends = times(
        world,
        uid,
        |act| matches!(act, Act::ContainerExited { name, .. } if name.as_str() == container),
    );
    let starts = starts_of(world, uid, container);
    let pairs = ends.iter().zip(starts.iter().skip(1));
    pairs
        .map(|(end, start)| {
            let wait = start.since(*end);
            assert!(wait.subsec_millis() <= 2, "{wait:?} is not exact");
            wait.as_secs()
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_waits_ever_longer_up_to_five_minutes() {
    let (world, web) = (world(), pod("web").container("main", IMAGE).build());
    world.script_name("main", Script::ExitsAfter(secs(1), 1));
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    eventually("its second end", secs(5), || {
        let shown = agent.container(&uid, "main");
        let end = shown.filter(|it| it.restart_count == 1);
        end.is_some_and(|it| it.state.is_some_and(|state| state.terminated.is_some()))
    })
    .await;
    eventually("it waits", secs(2), || agent.waits_for(&uid, "main") == "CrashLoopBackOff").await;
    world.until("nine starts", secs(3000), |world| starts_of(world, &uid, "main").len() == 9).await;
    assert_eq!(waits(&world, &uid, "main"), [0, 10, 20, 40, 80, 160, 300, 300]);
    let shown = agent.container(&uid, "main").unwrap();
    assert_eq!(shown.restart_count, 8);
    assert!(world.containers_of(&uid).len() <= 3, "dead containers do not pile up");
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_crash_loop_survives_the_agent() {
    let (world, web) = (world(), pod("web").container("main", IMAGE).build());
    world.script_name("main", Script::ExitsAfter(secs(1), 1));
    let uid = web.uid();
    for n_starts in 1..7 {
        let agent = Agent::start(&world);
        agent.add(&web).await;
        world
            .until("one more start", secs(400), |world| {
                starts_of(world, &uid, "main").len() == n_starts
            })
            .await;
        drop(agent);
        // The process ends while nobody is there to see it.
        tokio::time::sleep(secs(2)).await;
    }
    assert_eq!(waits(&world, &uid, "main")[1..], [10, 20, 40, 80]);
    let restarts: Vec<u32> = world
        .journal_of(&uid)
        .into_iter()
        .filter_map(|entry| match entry.act {
            Act::ContainerCreated { attempt, .. } => Some(attempt),
            _ => None,
        })
        .collect();
    assert_eq!(restarts, [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_the_runtime_refuses_does_not_end_the_crash_loop() {
    let (world, web) = (world(), pod("web").container("main", IMAGE).build());
    world.script_name("main", Script::ExitsAfter(secs(1), 1));
    let uid = web.uid();
    let agent = Agent::start(&world);
    agent.add(&web).await;
    world.until("three starts", secs(400), |world| starts_of(world, &uid, "main").len() == 3).await;
    // The container is made and stays so.
    let kind = RuntimeErrorKind::Unavailable;
    world.fail_next(Call::StartContainer, 1, kind, "busy");
    world.until("five starts", secs(400), |world| starts_of(world, &uid, "main").len() == 5).await;
    assert_eq!(waits(&world, &uid, "main"), [0, 10, 21, 40]);
}

#[tokio::test(start_paused = true)]
async fn ten_good_minutes_end_a_crash_loop() {
    let (world, web) = (world(), pod("web").container("main", IMAGE).build());
    let crash = Script::ExitsAfter(secs(1), 1);
    let long = Script::ExitsAfter(secs(601), 1);
    let series = vec![crash.clone(), crash.clone(), crash.clone(), long, crash];
    world.script_series(&web.key(), "main", series);
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    world.until("six starts", secs(1000), |world| starts_of(world, &uid, "main").len() == 6).await;
    assert_eq!(waits(&world, &uid, "main"), [0, 10, 20, 0, 10]);
}

#[tokio::test(start_paused = true)]
async fn policies_say_who_restarts() {
    let check = async |policy: RestartPolicy, code: i32, restarts: bool| {
        let world = world();
        let web = pod("web").container("main", IMAGE).restart_policy(policy).build();
        world.script_name("main", Script::ExitsAfter(secs(1), code));
        let agent = Agent::start(&world);
        agent.add(&web).await;
        tokio::time::sleep(secs(30)).await;
        let n_starts = starts_of(&world, &web.uid(), "main").len();
        assert_eq!(n_starts > 1, restarts, "{policy:?} after {code}");
    };
    check(RestartPolicy::Always, 0, true).await;
    check(RestartPolicy::Always, 1, true).await;
    check(RestartPolicy::OnFailure, 0, false).await;
    check(RestartPolicy::OnFailure, 1, true).await;
    check(RestartPolicy::Never, 0, false).await;
    check(RestartPolicy::Never, 1, false).await;
}

#[tokio::test(start_paused = true)]
async fn last_words_are_shown() {
    let (world, job) = (
        world(),
        pod("job")
            .container("main", IMAGE)
            .container("mute", IMAGE)
            .edit_container("mute", |it| {
                it.termination_message_policy = Some("FallbackToLogsOnError".to_owned());
            })
            .restart_policy(RestartPolicy::Never)
            .build(),
    );
    let words = "out of cheese".to_owned();
    world.script_name("main", Script::ExitsWithMessage(secs(1), 3, words.clone()));
    world.script_name("mute", Script::ExitsAfter(secs(1), 4));
    let agent = Agent::start(&world);
    agent.add(&job).await;
    let uid = job.uid();
    world.until("it runs", SOON, |world| world.is_running(&uid, "mute")).await;
    let log = world.newest_container(&uid, "mute").unwrap().log_path;
    world.append_file(&log, "no cheese\n");
    eventually("it ended", SOON, || agent.phase(&uid) == "Failed").await;
    let said = |name| {
        let ended = agent.container_state(&uid, name).terminated.unwrap();
        (ended.exit_code, ended.message.unwrap_or_default())
    };
    assert_eq!(said("main"), (3, words));
    assert_eq!(said("mute"), (4, "no cheese\n".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_start_is_tried_again_with_its_reason_shown() {
    let check = async |script: Script, reason: &str| {
        let (world, web) =
            (world(), pod("web").container("main", IMAGE).container("other", IMAGE).build());
        let series = vec![script.clone(), script, Script::Runs];
        world.script_series(&web.key(), "main", series);
        let agent = Agent::start(&world);
        agent.add(&web).await;
        let uid = web.uid();
        eventually("the reason is shown", SOON, || agent.waits_for(&uid, "main") == reason).await;
        main_runs(&world, &uid, secs(60)).await;
        eventually("it is shown to run", SOON, || {
            agent.container_state(&uid, "main").running.is_some()
        })
        .await;
        assert_eq!(starts_of(&world, &uid, "other").len(), 1);
    };
    let message = "no such file".to_owned();
    check(Script::FailsToCreate(message.clone()), "CreateContainerError").await;
    check(Script::FailsToStart(message), "RunContainerError").await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_sandbox_is_replaced_with_everything_in_it() {
    let (world, web) = (world(), pod("web").init("first", IMAGE).container("main", IMAGE).build());
    world.script_name("first", Script::ExitsAfter(secs(1), 0));
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    main_runs(&world, &uid, SOON).await;
    world.crash_sandbox(&world.sandboxes()[0].id);
    world
        .until("it runs again", secs(30), |world| {
            world.is_running(&uid, "main") && world.sandboxes().iter().any(|it| it.is_ready)
        })
        .await;
    assert_eq!(starts_of(&world, &uid, "first").len(), 2, "it is set up anew");
    assert_eq!(world.newest_container(&uid, "main").unwrap().spec.attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn a_manifest_that_was_edited_while_the_agent_was_away_starts_when_the_old_pod_is_gone() {
    let world = world();
    let version = |uid: &str| {
        let pod = pod("web").container("main", IMAGE).uid(uid);
        pod.static_file().build()
    };
    let old = version("0123456789abcdef0123456789abcdef");
    let new = version("fedcba9876543210fedcba9876543210");
    let agent = Agent::start(&world);
    agent.add(&old).await;
    main_runs(&world, &old.uid(), SOON).await;
    drop(agent);
    world.script_name("main", Script::IgnoresSignal);
    let agent = Agent::start(&world);
    // Another source has yet to speak; the edited manifest is news enough.
    agent.tell_when([PodChange::Added(new.clone())], false).await;
    world
        .until("the new one runs", secs(60), |world| {
            assert!(
                !(world.is_running(&old.uid(), "main") && world.is_running(&new.uid(), "main")),
                "never side by side"
            );
            world.is_running(&new.uid(), "main")
        })
        .await;
    assert!(world.is_gone(&old.uid()));
    // The specification it was made from is lost, and its end is told of all the same.
    let killed = world.recorded_events().into_iter().map(|(_, it)| it);
    let killed: Vec<_> = killed.filter(|it| it.reason == "Killing").collect();
    assert_eq!(killed.len(), 1);
    assert_eq!(killed[0].message, "Stopping container main");
    let about = EventObject::Pod {
        uid: old.uid(),
        key: old.key(),
        field_path: Some("spec.containers{main}".to_owned()),
    };
    assert_eq!(killed[0].object, about);
}

#[tokio::test(start_paused = true)]
async fn an_exit_that_asks_for_it_restarts_every_container_in_the_same_sandbox() {
    let world = world();
    let web = pod("web")
        .init("first", IMAGE)
        .container("main", IMAGE)
        .container("watch", IMAGE)
        .restart_policy(RestartPolicy::Never)
        .edit_container("watch", |container| {
            container.restart_policy = Some("Never".to_owned());
            container.restart_policy_rules =
                Some(vec![k8s_openapi::api::core::v1::ContainerRestartRule {
                    action: "RestartAllContainers".to_owned(),
                    exit_codes: Some(k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes {
                        operator: "In".to_owned(),
                        values: Some(vec![42]),
                    }),
                }]);
        })
        .build();
    world.script_name("first", Script::ExitsAfter(secs(1), 0));
    let key = web.key();
    world.script_series(&key, "watch", vec![Script::ExitsAfter(secs(3), 42), Script::Runs]);
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    eventually("it started anew", secs(20), || {
        ["main", "watch"].iter().all(|name| {
            let shown = agent.container(&uid, name);
            shown.is_some_and(|it| {
                it.restart_count == 1 && it.state.is_some_and(|it| it.running.is_some())
            })
        })
    })
    .await;
    assert_eq!(world.sandboxes().len(), 1);
    for name in ["first", "main", "watch"] {
        assert_eq!(starts_of(&world, &uid, name).len(), 2, "{name}");
    }
    let status = agent.status(&uid).unwrap();
    let condition =
        status.conditions.unwrap().into_iter().find(|it| it.type_ == "AllContainersRestarting");
    assert_eq!(condition.unwrap().status, "False");
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let last = agent.container(&uid, "main").unwrap().last_state.unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("RestartingAllContainers")));
}

/// A restart of the agent is no news about a static pod either, though its manifest remembers
/// nothing.
#[tokio::test(start_paused = true)]
async fn a_static_pod_stays_as_ready_as_it_was_over_a_restart_of_the_agent() {
    for (said, is_ready) in
        [(ProbeResult::Success, true), (ProbeResult::Failure { grace: None }, false)]
    {
        let world = world();
        let web = pod("web")
            .static_file()
            .container("main", IMAGE)
            .edit_container("main", |it| {
                it.startup_probe = Some(Default::default());
                it.readiness_probe = Some(Default::default());
            })
            .build();
        let uid = web.uid();
        let shown = |agent: &Agent| {
            let main = agent.container(&uid, "main");
            main.map(|it| (it.started, it.ready))
        };
        let agent = Agent::start(&world);
        agent.add(&web).await;
        main_runs(&world, &uid, SOON).await;
        agent.report((&world, &uid), "main", ProbeKind::Startup, ProbeResult::Success);
        agent.report((&world, &uid), "main", ProbeKind::Readiness, said);
        let expected = Some((Some(true), is_ready));
        eventually("the probes are heard", SOON, || shown(&agent) == expected).await;
        tokio::time::sleep(secs(1)).await;
        drop(agent);
        let next = Agent::start(&world);
        next.add(&web).await;
        eventually("it is looked at", SOON, || next.phase(&uid) == "Running").await;
        assert_eq!(shown(&next), expected);
        // What a probe says then counts again.
        next.report(
            (&world, &uid),
            "main",
            ProbeKind::Readiness,
            ProbeResult::Failure { grace: None },
        );
        let sick = Some((Some(true), false));
        eventually("the next probe is heard", SOON, || shown(&next) == sick).await;
    }
}
