//! The loop on a world, with paused time.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{PodsView, Runtime as _, RuntimeErrorKind};
use ferrolet_testkit::{Call, FakeLogStore, Script, World, container_spec, pod, sandbox_spec};
use ferrolet_types::{Pod, pod::PodView as _};

use super::*;

struct Pods(Vec<Pod>);

impl PodsView for Pods {
    fn pods(&self) -> Vec<Pod> {
        self.0.clone()
    }
}

/// Links to logs, and `ContainerGCFailed`.
#[tokio::test(start_paused = true)]
async fn dead_links_go_once_a_minute_and_a_runtime_that_is_away_is_reported() {
    let (world, logs) = (World::new(), FakeLogStore::default());
    logs.add_link("web_default_main-gone.log");
    let doors = Doors {
        runtime: world.runtime(),
        pods: Arc::new(Pods(Vec::new())),
        logs: Arc::new(logs.clone()),
        events: world.events(),
        clock: world.clock(),
    };
    let policy = Policy { minimum_age: Duration::ZERO, per_container: Some(1), in_all: None };
    let task = tokio::spawn(run(doors, policy));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(logs.links().is_empty());
    logs.add_link("web_default_main-again.log");
    world.fail_next(Call::List, 1, RuntimeErrorKind::Unavailable, "away");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(logs.links().len(), 1);
    let events = world.recorded_events();
    assert_eq!(events[0].1.reason, "ContainerGCFailed");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(logs.links().is_empty());
    task.abort();
}

/// Dead containers: upstream goes on with the next when one cannot be removed, and does not
/// call that a failure of the round.
#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_removed_holds_up_no_other() {
    let (world, logs) = (World::new(), FakeLogStore::default());
    logs.add_link("web_default_main-gone.log");
    world.add_image("i:1");
    world.script_image("i:1", Script::ExitsAfter(Duration::from_millis(10), 1));
    let runtime = world.runtime();
    let mut pods = Vec::new();
    for name in ["stuck", "web"] {
        let pod = pod(name).container("main", "i:1").build();
        let sandbox = sandbox_spec(&pod, 0);
        let id = runtime.run_sandbox(&sandbox).await.unwrap();
        for attempt in 0..3 {
            let spec = container_spec(&pod, "main", attempt);
            let made = runtime.create_container(&id, &sandbox, &spec).await;
            runtime.start_container(&made.unwrap()).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        pods.push(pod);
    }
    let n_left = || [0, 1].map(|n: usize| world.containers_of(&pods[n].uid()).len());
    assert_eq!(n_left(), [3, 3]);
    let (refused, stuck) = (RuntimeErrorKind::Internal, pods[0].uid());
    world.fail_next_for(&stuck, Call::RemoveContainer, 2, refused, "busy");
    let doors = Doors {
        runtime,
        pods: Arc::new(Pods(pods.clone())),
        logs: Arc::new(logs.clone()),
        events: world.events(),
        clock: world.clock(),
    };
    let policy = Policy { minimum_age: Duration::ZERO, per_container: Some(1), in_all: None };
    let task = tokio::spawn(run(doors, policy));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(n_left(), [3, 1]);
    assert!(logs.links().is_empty());
    assert_eq!(world.recorded_events().len(), 0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(n_left(), [1, 1], "it is asked for again");
    task.abort();
}
