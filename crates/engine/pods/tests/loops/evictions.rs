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
        annotations: [("starved_resource".to_owned(), "memory".to_owned())].into(),
        disruption: Some("too much".to_owned()),
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
    let annotations = world.event_annotations("Evicted");
    assert_eq!(annotations, [[("starved_resource".to_owned(), "memory".to_owned())].into()]);
    let conditions = status.conditions.unwrap();
    let disrupted = conditions.iter().find(|it| it.type_ == "DisruptionTarget").unwrap();
    assert_eq!(disrupted.reason.as_deref(), Some("TerminationByKubelet"));
    assert_eq!(disrupted.message.as_deref(), Some("too much"));
}

/// The API server may be away when the node decides: the next life of the agent goes on with it.
#[tokio::test(start_paused = true)]
async fn an_eviction_survives_the_agent_although_the_api_never_heard_of_it() {
    let world = world();
    let web = pod("web").container("main", IMAGE).build();
    let uid = web.uid();
    {
        let agent = Agent::start(&world);
        agent.add(&web).await;
        main_runs(&world, &uid, SOON).await;
        let order = Eviction {
            uid: uid.clone(),
            reason: EvictionReason::Evicted,
            message: "short".to_owned(),
            annotations: BTreeMap::new(),
            disruption: Some("short".to_owned()),
            grace: Some(GracePeriod::from_secs(1)),
        };
        agent.evict(order).await;
        world.until("it ended", SOON, |world| !world.is_running(&uid, "main")).await;
        tokio::time::sleep(secs(5)).await;
    }
    let agent = Agent::start(&world);
    agent.add(&web).await;
    eventually("it failed", secs(10), || agent.phase(&uid) == "Failed").await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!(agent.status(&uid).unwrap().reason.as_deref(), Some("Evicted"));
    let starts = times(&world, &uid, |act| matches!(act, Act::ContainerStarted { .. }));
    assert_eq!(starts.len(), 1);
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

/// No event of its own, the words of the status and the condition are upstream's.
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

/// A critical pod that lacks nothing but room costs others their place.
#[tokio::test(start_paused = true)]
async fn a_critical_pod_takes_the_place_of_another_one() {
    let world = world();
    let mut node = ferrolet_testkit::roomy_node();
    node.allocatable.insert("cpu".to_owned(), ferrolet_types::Quantity::from_milli(300));
    let agent = Agent::with_node(&world, node);
    let asking = |name: &str, cpu: &str| {
        let built = pod(name).container("main", IMAGE).build();
        let mut built = (*built).clone();
        built
            .metadata
            .annotations
            .get_or_insert_default()
            .insert("kubernetes.io/config.source".to_owned(), "api".to_owned());
        let requests = serde_json::json!({"requests": {"cpu": cpu}});
        let container = &mut built.spec.as_mut().unwrap().containers[0];
        container.resources = Some(serde_json::from_value(requests).unwrap());
        built
    };
    let small: ferrolet_types::Pod = asking("small", "100m").into();
    let large: ferrolet_types::Pod = asking("large", "200m").into();
    agent.add(&small).await;
    agent.add(&large).await;
    main_runs(&world, &small.uid(), SOON).await;
    main_runs(&world, &large.uid(), SOON).await;
    let ordinary: ferrolet_types::Pod = asking("ordinary", "50m").into();
    agent.add(&ordinary).await;
    eventually("it is refused", SOON, || agent.phase(&ordinary.uid()) == "Failed").await;
    let mut critical = asking("critical", "150m");
    critical.spec.as_mut().unwrap().priority = Some(2_000_001_000);
    let critical: ferrolet_types::Pod = critical.into();
    agent.add(&critical).await;
    main_runs(&world, &critical.uid(), SOON).await;
    eventually("it made room", SOON, || agent.phase(&large.uid()) == "Failed").await;
    let status = agent.status(&large.uid()).unwrap();
    assert_eq!(status.reason.as_deref(), Some("Preempting"));
    assert_eq!(status.message.as_deref(), Some("Preempted in order to admit critical pod"));
    let conditions = status.conditions.unwrap();
    let disrupted = conditions.iter().find(|it| it.type_ == "DisruptionTarget").unwrap();
    let said = "Pod was preempted by Kubelet to accommodate a critical pod.";
    assert_eq!(disrupted.message.as_deref(), Some(said));
    assert_eq!(agent.phase(&small.uid()), "Running");
    let events = world.recorded_events();
    let told = events.iter().filter(|(_, it)| it.reason == "Preempting");
    assert_eq!(told.count(), 1);
    world.until("it ended", secs(60), |world| !world.is_running(&large.uid(), "main")).await;
    // Nothing that goes on this node is enough for this one.
    let mut greedy = asking("greedy", "2");
    greedy.spec.as_mut().unwrap().priority = Some(2_000_001_000);
    let greedy: ferrolet_types::Pod = greedy.into();
    agent.add(&greedy).await;
    eventually("it is refused", SOON, || agent.phase(&greedy.uid()) == "Failed").await;
    let status = agent.status(&greedy.uid()).unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(agent.phase(&small.uid()), "Running");
}

/// Admission.
#[tokio::test(start_paused = true)]
async fn a_node_under_pressure_refuses_pods_that_are_not_critical() {
    let world = world();
    let mut node = ferrolet_testkit::roomy_node();
    node.facts.pressure.disk = true;
    let agent = Agent::with_node(&world, node);
    let web = pod("web").container("main", IMAGE).build();
    let mut web = (*web).clone();
    let annotations = web.metadata.annotations.get_or_insert_default();
    annotations.insert("kubernetes.io/config.source".to_owned(), "api".to_owned());
    let web: ferrolet_types::Pod = web.into();
    agent.add(&web).await;
    eventually("it is refused", SOON, || agent.phase(&web.uid()) == "Failed").await;
    let status = agent.status(&web.uid()).unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let said = "Pod was rejected: The node had condition: [DiskPressure]. ";
    assert_eq!(status.message.as_deref(), Some(said));
}
