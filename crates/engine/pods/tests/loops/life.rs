//! A pod's life when nothing goes wrong.

use ferrolet_ports::{
    Measured as _,
    metrics::{self, process},
};
use ferrolet_testkit::{Act, Script, pod};
use ferrolet_types::{
    PodChange, VolumeHealthReport,
    pod::{PodView as _, RestartPolicy},
};
use k8s_openapi::api::core::v1::VolumeHealthCondition;

use crate::rig::*;

#[tokio::test(start_paused = true)]
async fn a_new_pod_is_set_up_and_started() {
    let (world, web) = (world(), pod("web").container("main", IMAGE).empty_dir("data").build());
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    eventually("it runs", SOON, || agent.phase(&uid) == "Running").await;
    assert!(world.is_running(&uid, "main"));
    let sandbox = place(&world, |act| matches!(act, Act::SandboxRan { .. }));
    for made in [Act::CgroupMade, Act::DirectoriesMade, Act::VolumesReady] {
        assert!(place(&world, |act| *act == made) < sandbox, "{made:?}");
    }
    let status = agent.status(&uid).unwrap();
    assert!(status.pod_ip.is_some() && status.start_time.is_some());
    assert_eq!(world.log_links().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_says_of_a_volume_is_in_the_status_until_it_says_otherwise() {
    let (world, web) = (world(), pod("web").container("main", IMAGE).empty_dir("data").build());
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    eventually("it runs", SOON, || agent.phase(&uid) == "Running").await;
    let report = |conditions: Vec<VolumeHealthCondition>| VolumeHealthReport {
        uid: uid.clone(),
        volume: "data".to_owned(),
        conditions,
    };
    let told = || {
        let health = agent.status(&uid).unwrap().volume_health;
        let mut volumes = health.unwrap_or_default().into_iter();
        volumes.find_map(|it| it.health_conditions)
    };
    let slow = VolumeHealthCondition {
        status: "Degraded".to_owned(),
        reason: "DiskSlow".to_owned(),
        message: None,
    };
    agent.tell_health(report(vec![slow.clone()])).await;
    eventually("it is told", SOON, || told() == Some(vec![slow.clone()])).await;
    agent.tell_health(report(Vec::new())).await;
    eventually("it is well again", SOON, || told().is_none()).await;
    // Of a pod that is not here nobody is told.
    let mut foreign = report(vec![slow]);
    foreign.uid = "nobody".into();
    agent.tell_health(foreign).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(told(), None);
}

#[tokio::test(start_paused = true)]
async fn containers_of_a_pod_start_together() {
    let (world, web) = (
        world(),
        pod("web")
            .container("one", IMAGE)
            .container("slow", "registry.example/slow:1")
            .container("three", IMAGE)
            .build(),
    );
    world.add_pullable_image("registry.example/slow:1", secs(60));
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    let two_run = |world: &ferrolet_testkit::World| {
        world.is_running(&uid, "one") && world.is_running(&uid, "three")
    };
    world.until("two of three run", SOON, two_run).await;
    world.until("the slow one runs", secs(61), |world| world.is_running(&uid, "slow")).await;
    eventually("all are ready", SOON, || {
        ["one", "slow", "three"]
            .iter()
            .all(|name| agent.container(&uid, name).is_some_and(|it| it.ready))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_one_after_the_other_and_before_the_rest() {
    let (world, web) = (
        world(),
        pod("web")
            .init("first", IMAGE)
            .sidecar("beside", IMAGE)
            .init("second", IMAGE)
            .container("main", IMAGE)
            .build(),
    );
    world.script_name("first", Script::ExitsAfter(secs(3), 0));
    world.script_name("second", Script::ExitsAfter(secs(4), 0));
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    main_runs(&world, &uid, secs(60)).await;
    let start = |name: &str| starts_of(&world, &uid, name)[0];
    assert!(start("beside").since(start("first")) >= secs(3));
    assert!(start("second") >= start("beside"));
    assert!(start("main").since(start("second")) >= secs(4));
    assert!(start("main").since(start("second")) <= millis(4100));
    assert!(world.is_running(&uid, "beside"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_keeps_its_containers_and_nothing_else() {
    let check = async |code: i32, phase: &str| {
        let (world, job) = (
            world(),
            pod("job")
                .container("main", IMAGE)
                .sidecar("beside", IMAGE)
                .empty_dir("data")
                .restart_policy(RestartPolicy::Never)
                .build(),
        );
        world.script_name("main", Script::ExitsAfter(secs(2), code));
        let agent = Agent::start(&world);
        agent.add(&job).await;
        let uid = job.uid();
        eventually("it ended", secs(60), || agent.phase(&uid) == phase).await;
        eventually("it is cleaned up", SOON, || {
            world.pod_cgroups().is_empty() && world.ready_volumes(&uid).is_none()
        })
        .await;
        assert!(!world.is_running(&uid, "beside"), "a sidecar keeps no pod");
        assert!(world.sandboxes().iter().all(|it| !it.is_ready));
        assert_eq!(world.containers_of(&uid).len(), 2);
        agent.remove(&job).await;
        nothing_is_left(&world, &uid, SOON).await;
    };
    check(0, "Succeeded").await;
    check(3, "Failed").await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_pod_leaves_nothing() {
    let (world, web) = (
        world(),
        pod("web")
            .init("first", IMAGE)
            .container("main", IMAGE)
            .container("crashing", IMAGE)
            .empty_dir("data")
            .build(),
    );
    world.script_name("first", Script::ExitsAfter(secs(1), 0));
    world.script_name("crashing", Script::ExitsAfter(secs(1), 1));
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    eventually("it crashed twice", secs(60), || starts_of(&world, &uid, "crashing").len() >= 3)
        .await;
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, SOON).await;
    eventually("it is forgotten", SOON, || agent.status(&uid).is_none()).await;
    assert!(world.log_links().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_edited_static_pod_waits_for_the_old_one_to_be_gone() {
    let edition =
        |uid: &str| pod("web").container("main", IMAGE).grace(10).static_file().uid(uid).build();
    let (world, old, new) = (world(), edition("old"), edition("new"));
    world.script_name("main", Script::IgnoresSignal);
    let agent = Agent::start(&world);
    agent.add(&old).await;
    world.until("the old one runs", SOON, |world| world.is_running(&old.uid(), "main")).await;
    let changes = [PodChange::Removed(old.clone()), PodChange::Added(new.clone())];
    agent.tell(changes).await;
    world.until("the new one runs", secs(30), |world| world.is_running(&new.uid(), "main")).await;
    assert!(world.is_gone(&old.uid()));
    let first_of_new = world.journal_of(&new.uid())[0].at;
    let last_of_old = world.journal_of(&old.uid()).last().unwrap().at;
    assert!(first_of_new >= last_of_old);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_while_it_is_torn_down_starts_anew() {
    let (world, web) =
        (world(), pod("web").container("main", IMAGE).grace(10).static_file().build());
    world.script_name("main", Script::IgnoresSignal);
    let agent = Agent::start(&world);
    let uid = web.uid();
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    agent.remove(&web).await;
    eventually("it is being stopped", SOON, || {
        !times(&world, &uid, |act| matches!(act, Act::ContainerSignalled { .. })).is_empty()
    })
    .await;
    agent.add(&web).await;
    world.until("it runs again", secs(30), |world| starts_of(world, &uid, "main").len() == 2).await;
    let gone = place(&world, |act| *act == Act::CgroupRemoved);
    let sandboxes = times(&world, &uid, |act| matches!(act, Act::SandboxRan { .. }));
    assert_eq!(sandboxes.len(), 2);
    assert!(world.journal()[gone].at <= sandboxes[1]);
    // What tells of the life before stays, so that it is counted.
    assert!(times(&world, &uid, |act| *act == Act::DirectoriesRemoved).is_empty());
    eventually("its restart is counted", SOON, || {
        agent.container(&uid, "main").is_some_and(|it| it.restart_count == 1)
    })
    .await;
    // Other tests of this process count too.
    let restarted = process().samples_of(metrics::KUBELET_RESTARTED_PODS_TOTAL);
    let of_static = restarted.iter().find(|it| it.labels == ["true"]);
    assert!(of_static.is_some_and(|it| it.value.total() >= 1.0), "{restarted:?}");
    assert!(!process().samples_of(metrics::KUBELET_PLEG_POD_RELIST_DURATION_SECONDS).is_empty());
    let working = ferrolet_pods::working_pods().samples();
    let at_work = working.iter().find(|it| it.labels == ["desired", "sync", "true"]);
    assert!(at_work.is_some_and(|it| it.value.total() >= 1.0), "{at_work:?}");
}

#[tokio::test(start_paused = true)]
async fn only_the_container_that_changed_restarts() {
    let (world, builder) = (world(), pod("web").container("one", IMAGE).container("two", IMAGE));
    world.add_image("registry.example/app:2");
    let (old, new) = (
        builder.clone().build(),
        builder
            .edit_container("two", |it| {
                it.image = Some("registry.example/app:2".to_owned());
            })
            .build(),
    );
    let agent = Agent::start(&world);
    let uid = old.uid();
    agent.add(&old).await;
    eventually("it runs", SOON, || agent.phase(&uid) == "Running").await;
    agent.tell([PodChange::Updated(new)]).await;
    world
        .until("the new image runs", SOON, |world| {
            let newest = world.newest_container(&uid, "two");
            newest.is_some_and(|it| {
                it.state.is_running() && it.spec.image.ends_with(":2") && it.spec.attempt == 1
            })
        })
        .await;
    assert_eq!(starts_of(&world, &uid, "one").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_adopted_untouched_and_what_is_half_made_is_completed() {
    let (world, web) = (
        world(),
        pod("web")
            .init("first", IMAGE)
            .container("main", IMAGE)
            .container("late", "registry.example/late:1")
            .build(),
    );
    world.script_name("first", Script::ExitsAfter(secs(1), 0));
    world.add_pullable_image("registry.example/late:1", secs(100));
    let uid = web.uid();
    let agent = Agent::start(&world);
    agent.add(&web).await;
    world.until("one of two runs", secs(10), |world| world.is_running(&uid, "main")).await;
    let adopted = world.newest_container(&uid, "main").unwrap().id;
    drop(agent);
    let agent = Agent::start(&world);
    agent.add(&web).await;
    world.until("the other one runs", secs(200), |world| world.is_running(&uid, "late")).await;
    eventually("it is shown", SOON, || agent.phase(&uid) == "Running").await;
    assert_eq!(world.newest_container(&uid, "main").unwrap().id, adopted);
    assert_eq!(starts_of(&world, &uid, "first").len(), 1);
    assert_eq!(world.sandboxes().len(), 1);
}
