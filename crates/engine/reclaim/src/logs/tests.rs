//! The loop on a world, with paused time.

use std::time::Duration;

use ferrolet_ports::Runtime as _;
use ferrolet_testkit::{FakeLogStore, World, container_spec, pod, sandbox_spec};
use ferrolet_types::pod::PodView as _;
use tokio::sync::watch;

use super::*;

const POLICY: Policy =
    Policy { max_size: 1000, max_files: 3, max_workers: 2, interval: Duration::from_secs(10) };

/// Runs one container, and answers the path of its log.
async fn with_container(world: &World) -> String {
    world.add_image("busybox");
    let (runtime, web) = (world.runtime(), pod("web").container("main", "busybox").build());
    let sandbox = sandbox_spec(&web, 0);
    let sandbox_id = runtime.run_sandbox(&sandbox).await.unwrap();
    let spec = container_spec(&web, "main", 0);
    let made = runtime.create_container(&sandbox_id, &sandbox, &spec);
    let id = made.await.unwrap();
    runtime.start_container(&id).await.unwrap();
    let seen = runtime.observe_pod(&web.uid()).await.unwrap();
    seen.containers[0].log_path.clone()
}

fn doors(world: &World, store: &FakeLogStore) -> Doors {
    Doors {
        store: std::sync::Arc::new(store.clone()),
        runtime: world.runtime(),
        reopen: std::sync::Arc::new(store.clone()),
        clock: world.clock(),
    }
}

/// Log rotation.
#[tokio::test(start_paused = true)]
async fn a_full_log_moves_aside_older_ones_are_compressed_and_the_oldest_go() {
    let (world, store) = (World::new(), FakeLogStore::default());
    let path = with_container(&world).await;
    store.set_size(&path, 10);
    let task = tokio::spawn(run(doors(&world, &store), watch::channel(Some(POLICY)).1));
    for round in 1..=4_usize {
        store.set_size(&path, 1500);
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(store.size(&path), Some(0), "round {round}");
        let names = store.names_beside(&path);
        assert_eq!(names.len(), round.min(2), "{names:?}");
        let n_plain = names.iter().filter(|it| !it.ends_with(".gz")).count();
        assert_eq!(n_plain, 1, "{names:?}");
    }
    task.abort();
}

/// Log rotation: the interval is the longest time between two looks, not the only one.
#[tokio::test(start_paused = true)]
async fn a_fast_writer_is_caught_before_the_interval_is_over() {
    let (world, store) = (World::new(), FakeLogStore::default());
    let path = with_container(&world).await;
    store.set_size(&path, 0);
    let task = tokio::spawn(run(doors(&world, &store), watch::channel(Some(POLICY)).1));
    let mut largest = 0;
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        // 500 bytes a second: full in two.
        store.grow(&path, 50);
        largest = largest.max(store.size(&path).unwrap_or(0));
    }
    task.abort();
    assert!(largest <= 1500, "it grew to {largest}");
}

#[tokio::test(start_paused = true)]
async fn a_log_goes_back_when_the_runtime_does_not_move_on() {
    let (world, store) = (World::new(), FakeLogStore::default());
    let path = with_container(&world).await;
    store.set_size(&path, 2000);
    store.refuse_reopen(true);
    let task = tokio::spawn(run(doors(&world, &store), watch::channel(Some(POLICY)).1));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(store.size(&path), Some(2000));
    assert!(store.names_beside(&path).is_empty());
    store.refuse_reopen(false);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(store.names_beside(&path).len(), 1);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_log_that_nobody_writes_is_left_alone() {
    let (world, store) = (World::new(), FakeLogStore::default());
    let path = "/logs/default_web_uid-9/main/0.log";
    store.set_size(path, 2000);
    let task = tokio::spawn(run(doors(&world, &store), watch::channel(Some(POLICY)).1));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(store.names_beside(path).is_empty());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_log_that_somebody_removed_is_begun_anew_while_its_container_runs() {
    let (world, store) = (World::new(), FakeLogStore::default());
    let path = with_container(&world).await;
    store.set_size(&path, 10);
    let task = tokio::spawn(run(doors(&world, &store), watch::channel(Some(POLICY)).1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    store.refuse_reopen(true);
    store.lose(&path);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(store.size(&path), None);
    store.refuse_reopen(false);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(store.size(&path), Some(0));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_log_that_went_with_its_container_stays_gone() {
    let (world, store) = (World::new(), FakeLogStore::default());
    let path = "/logs/default_web_uid-9/main/0.log";
    store.set_size(path, 10);
    let task = tokio::spawn(run(doors(&world, &store), watch::channel(Some(POLICY)).1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    store.lose(path);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(store.size(path), None);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn the_bound_may_change_come_and_go_while_logs_grow() {
    let (world, store) = (World::new(), FakeLogStore::default());
    let path = with_container(&world).await;
    let (policy, followed) = watch::channel(None);
    let task = tokio::spawn(run(doors(&world, &store), followed));
    let rest = || tokio::time::sleep(Duration::from_secs(11));
    store.set_size(&path, 1500);
    rest().await;
    assert_eq!(store.size(&path), Some(1500), "nobody bounds it");
    policy.send_replace(Some(Policy { max_size: 2000, ..POLICY }));
    rest().await;
    assert_eq!(store.size(&path), Some(1500));
    policy.send_replace(Some(POLICY));
    rest().await;
    assert_eq!(store.size(&path), Some(0));
    policy.send_replace(None);
    store.set_size(&path, 1500);
    rest().await;
    assert_eq!(store.size(&path), Some(1500), "nobody bounds it any more");
    task.abort();
}
