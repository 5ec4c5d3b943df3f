//! Images that are fetched, or cannot be.

use ferrolet_ports::{EventObject, ImageError};
use ferrolet_testkit::{Call, pod};
use ferrolet_types::pod::PodView as _;

use crate::rig::*;

const REMOTE: &str = "registry.example/remote:1";
#[tokio::test(start_paused = true)]
async fn a_failed_pull_is_an_error_then_a_back_off_then_tried_again() {
    let (world, web) = (world(), pod("web").container("main", REMOTE).build());
    let failure = ImageError::Unspecified("no such tag".to_owned());
    world.add_failing_image(REMOTE, secs(0), failure);
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    let shows = |reason: &'static str| {
        let (agent, uid) = (&agent, &uid);
        move || agent.waits_for(uid, "main") == reason
    };
    eventually("the error", millis(100), shows("ErrImagePull")).await;
    eventually("the back-off", millis(1100), shows("ImagePullBackOff")).await;
    eventually("the next error", secs(10), shows("ErrImagePull")).await;
    eventually("the back-off", millis(1100), shows("ImagePullBackOff")).await;
    world.add_pullable_image(REMOTE, secs(1));
    main_runs(&world, &uid, secs(22)).await;
    let pulls = world.recorded_events().into_iter();
    let pulls: Vec<_> =
        pulls.filter(|(_, event)| event.reason == "Pulling").map(|(at, _)| at).collect();
    let pauses: Vec<u64> = pulls.windows(2).map(|pair| pair[1].since(pair[0]).as_secs()).collect();
    assert_eq!(pauses, [10, 20]);
}

/// An ephemeral container has the events of any other, under its own field.
#[tokio::test(start_paused = true)]
async fn the_image_of_an_ephemeral_container_backs_off_with_the_same_words() {
    let world = world();
    let failure = ImageError::Unspecified("no such tag".to_owned());
    world.add_failing_image(REMOTE, secs(0), failure);
    let mut web = (*pod("web").container("main", IMAGE).build()).clone();
    let debug = serde_json::json!([{"name": "debug", "image": REMOTE}]);
    let spec = web.spec.as_mut().unwrap();
    spec.ephemeral_containers = serde_json::from_value(debug).unwrap();
    let agent = Agent::start(&world);
    agent.add(&web.into()).await;
    let told = || {
        let events = world.recorded_events().into_iter();
        let about = events.filter_map(|(_, event)| match event.object {
            EventObject::Pod { field_path, .. }
                if field_path.as_deref() == Some("spec.ephemeralContainers{debug}") =>
            {
                Some(event.message)
            }
            _ => None,
        });
        about.collect::<Vec<String>>()
    };
    eventually("it backs off", secs(5), || told().iter().any(|it| it == "Error: ImagePullBackOff"))
        .await;
    let expected = [
        format!("Pulling image {REMOTE:?}"),
        format!("Failed to pull image {REMOTE:?}: no such tag"),
        "Error: ErrImagePull".to_owned(),
        format!("Back-off pulling image {REMOTE:?}"),
        "Error: ImagePullBackOff".to_owned(),
    ];
    assert_eq!(told(), expected);
}

/// Waiting reasons.
#[tokio::test(start_paused = true)]
async fn bad_images_have_reasons() {
    let check = async |image: &str, policy: &str, reason: &str| {
        let world = world();
        let web = pod("web")
            .container("main", image)
            .edit_container("main", |it| it.image_pull_policy = Some(policy.to_owned()))
            .build();
        let agent = Agent::start(&world);
        agent.add(&web).await;
        eventually(reason, SOON, || agent.waits_for(&web.uid(), "main") == reason).await;
        assert_eq!(agent.phase(&web.uid()), "Pending");
    };
    check(REMOTE, "Never", "ErrImageNeverPull").await;
    check(REMOTE, "IfNotPresent", "ErrImagePull").await;
    check("UPPER//case", "IfNotPresent", "InvalidImageName").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_removed_while_its_image_is_fetched_ends_promptly() {
    let (world, web) = (world(), pod("web").container("main", REMOTE).build());
    world.add_pullable_image(REMOTE, secs(600));
    let agent = Agent::start(&world);
    agent.add(&web).await;
    let uid = web.uid();
    eventually("the pull", SOON, || world.in_flight(Call::PullImage) == 1).await;
    agent.remove(&web).await;
    nothing_is_left(&world, &uid, secs(1)).await;
}

/// So many at once.
#[tokio::test(start_paused = true)]
async fn pulls_wait_in_line() {
    let world = world();
    let agent = Agent::start(&world);
    let pods: Vec<_> = (0..5)
        .map(|n| {
            let image = format!("registry.example/remote:{n}");
            world.add_pullable_image(&image, secs(10));
            pod(&format!("web-{n}")).container("main", &image).build()
        })
        .collect();
    for pod in &pods {
        agent.add(pod).await;
    }
    world
        .until("all run", secs(35), |world| {
            pods.iter().all(|pod| world.is_running(&pod.uid(), "main"))
        })
        .await;
    assert_eq!(world.peak(Call::PullImage), 2);
}

/// Besides upstream's events, whoever waits for long is told how long it has been, ever
/// more rarely.
#[tokio::test(start_paused = true)]
async fn a_long_pull_and_a_long_wait_for_one_are_told_ever_more_rarely() {
    let world = world();
    let agent = Agent::start(&world);
    let pods: Vec<_> = (0..3)
        .map(|n| {
            let image = format!("registry.example/remote:{n}");
            world.add_pullable_image(&image, secs(100));
            pod(&format!("web-{n}")).container("main", &image).build()
        })
        .collect();
    for pod in &pods {
        agent.add(pod).await;
    }
    world
        .until("all run", secs(205), |world| {
            pods.iter().all(|pod| world.is_running(&pod.uid(), "main"))
        })
        .await;
    let told = |image: &str| -> Vec<String> {
        let events = world.recorded_events().into_iter();
        events
            .filter(|(_, event)| event.reason == "Pulling" && event.message.contains(image))
            .map(|(_, event)| event.message)
            .collect()
    };
    assert_eq!(
        told("remote:0"),
        [
            "Pulling image \"registry.example/remote:0\"",
            "Still pulling image \"registry.example/remote:0\" after 10s",
            "Still pulling image \"registry.example/remote:0\" after 30s",
            "Still pulling image \"registry.example/remote:0\" after 1m10s",
        ]
    );
    let of_the_last = told("remote:2");
    assert_eq!(
        of_the_last[1],
        "Image \"registry.example/remote:2\" has waited 10s to be pulled; 2 ahead of it"
    );
    assert_eq!(of_the_last.len(), 1 + 3 + 3, "{of_the_last:#?}");
}
