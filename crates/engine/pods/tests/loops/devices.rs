//! Pods that ask for devices: given, refused, held back, taken back.

use ferrolet_ports::DeviceError;
use ferrolet_spec::PluginResources;
use ferrolet_testkit::pod;
use ferrolet_types::{Pod, pod::PodView as _};
use k8s_openapi::{
    api::core::v1::{ResourceRequirements, ResourceStatus},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::rig::*;

const GPU: &str = "example.com/gpu";

fn gpu_pod() -> Pod {
    let limits = [(GPU.to_owned(), Quantity("1".to_owned()))];
    let resources =
        ResourceRequirements { limits: Some(limits.into()), ..ResourceRequirements::default() };
    let web = pod("web").container("main", IMAGE);
    web.edit_container("main", |container| container.resources = Some(resources)).build()
}

#[tokio::test(start_paused = true)]
async fn a_container_gets_what_its_devices_bring_and_they_are_taken_back() {
    let world = world();
    let agent = Agent::start(&world);
    let gift = PluginResources {
        env: vec![("GPU".to_owned(), "a".to_owned())],
        cdi_devices: vec!["example.com/gpu=a".to_owned()],
        ..PluginResources::default()
    };
    agent.devices.give(gift);
    let health = ResourceStatus { name: GPU.to_owned(), resources: None };
    agent.devices.feel("main", vec![health.clone()]);
    let web = gpu_pod();
    let uid = web.uid();
    agent.add(&web).await;
    main_runs(&world, &uid, SOON).await;
    let made = world.newest_container(&uid, "main").unwrap().spec;
    assert_eq!(made.env[0], ("GPU".to_owned(), "a".to_owned()));
    assert_eq!(made.cdi_devices, ["example.com/gpu=a"]);
    eventually("it runs", SOON, || agent.phase(&uid) == "Running").await;
    let shown = || agent.container(&uid, "main").unwrap().allocated_resources_status;
    assert_eq!(shown(), Some(vec![health]));
    let worse = ResourceStatus { name: GPU.to_owned(), resources: Some(Vec::new()) };
    agent.devices.feel("main", vec![worse.clone()]);
    agent.tell_devices(&uid).await;
    eventually("it is told", SOON, || shown() == Some(vec![worse.clone()])).await;

    assert_eq!(agent.devices.owners(), [uid.clone()].into());
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, secs(60)).await;
    eventually("they are free", SOON, || agent.devices.owners().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_gets_none_fails_in_upstreams_words_before_anything_is_made() {
    let world = world();
    let agent = Agent::start(&world);
    let message = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices example.com/gpu, which is unexpected";
    agent.devices.refuse(Some(DeviceError::Refused {
        reason: "UnexpectedAdmissionError",
        message: message.to_owned(),
    }));
    let web = gpu_pod();
    let uid = web.uid();
    agent.add(&web).await;
    eventually("it failed", SOON, || agent.phase(&uid) == "Failed").await;
    let status = agent.status(&uid).unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(status.message, Some(format!("Pod was rejected: {message}")));
    assert!(world.containers_of(&uid).is_empty());
    let events = world.recorded_events();
    let told = events.iter().filter(|(_, it)| it.reason == "UnexpectedAdmissionError");
    assert_eq!(told.map(|(_, it)| it.message.as_str()).collect::<Vec<_>>(), [message]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_a_plugin_that_has_yet_to_come_back() {
    let world = world();
    let agent = Agent::start(&world);
    let message = "waiting for the device plugin of example.com/gpu".to_owned();
    let reason = "FailedAllocateDevices";
    agent.devices.refuse(Some(DeviceError::NotYet { reason, message }));
    let web = gpu_pod();
    let uid = web.uid();
    agent.add(&web).await;
    let is_told = || world.recorded_events().iter().any(|(_, it)| it.reason == reason);
    eventually("it is told", SOON, is_told).await;
    assert_eq!(agent.phase(&uid), "Pending");
    agent.devices.refuse(None);
    agent.devices.hold_back(Some("waiting for the device plugin of example.com/gpu: it is away"));
    agent.tell_devices(&uid).await;
    let waits = || {
        let state = agent.container(&uid, "main").and_then(|it| it.state?.waiting);
        state.is_some_and(|it| it.message.is_some_and(|it| it.contains("it is away")))
    };
    eventually("its container waits", SOON, waits).await;
    agent.devices.hold_back(None);
    agent.tell_devices(&uid).await;
    main_runs(&world, &uid, secs(1)).await;
}
