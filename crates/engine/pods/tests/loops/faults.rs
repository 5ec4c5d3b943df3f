//! Things that go wrong, and what they must not touch.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use ferrolet_ports::{Event, Events, PodCgroups as _, PodFiles as _, RuntimeErrorKind};
use ferrolet_resources::{CgroupLimits, PodCgroup};
use ferrolet_testkit::{Act, Call, FakeEvents, Script, World, pod, roomy_node};
use ferrolet_types::{
    PodChange, Qos, Quantity,
    hint::Hint,
    pod::{PodView as _, RestartPolicy},
};

use crate::rig::*;

#[tokio::test(start_paused = true)]
async fn a_pod_whose_status_call_hangs_delays_no_other() {
    let world = world();
    let agent = Agent::start(&world);
    let (hung, well) = (
        pod("hung").container("main", IMAGE).build(),
        pod("well").container("main", IMAGE).build(),
    );
    world.hang_pod(&hung.uid());
    agent.add(&hung).await;
    agent.add(&well).await;
    world.until("the other runs", millis(100), |world| world.is_running(&well.uid(), "main")).await;
    agent.remove(&well).await;
    world.until("the other is gone", millis(100), |world| world.is_gone(&well.uid())).await;
    assert!(!world.is_running(&hung.uid(), "main"));
    world.free_hung();
    main_runs(&world, &hung.uid(), SOON).await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_wished_for_during_a_slow_look_starts_nothing() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    world.hang_pod_call(&uid, Call::ObservePod);
    agent.add(&web).await;
    eventually("the look", SOON, || world.in_flight(Call::ObservePod) == 1).await;
    agent.remove(&web).await;
    tokio::time::sleep(millis(10)).await;
    world.free_hung();
    eventually("it is forgotten", SOON, || agent.status(&uid).is_none()).await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(world.journal_of(&uid), []);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_away_delays_and_loses_nothing() {
    let world = world();
    world.runtime_down();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    agent.add(&web).await;
    eventually("it is shown", SOON, || agent.phase(&uid) == "Pending").await;
    tokio::time::sleep(secs(60)).await;
    world.runtime_up();
    main_runs(&world, &uid, secs(6)).await;
    world.runtime_down();
    agent.remove(&web).await;
    tokio::time::sleep(secs(60)).await;
    assert!(world.is_running(&uid, "main"));
    world.runtime_up();
    nothing_is_left(&world, &uid, secs(12)).await;
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_away_when_the_agent_comes_back_makes_nobody_look_dead() {
    let world = world();
    let builder = pod("web").container("main", IMAGE).restart_policy(RestartPolicy::Never);
    let web = builder.clone().build();
    let uid = web.uid();
    let agent = Agent::start(&world);
    agent.add(&web).await;
    eventually("it runs", SOON, || agent.phase(&uid) == "Running").await;
    // The API server has heard of it.
    let status = agent.status(&uid);
    let web = builder.edit(|pod| pod.status = status).build();
    drop(agent);
    world.runtime_down();
    let agent = Agent::start(&world);
    agent.add(&web).await;
    eventually("it is shown", SOON, || agent.status(&uid).is_some()).await;
    assert_eq!(agent.status(&uid), web.status);
    tokio::time::sleep(secs(60)).await;
    world.runtime_up();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(agent.phase(&uid), "Running");
    assert!(world.is_running(&uid, "main"));
}

/// Housekeeping; nothing is deleted before every source has spoken.
#[tokio::test(start_paused = true)]
async fn what_nobody_asked_for_goes_once_all_sources_have_spoken() {
    let world = world();
    let (stray, web) = (
        pod("stray").container("main", IMAGE).empty_dir("data").build(),
        pod("web").container("main", IMAGE).build(),
    );
    let agent = Agent::start(&world);
    agent.add(&stray).await;
    agent.add(&web).await;
    let uid = stray.uid();
    world
        .until("both run", SOON, |world| {
            world.is_running(&uid, "main") && world.is_running(&web.uid(), "main")
        })
        .await;
    drop(agent);
    let agent = Agent::start(&world);
    agent.tell_when([PodChange::Added(web.clone())], false).await;
    let census = Hint::Census(vec![uid.clone(), web.uid()]);
    agent.hint(census).await;
    tokio::time::sleep(secs(60)).await;
    assert!(world.is_running(&uid, "main"), "its source may be slow");
    agent.tell([]).await;
    nothing_is_left(&world, &uid, secs(5)).await;
    assert_eq!(starts_of(&world, &web.uid(), "main").len(), 1);
}

/// Even if the memory of an earlier life is lost for good: what is turned away does not run.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_turned_away_and_runs_is_ended() {
    let world = world();
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    let agent = Agent::start(&world);
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    drop(agent);
    let files = world.files();
    files.remove_pod(&uid).await.unwrap();
    files.remove_logs(&web.key(), &uid).await.unwrap();
    let mut full = roomy_node();
    full.allocatable.insert("pods".to_owned(), Quantity::from_value(0));
    let agent = Agent::with_node(&world, full);
    agent.add(&web).await;
    eventually("it is turned away", SOON, || agent.phase(&uid) == "Failed").await;
    let patience = secs(60);
    eventually("it does not run", patience, || !world.is_running(&uid, "main")).await;
    assert_eq!(agent.phase(&uid), "Failed");
}

/// Orphan pod directories and pod cgroups.
#[tokio::test(start_paused = true)]
async fn a_search_for_left_overs_that_fails_is_repeated() {
    let world = world();
    let first = pod("first").build();
    world.files().ensure_pod(&first.key(), &first.uid()).await.unwrap();
    let agent = Agent::start(&world);
    tokio::time::sleep(secs(1)).await;
    world.fail_next(Call::ListPodFiles, 3, RuntimeErrorKind::Unavailable, "input/output error");
    agent.tell([]).await;
    nothing_is_left(&world, &first.uid(), secs(30)).await;
}

/// Orphan pod directories and pod cgroups.
#[tokio::test(start_paused = true)]
async fn directories_and_cgroups_of_an_earlier_life_are_removed() {
    let world = world();
    let (first, second) = (pod("first").build(), pod("second").build());
    let files = world.files();
    files.ensure_pod(&first.key(), &first.uid()).await.unwrap();
    let cgroup = PodCgroup {
        uid: second.uid(),
        qos: Qos::BestEffort,
        limits: CgroupLimits::default(),
        huge_pages: Default::default(),
    };
    world.cgroups().ensure(&cgroup).await.unwrap();
    let agent = Agent::start(&world);
    agent.tell_when([], false).await;
    tokio::time::sleep(secs(60)).await;
    assert!(!world.is_gone(&first.uid()) && !world.is_gone(&second.uid()));
    agent.tell([]).await;
    world
        .until("nothing is left", SOON, |world| {
            world.is_gone(&first.uid()) && world.is_gone(&second.uid())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_fails_is_tried_again() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).empty_dir("data").build();
    world.break_volume("data", Some("no such disk"));
    agent.add(&web).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(world.sandboxes(), []);
    let events = world.recorded_events();
    let told = events.iter().filter(|(_, it)| it.reason == "FailedMount");
    assert!((5..=10).contains(&told.count()), "1, 2, 4, 8, 10, 10 … s");
    world.break_volume("data", None);
    main_runs(&world, &web.uid(), secs(11)).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_volumes_find_no_room_on_the_node_fails_for_good() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).empty_dir("data").build();
    world.leave_no_room_for_volume("data", "no room");
    agent.add(&web).await;
    world.until("it failed", secs(5), |_| agent.phase(&web.uid()) == "Failed").await;
    let status = agent.status(&web.uid()).unwrap();
    assert_eq!(status.reason.as_deref(), Some("VolumeAttachmentLimitExceeded"));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: no room"));
    assert_eq!(world.sandboxes(), []);
    let events = world.recorded_events();
    let told = events.iter().filter(|(_, it)| it.reason == "VolumeAttachmentLimitExceeded");
    assert_eq!(told.count(), 1);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(agent.phase(&web.uid()), "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_fails_is_tried_again() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).build();
    let kind = RuntimeErrorKind::Internal;
    world.fail_next(Call::RunSandbox, 3, kind, "no network");
    let began = world.now();
    agent.add(&web).await;
    main_runs(&world, &web.uid(), secs(20)).await;
    assert_eq!(world.now().since(began).as_secs(), 1 + 2 + 4);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_of_pods_takes_turns_with_sandboxes() {
    let world = world();
    world.set_latency(Call::RunSandbox, secs(1));
    let agent = Agent::start(&world);
    let pods: Vec<_> =
        (0..20).map(|n| pod(&format!("web-{n}")).container("main", IMAGE).build()).collect();
    let changes = pods.iter().map(|pod| PodChange::Added(pod.clone()));
    agent.tell(changes).await;
    world
        .until("all run", secs(10), |world| {
            pods.iter().all(|pod| world.is_running(&pod.uid(), "main"))
        })
        .await;
    assert_eq!(world.peak(Call::RunSandbox), N_PARALLEL_SANDBOXES);
}

/// Step 4.
#[tokio::test(start_paused = true)]
async fn pods_wait_for_the_network() {
    let world = world();
    let agent = Agent::start(&world);
    agent.set_network(false);
    tokio::time::sleep(millis(1)).await;
    let (web, host) = (
        pod("web").container("main", IMAGE).build(),
        pod("host").container("main", IMAGE).host_network().build(),
    );
    agent.add(&web).await;
    agent.add(&host).await;
    world.until("the one without runs", SOON, |world| world.is_running(&host.uid(), "main")).await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(world.journal_of(&web.uid()), []);
    let events = world.recorded_events();
    let told = events.iter().filter(|(_, it)| it.reason == "NetworkNotReady");
    assert_eq!(told.count(), 1);
    agent.set_network(true);
    main_runs(&world, &web.uid(), millis(100)).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_keeps_of_a_start_that_was_given_up_holds_nobody_up() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    // What containerd says when its caller dies between a task's creation and its start.
    let given_up = "failed to create containerd task: failed to get task pid: context canceled";
    let series = vec![Script::FailsToStart(given_up.to_owned()), Script::Runs];
    world.script_series(&web.key(), "main", series);
    let refusal = "failed to delete containerd container: cannot delete running task";
    let kind = RuntimeErrorKind::FailedPrecondition;
    world.fail_next(Call::RemoveContainer, 2, kind, refusal);
    world.fail_next(Call::RemoveSandbox, 1, kind, refusal);
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    eventually("it is shown", SOON, || agent.phase(&uid) == "Running").await;
    let shown = agent.container(&uid, "main").unwrap();
    assert_eq!((shown.restart_count, shown.last_state), (0, Some(Default::default())));
    let attempts: Vec<u32> = world.containers_of(&uid).iter().map(|it| it.spec.attempt).collect();
    assert_eq!(attempts, [0, 1]);

    agent.remove(&web).await;
    eventually("its worker is done", SOON, || agent.status(&uid).is_none()).await;
    assert!(!world.containers_of(&uid).is_empty(), "the runtime keeps it");
    assert!(world.files().list().await.unwrap().is_empty(), "nothing else is left");
    agent.hint(Hint::Census(vec![uid.clone()])).await;
    nothing_is_left(&world, &uid, SOON).await;
}

/// Panics when it hears that word, so many times.
struct Grenade {
    events: Arc<FakeEvents>,
    word: &'static str,
    left: AtomicU32,
}

impl Grenade {
    fn agent(world: &World, word: &'static str, n_panics: u32) -> Agent {
        let grenade = Grenade { events: world.events(), word, left: AtomicU32::new(n_panics) };
        Agent::with_events(world, Arc::new(grenade))
    }
}

impl Events for Grenade {
    fn record(&self, event: Event) {
        if event.reason == self.word {
            let count_down = |left: u32| left.checked_sub(1);
            let order = Ordering::SeqCst;
            let is_spent = self.left.fetch_update(order, order, count_down).is_err();
            assert!(is_spent, "on purpose");
        }
        self.events.record(event);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_is_replaced_and_finishes_the_job() {
    let world = world();
    let agent = Grenade::agent(&world, "Created", 3);
    let began = world.now();
    let web = pod("web").container("main", IMAGE).build();
    agent.add(&web).await;
    let uid = web.uid();
    main_runs(&world, &uid, secs(10)).await;
    let made = times(&world, &uid, |act| matches!(act, Act::ContainerCreated { .. }));
    assert_eq!(made.len(), 4, "half-made containers make room");
    assert_eq!(world.sandboxes().len(), 1);
    let took = world.now().since(began).as_secs();
    assert_eq!(took, 1 + 2 + 4, "it does not spin");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_while_it_takes_its_pod_down_is_replaced_too() {
    let world = world();
    let agent = Grenade::agent(&world, "Killing", 1);
    let web = pod("web").container("main", IMAGE).build();
    agent.add(&web).await;
    let uid = web.uid();
    main_runs(&world, &uid, SOON).await;
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_node_does_nothing() {
    let world = world();
    let agent = Agent::start(&world);
    let pods: Vec<_> =
        (0..5).map(|n| pod(&format!("web-{n}")).container("main", IMAGE).build()).collect();
    for pod in &pods {
        agent.add(pod).await;
    }
    let all_run = |world: &World| pods.iter().all(|pod| world.is_running(&pod.uid(), "main"));
    world.until("all run", SOON, all_run).await;
    tokio::time::sleep(secs(1)).await;
    let before = (world.journal().len(), world.recorded_events().len());
    tokio::time::sleep(secs(24 * 3600)).await;
    let after = (world.journal().len(), world.recorded_events().len());
    assert_eq!(before, after);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_dies_while_the_agent_is_away_is_found_dead() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    world.script_series(&web.key(), "main", vec![Script::ExitsAfter(secs(10), 7), Script::Runs]);
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    drop(agent);
    tokio::time::sleep(secs(60)).await;
    let agent = Agent::start(&world);
    agent.add(&web).await;
    world.until("it runs again", SOON, |world| world.is_running(&uid, "main")).await;
    eventually("its end is shown", SOON, || {
        let status = agent.container(&uid, "main").unwrap_or_default();
        let last = status.last_state.and_then(|it| it.terminated);
        status.restart_count == 1 && last.is_some_and(|it| it.exit_code == 7)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_when_the_agent_comes_back_holds_up_pods_and_loses_none() {
    let (world, web) = (world(), pod("web").container("main", IMAGE).build());
    world.hang_call(Call::ListPodFiles);
    let agent = Agent::start(&world);
    // More than a channel holds: nobody may wait for a loop that waits.
    agent.add(&web).await;
    for _ in 0..60 {
        agent.hint(Hint::Census(Vec::new())).await;
    }
    tokio::time::sleep(secs(20)).await;
    assert!(
        world.journal_of(&web.uid()).is_empty(),
        "whether it was taken before is not known yet"
    );
    world.free_hung();
    eventually("it runs", SOON, || world.is_running(&web.uid(), "main")).await;
    // A disk that answers with an error is not waited for.
    let other = pod("other").uid("u-2").container("main", IMAGE).build();
    drop(agent);
    let kind = RuntimeErrorKind::Internal;
    world.fail_next(Call::ListPodFiles, 2, kind, "bad sector");
    let agent = Agent::start(&world);
    agent.tell([PodChange::Added(web.clone()), PodChange::Added(other.clone())]).await;
    eventually("it runs", SOON, || world.is_running(&other.uid(), "main")).await;
    assert_eq!(starts_of(&world, &web.uid(), "main").len(), 1);
}

/// Step 6.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_cgroup_is_gone_when_the_agent_comes_back_is_killed_once() {
    for (policy, n_starts, phase) in
        [(RestartPolicy::Always, 2, "Running"), (RestartPolicy::Never, 1, "Failed")]
    {
        let world = world();
        let agent = Agent::start(&world);
        let web = pod("web").container("main", IMAGE).restart_policy(policy).build();
        let uid = web.uid();
        agent.add(&web).await;
        main_runs(&world, &uid, SOON).await;
        drop(agent);
        world.lose_cgroup(&uid);
        let agent = Agent::start(&world);
        agent.add(&web).await;
        let starts =
            || times(&world, &uid, |act| matches!(act, Act::ContainerStarted { .. })).len();
        eventually("it is made anew, or over", secs(40), || {
            starts() == n_starts && agent.phase(&uid) == phase
        })
        .await;
        tokio::time::sleep(secs(60)).await;
        assert_eq!(starts(), n_starts, "{phase}");
        let has_cgroup = world.pod_cgroups().contains_key(&uid);
        assert_eq!(has_cgroup, phase == "Running");
    }
}

/// Fresh status needed.
#[tokio::test(start_paused = true)]
async fn a_pod_that_the_runtime_cannot_tell_about_says_so() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    let kind = RuntimeErrorKind::Internal;
    world.fail_next_for(&uid, Call::ObservePod, 3, kind, "its state is damaged");
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    let events = world.recorded_events().into_iter();
    let told: Vec<String> = events
        .filter(|(_, event)| event.reason == "FailedSync")
        .map(|(_, event)| event.message)
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("error determining status: ") && told[0].contains("damaged"),
        "{told:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_broken_behind_the_agents_back_is_found_when_a_quiet_pod_is_looked_at_again() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    tokio::time::sleep(secs(1)).await;
    let looks = || world.journal_of(&uid).len();
    let before = looks();
    world.lose_cgroup(&uid);
    tokio::time::sleep(secs(50)).await;
    assert_eq!(looks(), before, "nothing happens before the period is over");
    // Killed in the wrong place, and made anew in the right one.
    let has_cgroup = |world: &World| world.pod_cgroups().contains_key(&uid);
    world.until("its cgroup is there again", secs(60), has_cgroup).await;
    main_runs(&world, &uid, secs(30)).await;
}

/// A node that is full with a pod must not turn that pod away because it forgot that it took it.
#[tokio::test(start_paused = true)]
async fn a_listing_that_fails_once_does_not_have_running_pods_judged_anew() {
    let world = world();
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    let agent = Agent::start(&world);
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    drop(agent);
    world.fail_next(Call::ListPodFiles, 3, RuntimeErrorKind::Unavailable, "input/output error");
    let mut full = roomy_node();
    full.allocatable.insert("pods".to_owned(), Quantity::from_value(0));
    let agent = Agent::with_node(&world, full);
    agent.add(&web).await;
    eventually("it is shown", secs(10), || agent.phase(&uid) == "Running").await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(agent.phase(&uid), "Running");
    assert_eq!(starts_of(&world, &uid, "main").len(), 1);
}
