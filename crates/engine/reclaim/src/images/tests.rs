//! The loop on a world, with paused time.

use std::sync::Arc;
use std::time::Duration;

use ferrolet_images::record::{PullCredentials, after_pull, encode_record, file_name};
use ferrolet_ports::{Images as _, PodsView, PullFile, RuntimeErrorKind};
use ferrolet_testkit::{Call, FakeDisk, FakePullFiles, World, pod};
use ferrolet_types::{Pod, Timestamp};
use tokio::{
    sync::{Mutex, watch},
    task::JoinHandle,
};

use super::*;

struct Pods(Vec<Pod>);

impl PodsView for Pods {
    fn pods(&self) -> Vec<Pod> {
        self.0.clone()
    }
}

const POLICY: Policy = Policy {
    minimum_age: Duration::from_secs(120),
    maximum_age: None,
    high_percent: 85,
    low_percent: 80,
};

struct Rig {
    world: World,
    disk: FakeDisk,
    records: FakePullFiles,
    task: JoinHandle<()>,
    policies: watch::Sender<Policy>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Images of 1 MiB each on a disk of 20 MiB, and one pod that names `used:1`.
fn start(images: &[&str], other_mebibytes: u64, policy: Policy) -> Rig {
    let world = World::new();
    for image in images {
        world.add_image(&format!("a.test/{image}:1"));
    }
    let disk = FakeDisk::new(world.clone(), 20 << 20);
    disk.set_other(other_mebibytes << 20);
    let records = FakePullFiles::default();
    let web = pod("web").container("main", "a.test/used:1").build();
    let doors = Doors {
        images: world.images(),
        runtime: world.runtime(),
        pods: Arc::new(Pods(vec![web])),
        place: Arc::new(disk.clone()),
        disks: Arc::new(disk.clone()),
        records: Arc::new(records.clone()),
        events: world.events(),
        clock: world.clock(),
    };
    let collector = Arc::new(Mutex::new(Collector::new(doors, policy)));
    let (policies, told) = watch::channel(policy);
    let task = tokio::spawn(run(collector, told));
    Rig { world, disk, records, policies, task }
}

fn reasons(world: &World) -> Vec<String> {
    let events = world.recorded_events().into_iter();
    events.map(|(_, event)| event.reason).collect()
}

/// Images: from the high mark to the low one.
#[tokio::test(start_paused = true)]
async fn a_full_disk_is_freed_to_its_low_mark_as_soon_as_images_are_old_enough() {
    let rig = start(&["used", "b", "c", "d"], 14, POLICY);
    // 18 of 20: two have to go, and they may after two minutes.
    let gone = |world: &World| {
        let names = ["used", "b", "c", "d"].map(|it| format!("a.test/{it}:1"));
        names.iter().filter(|it| !world.has_image(it)).count()
    };
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(gone(&rig.world), 0);
    rig.world.until("two images to go", Duration::from_secs(30), |world| gone(world) == 2).await;
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(gone(&rig.world), 2);
    assert!(rig.world.has_image("a.test/used:1"));
}

/// Image GC failure: `FreeDiskSpaceFailed`, and what holds the space.
#[tokio::test(start_paused = true)]
async fn what_holds_the_space_is_said_when_images_are_not_enough() {
    let rig = start(&["used", "b"], 18, POLICY);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(!rig.world.has_image("a.test/b:1"));
    let events = rig.world.recorded_events();
    let said = events.iter().rev().find(|(_, it)| it.reason == "FreeDiskSpaceFailed");
    let message = &said.expect("it says so").1.message;
    for part in [
        "1.0 MiB in 1 image in use (the largest: a.test/used:1)",
        "18.0 MiB in anything but images",
    ] {
        assert!(message.contains(part), "{message}");
    }
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert!(reasons(&rig.world).contains(&"ImageGCFailed".to_owned()));
    // Room comes from elsewhere: nothing is said any more.
    rig.disk.set_other(0);
    tokio::time::sleep(Duration::from_secs(301)).await;
    let n_said = reasons(&rig.world).len();
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(reasons(&rig.world).len(), n_said);
    assert!(rig.world.has_image("a.test/used:1"));
}

#[tokio::test(start_paused = true)]
async fn another_policy_counts_from_the_moment_it_is_told() {
    let never = Policy { high_percent: 100, low_percent: 99, ..POLICY };
    let rig = start(&["used", "b", "c", "d"], 14, never);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert!(rig.world.has_image("a.test/b:1"));
    rig.policies.send_replace(POLICY);
    tokio::time::sleep(Duration::from_secs(200)).await;
    let n_left = ["b", "c", "d"].iter().filter(|it| rig.world.has_image(&format!("a.test/{it}:1")));
    assert_eq!(n_left.count(), 1);
}

/// imageMaximumGCAge; records of images that are gone go.
#[tokio::test(start_paused = true)]
async fn an_old_image_goes_with_its_record_and_a_used_one_stays() {
    let policy =
        Policy { maximum_age: Some(Duration::from_secs(3600)), high_percent: 100, ..POLICY };
    let rig = start(&["used", "b"], 0, policy);
    let now = Timestamp::from_second(0);
    for image in ["used", "b"] {
        let images = rig.world.images();
        let info = images.image_status(&format!("a.test/{image}:1")).await;
        let id = info.unwrap().unwrap().id;
        let everybody = Some(PullCredentials::of(None));
        let record = after_pull(None, "a.test/x", &id, everybody, now).unwrap();
        let text = encode_record(&record);
        rig.records.put(PullFile::Record, &file_name(&id), &text);
    }
    tokio::time::sleep(Duration::from_secs(3500)).await;
    assert!(rig.world.has_image("a.test/b:1"));
    tokio::time::sleep(Duration::from_secs(110)).await;
    assert!(!rig.world.has_image("a.test/b:1"));
    assert!(rig.world.has_image("a.test/used:1"));
    assert_eq!(rig.records.contents(PullFile::Record).len(), 1);
}

/// Image GC failure: `InvalidDiskCapacity`, and `ImageGCFailed` from the second time on.
#[tokio::test(start_paused = true)]
async fn a_disk_without_capacity_is_a_fault_and_decides_nothing() {
    let rig = start(&["b"], 0, POLICY);
    rig.disk.set_capacity(0);
    tokio::time::sleep(Duration::from_secs(700)).await;
    let said = reasons(&rig.world);
    assert!(said.contains(&"InvalidDiskCapacity".to_owned()), "{said:?}");
    assert!(rig.world.has_image("a.test/b:1"));
}

/// Images: one that cannot be removed keeps neither the others nor a full disk as they are.
#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_removed_holds_up_no_other() {
    let by_age =
        Policy { maximum_age: Some(Duration::from_secs(3600)), high_percent: 100, ..POLICY };
    let by_both = Policy { high_percent: 85, ..by_age };
    // The policy, what fills the disk meanwhile, and how many of three old images are left when one
    // removal was refused.
    for (policy, mebibytes, expected) in [(by_age, 0, 1), (by_both, 18, 0)] {
        let rig = start(&["used", "b", "c", "d"], 0, policy);
        tokio::time::sleep(Duration::from_secs(3590)).await;
        rig.disk.set_other(mebibytes << 20);
        let refused = RuntimeErrorKind::Internal;
        rig.world.fail_next(Call::RemoveImage, 1, refused, "in use after all");
        tokio::time::sleep(Duration::from_secs(20)).await;
        let names = ["b", "c", "d"].map(|it| format!("a.test/{it}:1"));
        let n_left = names.iter().filter(|it| rig.world.has_image(it)).count();
        assert_eq!(n_left, expected);
        tokio::time::sleep(Duration::from_secs(400)).await;
        assert!(!names.iter().any(|it| rig.world.has_image(it)), "tried again");
        assert!(rig.world.has_image("a.test/used:1"));
    }
}

