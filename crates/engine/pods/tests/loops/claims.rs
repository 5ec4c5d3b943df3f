//! Pods with claims of dynamic resources: prepared before the sandbox, taken back before the end.

use ferrolet_ports::PodClaims as _;
use ferrolet_testkit::pod;
use ferrolet_types::{Pod, pod::PodView as _};
use k8s_openapi::api::core::v1::{PodResourceClaim, ResourceStatus};

use crate::rig::*;

fn claiming_pod() -> Pod {
    let mut web = (*pod("web").container("main", IMAGE).build()).clone();
    let claim = PodResourceClaim {
        name: "gpu".to_owned(),
        resource_claim_name: Some("mine".to_owned()),
        ..PodResourceClaim::default()
    };
    web.spec.get_or_insert_default().resource_claims = Some(vec![claim]);
    web.into()
}

#[tokio::test(start_paused = true)]
async fn a_container_gets_the_devices_of_its_claims_and_their_health_is_shown() {
    let world = world();
    let agent = Agent::start(&world);
    let health = ResourceStatus { name: "claim:gpu".to_owned(), resources: None };
    agent.claims.give(&["example.com/gpu=a"], vec![health.clone()]);
    let web = claiming_pod();
    let uid = web.uid();
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    let made = world.newest_container(&uid, "main").unwrap().spec;
    assert_eq!(made.cdi_devices, ["example.com/gpu=a"]);
    let shown = || agent.container(&uid, "main").unwrap().allocated_resources_status;
    eventually("it is shown", SOON, || shown() == Some(vec![health.clone()])).await;
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, secs(60)).await;
    assert!(!agent.claims.holds(&uid));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_for_a_pod_whose_claims_are_not_prepared() {
    let world = world();
    let agent = Agent::start(&world);
    agent.claims.refuse_preparing(Some("DRA driver x is not registered"));
    let web = claiming_pod();
    let uid = web.uid();
    agent.add(&web).await;
    let told = || {
        let events = world.recorded_events().into_iter();
        let mut told = events.filter(|(_, it)| it.reason == "FailedPrepareDynamicResources");
        told.next().map(|(_, it)| it.message)
    };
    eventually("it is told", SOON, || told().is_some()).await;
    let words = "Failed to prepare dynamic resources: DRA driver x is not registered";
    assert_eq!(told().as_deref(), Some(words));
    assert_eq!(agent.phase(&uid), "Pending");
    assert!(world.sandboxes().is_empty());
    agent.claims.refuse_preparing(None);
    main_runs(&world, &uid, secs(300)).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_not_over_before_its_claims_are_taken_back() {
    let world = world();
    let agent = Agent::start(&world);
    let web = claiming_pod();
    let uid = web.uid();
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    agent.claims.refuse_unpreparing(Some("the driver is away"));
    agent.remove(&web).await;
    let stopped = || world.sandboxes().iter().all(|it| !it.is_ready);
    eventually("it is stopped", secs(60), stopped).await;
    let is_told = || {
        let events = world.recorded_events();
        events.iter().any(|(_, it)| it.message == "error syncing pod: the driver is away")
    };
    eventually("it is told", secs(60), is_told).await;
    assert!(!world.is_gone(&uid));
    agent.claims.refuse_unpreparing(None);
    nothing_is_left(&world, &uid, secs(600)).await;
    assert!(!agent.claims.holds(&uid));
}

#[tokio::test(start_paused = true)]
async fn what_drivers_hold_for_a_pod_that_is_gone_is_taken_back() {
    let world = world();
    let web = claiming_pod();
    let agent = Agent::with_claims(&world, &[web.uid()]);
    agent.tell([]).await;
    eventually("it is free", secs(60), || !agent.claims.holds(&web.uid())).await;
}
