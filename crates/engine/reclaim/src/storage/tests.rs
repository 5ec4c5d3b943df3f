//! The loop on fakes, with paused time.

use std::{sync::Arc, time::Duration};

use ferrolet_ports::{
    DiskUsage, FileRoom, InUse, LayerUsage, Measured as _, PodsView, RuntimeStores, StoreUsage,
    Tally, VolumeUsage,
};
use ferrolet_testkit::{FakeRuntimeDisk, FakeUsage};
use ferrolet_types::{ContainerId, Eviction, Pod, Timestamp};
use serde_json::{Value, from_value, json};
use tokio::sync::mpsc;

use super::*;

struct Pods(Vec<Pod>);

impl PodsView for Pods {
    fn pods(&self) -> Vec<Pod> {
        self.0.clone()
    }
}

fn pod(uid: &str, more: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": uid, "namespace": "n", "uid": uid,
            "annotations": {"kubernetes.io/config.source": "api"}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"ephemeral-storage": "100"}}}],
            "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "50"}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "image": "", "imageID": "",
            "ready": true, "restartCount": 0, "containerID": format!("containerd://{uid}-main")}]},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        let target = pod.pointer_mut(key).unwrap();
        *target = value.clone();
    }
    Arc::new(from_value(pod).unwrap())
}

fn room(capacity: u64, used: u64) -> FileRoom {
    FileRoom { capacity, used, ..FileRoom::default() }
}

fn in_use(bytes: u64) -> InUse {
    InUse { bytes, inodes: 1 }
}

struct Bench {
    usage: FakeUsage,
    layers: FakeRuntimeDisk,
    tally: Arc<Tally>,
    evictions: mpsc::Receiver<Eviction>,
}

fn bench(pods: Vec<Pod>) -> Bench {
    let (sender, evictions) = mpsc::channel(8);
    let bench = Bench {
        usage: FakeUsage::default(),
        layers: FakeRuntimeDisk::default(),
        tally: Arc::default(),
        evictions,
    };
    tokio::spawn(run(Doors {
        pods: Arc::new(Pods(pods)),
        usage: Arc::new(bench.usage.clone()),
        layers: Arc::new(bench.layers.clone()),
        evictions: sender,
        tally: bench.tally.clone(),
    }));
    bench
}

impl Bench {
    /// Every pod has so much in its volume, in its log and in its container.
    fn set(&self, volume: u64, log: u64, written: u64, store: u64) {
        let at = Timestamp::from_second(1);
        let uids = ["u", "v"];
        self.usage.set_disk(
            DiskUsage {
                at,
                node: room(1000, 0),
                logs: room(1000, 0),
                container_logs: uids.map(|uid| (uid.into(), "main".to_owned(), in_use(log))).into(),
                pod_files: Vec::new(),
                volumes: uids
                    .map(|uid| VolumeUsage {
                        uid: uid.into(),
                        name: "cache".to_owned(),
                        volume: None,
                        at,
                        room: room(1000, volume),
                        is_on_node: true,
                    })
                    .into(),
            },
            room(store, 0),
        );
        let layers = uids.map(|uid| LayerUsage {
            id: ContainerId::new(format!("{uid}-main")),
            at: None,
            used: in_use(written),
        });
        let images = StoreUsage { place: "/images".to_owned(), at: None, used: in_use(0) };
        let stores = RuntimeStores { images: Some(images), containers: None };
        self.layers.set(layers.into(), stores);
    }

    async fn next(&mut self) -> Option<String> {
        let wait = tokio::time::timeout(Duration::from_secs(25), self.evictions.recv());
        wait.await.ok().flatten().map(|it| it.message)
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_breaks_a_limit_is_evicted_and_counted() {
    let mut bench = bench(vec![pod("u", json!({}))]);
    bench.set(50, 20, 30, 1000);
    assert_eq!(bench.next().await, None);
    bench.set(51, 0, 0, 1000);
    let said = bench.next().await.unwrap();
    assert_eq!(said, "Usage of EmptyDir volume \"cache\" exceeds the limit \"50\". ");
    bench.set(50, 20, 31, 1000);
    assert!(bench.next().await.unwrap().starts_with("Pod ephemeral"));
    let counted = bench.tally.samples();
    assert!(counted.iter().any(|it| it.labels == ["ephemeralpodfs.limit"]));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_counted_is_over_the_limit() {
    let mut bench = bench(vec![pod("u", json!({}))]);
    bench.set(u64::MAX, u64::MAX, u64::MAX, 1000);
    let said = bench.next().await.unwrap();
    assert_eq!(said, "Usage of EmptyDir volume \"cache\" exceeds the limit \"50\". ");
    bench.set(0, u64::MAX, 1, 1000);
    assert!(bench.next().await.unwrap().starts_with("Pod ephemeral"));
}

#[tokio::test(start_paused = true)]
async fn what_a_container_wrote_counts_for_it_unless_images_have_a_disk_of_their_own() {
    let main = json!({"/spec/containers": [
        {"name": "main", "resources": {"limits": {"ephemeral-storage": "40"}}},
        {"name": "side", "resources": {"limits": {"ephemeral-storage": "60"}}},
    ]});
    let mut bench = bench(vec![pod("u", main)]);
    bench.set(0, 20, 30, 2000);
    assert_eq!(bench.next().await, None);
    bench.set(0, 20, 30, 1000);
    assert_eq!(
        bench.next().await.unwrap(),
        "Container main exceeded its local ephemeral storage limit \"40\". "
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_may_not_be_evicted_are_left_alone() {
    let check = async |more: Value| {
        let mut bench = bench(vec![pod("u", more.clone())]);
        bench.set(500, 500, 500, 1000);
        assert_eq!(bench.next().await, None, "{more}");
    };
    check(json!({"/metadata/annotations": {"kubernetes.io/config.source": "file"}})).await;
    check(json!({"/status/phase": "Succeeded"})).await;
    check(json!({"/spec": {"containers": [{"name": "main"}]}})).await;
}
