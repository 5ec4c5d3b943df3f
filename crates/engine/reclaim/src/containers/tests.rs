//! The loop on a world, with paused time.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{PodsView, RuntimeErrorKind};
use ferrolet_testkit::{Call, FakeLogStore, World};
use ferrolet_types::Pod;

use super::*;

struct NoPods;

impl PodsView for NoPods {
    fn pods(&self) -> Vec<Pod> {
        Vec::new()
    }
}

/// 8.13, links to logs, and `ContainerGCFailed`.
#[tokio::test(start_paused = true)]
async fn dead_links_go_once_a_minute_and_a_runtime_that_is_away_is_reported() {
    let (world, logs) = (World::new(), FakeLogStore::default());
    logs.add_link("web_default_main-gone.log");
    let doors = Doors {
        runtime: world.runtime(),
        pods: Arc::new(NoPods),
        logs: Arc::new(logs.clone()),
        events: world.events(),
        clock: world.clock(),
    };
    let policy = Policy {
        minimum_age: Duration::ZERO,
        per_container: Some(1),
        in_all: None,
    };
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
