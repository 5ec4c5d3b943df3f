//! Pods that the node cannot afford any longer.

use ferrolet_testkit::{Act, Script, pod};
use ferrolet_types::{Eviction, GracePeriod, PodChange, pod::PodView as _};

use crate::rig::*;

#[tokio::test(start_paused = true)]
async fn an_evicted_pod_fails_at_once_with_the_reason_and_stays_so() {
    let world = world();
    let agent = Agent::start(&world);
    let web = pod("web").container("main", IMAGE).grace(300).build();
    world.script_name("main", Script::IgnoresSignal);
    agent.add(&web).await;
    let uid = web.uid();
    world
        .until("it runs", SOON, |world| world.is_running(&uid, "main"))
        .await;
    let began = world.now();
    let order = Eviction {
        uid: uid.clone(),
        message: "it has too much".to_owned(),
        grace: GracePeriod::from_secs(1),
    };
    agent.evict(order.clone()).await;
    eventually("it failed", secs(10), || agent.phase(&uid) == "Failed").await;
    world
        .until("it ended", SOON, |world| !world.is_running(&uid, "main"))
        .await;
    assert!(world.now().since(began) < secs(5));
    let status = agent.status(&uid).unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    assert_eq!(status.message.as_deref(), Some("it has too much"));
    // Neither a second order nor another version of the pod starts anything.
    agent.evict(order).await;
    agent.tell([PodChange::Updated(web.clone())]).await;
    tokio::time::sleep(secs(30)).await;
    assert_eq!(agent.phase(&uid), "Failed");
    let starts = times(&world, &uid, |act| {
        matches!(act, Act::ContainerStarted { .. })
    });
    assert_eq!(starts.len(), 1);
    let events = world.recorded_events();
    let evictions = events.iter().filter(|(_, it)| it.reason == "Evicted");
    assert_eq!(evictions.count(), 1);
}