/// Node-level reclaim: every unused image goes, whatever the marks say, but none that is used
/// or younger than imageMinimumGCAge.
#[tokio::test(start_paused = true)]
async fn a_node_that_runs_short_gives_up_every_image_that_nobody_uses() {
    let policy = Policy { high_percent: 100, ..POLICY };
    let rig = start(&["used", "b", "c"], 0, policy);
    let doors = Doors {
        images: rig.world.images(),
        runtime: rig.world.runtime(),
        pods: Arc::new(Pods(vec![pod("web").container("main", "a.test/used:1").build()])),
        place: Arc::new(rig.disk.clone()),
        disks: Arc::new(rig.disk.clone()),
        records: Arc::new(rig.records.clone()),
        events: rig.world.events(),
        clock: rig.world.clock(),
    };
    let mut collector = Collector::new(doors, policy);
    assert_eq!(collector.remove_unused().await.unwrap(), 0, "they were seen just now");
    tokio::time::sleep(Duration::from_secs(121)).await;
    let refused = RuntimeErrorKind::Internal;
    rig.world.fail_next(Call::RemoveImage, 1, refused, "in use after all");
    assert!(collector.remove_unused().await.is_err());
    assert_eq!(collector.remove_unused().await.unwrap(), 1);
    let left = ["used", "b", "c"].map(|it| rig.world.has_image(&format!("a.test/{it}:1")));
    assert_eq!(left, [true, false, false]);
}
