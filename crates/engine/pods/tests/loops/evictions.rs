//! Pods that the node cannot afford any longer.

use std::collections::BTreeMap;

use ferrolet_testkit::{Act, Call, Script, pod};
use ferrolet_types::{Eviction, EvictionReason, GracePeriod, PodChange, pod::PodView as _};

use crate::rig::*;

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_fails_at_once_with_the_reason_and_stays_so() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).grace(300).build();
    world.script_name("main", Script::IgnoresSignal);
    agent.add(&web).await;
    let uid = web.uid();
    main_runs(&world, &uid, SOON).await;
    let began = world.now();
    let order = Eviction {
        uid: uid.clone(),
        reason: EvictionReason::Evicted,
        message: "it has too much".to_owned(),
        annotations: BTreeMap::new(),
        disruption: None,
        grace: Some(GracePeriod::from_secs(1)),
    };
    agent.evict(order.clone()).await;
    eventually("it failed", secs(10), || agent.phase(&uid) == "Failed").await;
    world.until("it ended", SOON, |world| !world.is_running(&uid, "main")).await;
    assert!(world.now().since(began) < secs(5));
    let status = agent.status(&uid).unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    assert_eq!(status.message.as_deref(), Some("it has too much"));
    // Its status is all that stays of it.
    world.until("nothing else is left", SOON, |world| world.containers_of(&uid).is_empty()).await;
    let shown = agent.container(&uid, "main").unwrap();
    assert!(shown.state.unwrap().terminated.is_some());
    // Neither a second order nor another version of the pod starts anything.
    agent.evict(order).await;
    agent.tell([PodChange::Updated(web.clone())]).await;
    tokio::time::sleep(secs(30)).await;
    assert_eq!(agent.phase(&uid), "Failed");
    let starts = times(&world, &uid, |act| matches!(act, Act::ContainerStarted { .. }));
    assert_eq!(starts.len(), 1);
    let events = world.recorded_events();
    let evictions = events.iter().filter(|(_, it)| it.reason == "Evicted");
    assert_eq!(evictions.count(), 1);
}

/// Kill waiters.
#[tokio::test(start_paused = true)]
async fn an_eviction_that_takes_too_long_is_told_once() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).build();
    agent.add(&web).await;
    let uid = web.uid();
    main_runs(&world, &uid, SOON).await;
    world.hang_pod_call(&uid, Call::StopContainer);
    let order = Eviction {
        uid: uid.clone(),
        reason: EvictionReason::Evicted,
        message: "it has too much".to_owned(),
        annotations: BTreeMap::new(),
        disruption: None,
        grace: Some(GracePeriod::from_secs(2)),
    };
    agent.evict(order).await;
    let told = || {
        let events = world.recorded_events().into_iter();
        let overdue = events.filter(|(_, event)| event.reason == "ExceededGracePeriod");
        overdue.count()
    };
    tokio::time::sleep(secs(9)).await;
    assert_eq!(told(), 0);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(told(), 1);
    world.free_hung();
    eventually("it failed", secs(30), || agent.phase(&uid) == "Failed").await;
    tokio::time::sleep(secs(30)).await;
    assert_eq!(told(), 1);
}

/// 8.18: no event of its own, the words of the status and the condition are upstream's.
#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_with_its_machine_says_so() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).grace(300).build();
    world.script_name("main", Script::IgnoresSignal);
    agent.add(&web).await;
    let uid = web.uid();
    main_runs(&world, &uid, SOON).await;
    let began = world.now();
    let message = "Pod was terminated in response to imminent node shutdown.".to_owned();
    agent
        .evict(Eviction {
            uid: uid.clone(),
            reason: EvictionReason::Terminated,
            message: message.clone(),
            annotations: BTreeMap::new(),
            disruption: Some(message.clone()),
            grace: Some(GracePeriod::from_secs(4)),
        })
        .await;
    world.until("it ended", SOON, |world| !world.is_running(&uid, "main")).await;
    assert!(world.now().since(began) < secs(8));
    eventually("it failed", secs(10), || agent.phase(&uid) == "Failed").await;
    let status = agent.status(&uid).unwrap();
    assert_eq!(status.reason.as_deref(), Some("Terminated"));
    assert_eq!(status.message.as_ref(), Some(&message));
    let conditions = status.conditions.unwrap();
    let target = conditions.iter().find(|it| it.type_ == "DisruptionTarget").unwrap();
    assert_eq!((target.status.as_str(), target.message.as_ref()), ("True", Some(&message)));
    assert_eq!(target.reason.as_deref(), Some("TerminationByKubelet"));
    let events = world.recorded_events();
    assert!(!events.iter().any(|(_, it)| it.reason == "Terminated"), "{events:?}");
}
