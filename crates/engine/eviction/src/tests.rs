//! The watch on fakes, with paused time.

use std::{sync::Arc, sync::Mutex, time::Duration};

use ferrolet_config::config::{Signal, Threshold, ThresholdValue};
use ferrolet_node::Pressure;
use ferrolet_ports::{
    AlarmLine, AlarmScope, CgroupUsage, DiskUsage, FileRoom, FileSystemMeans, GrantsView, InUse,
    LayerUsage, MeansReading, Measured as _, MemoryMeans, MemoryUsage, PodUsage, PodsView,
    ProcessRoom, RuntimeStores, SampleValue, StoreUsage, Tally, UsageSnapshot, metrics,
};
use ferrolet_testkit::{FakeAlarm, FakeCollectors, FakeMeans, FakeRuntimeDisk, FakeUsage, World};
use ferrolet_types::{ContainerId, Eviction, Pod, PodUid, Quantity, Timestamp, pod::PodView as _};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use crate::{Doors, Policy, Settings, run::Watch};

const MI: u64 = 1 << 20;

#[derive(Clone, Default)]
struct Pods(Arc<Mutex<Vec<Pod>>>);

impl PodsView for Pods {
    fn pods(&self) -> Vec<Pod> {
        self.0.lock().unwrap().clone()
    }
}

impl GrantsView for Pods {
    fn granted(&self, pod: &Pod) -> Pod {
        pod.clone()
    }
}

/// A pod with one container that asks for so much memory.
fn pod(uid: &str, request: u64, priority: i32) -> Pod {
    let pod = json!({
        "metadata": {"name": uid, "namespace": "n", "uid": uid,
            "annotations": {"kubernetes.io/config.source": "api"}},
        "spec": {"priority": priority, "terminationGracePeriodSeconds": 30, "containers": [
            {"name": "main", "resources": {"requests": {"memory": request.to_string()}}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "image": "",
            "imageID": "", "ready": true, "restartCount": 0,
            "containerID": format!("containerd://{uid}-main")}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn hard(signal: Signal, mebibytes: u64) -> Threshold {
    let value = Quantity::from_bytes(i64::try_from(mebibytes * MI).unwrap());
    Threshold {
        signal,
        value: ThresholdValue::Quantity(value),
        grace_period: None,
        minimum_reclaim: None,
    }
}

struct Bench {
    world: World,
    means: FakeMeans,
    alarm: FakeAlarm,
    usage: FakeUsage,
    layers: FakeRuntimeDisk,
    collectors: FakeCollectors,
    pods: Pods,
    evictions: mpsc::Receiver<Eviction>,
    pressure: watch::Receiver<Pressure>,
    policy: watch::Sender<Policy>,
    tally: Arc<Tally>,
}

/// A node with 1000 Mi of memory, of which 500 are free, and a disk of 1000 Mi, half full.
fn bench(thresholds: Vec<Threshold>, pods: Vec<Pod>) -> Bench {
    let world = World::new();
    let means = FakeMeans::new(world.clock());
    let room = FileRoom {
        capacity: 1000 * MI,
        available: 500 * MI,
        inodes: 1000,
        inodes_free: 500,
        ..FileRoom::default()
    };
    let disk = Some(FileSystemMeans { device: 1, room });
    let memory = MemoryMeans { capacity: 1000 * MI, working_set: 500 * MI, usage: 600 * MI };
    means.set(Some(MeansReading {
        at: Timestamp::from_second(0),
        memory: Some(memory),
        pods_memory: None,
        pods_usage: None,
        node_fs: disk,
        image_fs: disk,
        container_fs: disk,
        processes: Some(ProcessRoom { max: 1000, n: 100 }),
    }));
    let (sender, evictions) = mpsc::channel(4);
    let (pressure_sender, pressure) = watch::channel(Pressure::default());
    let (policy, followed) = watch::channel(Policy {
        thresholds,
        transition: Duration::from_secs(300),
        max_pod_grace: Some(Duration::from_secs(20)),
    });
    let settings = Settings { policy: followed, is_pods_enforced: false, huge_page_bytes: 0 };
    let bench = Bench {
        alarm: FakeAlarm::default(),
        usage: FakeUsage::default(),
        layers: FakeRuntimeDisk::default(),
        collectors: FakeCollectors::new(means.clone()),
        pods: Pods(Arc::new(Mutex::new(pods))),
        evictions,
        pressure,
        policy,
        tally: Arc::default(),
        means,
        world,
    };
    let place = |place: &str| {
        let used = InUse::default();
        Some(StoreUsage { place: place.to_owned(), at: None, used })
    };
    bench.layers.set(Vec::new(), RuntimeStores { images: place("/images"), containers: None });
    let doors = Doors {
        means: Arc::new(bench.means.clone()),
        alarm: Arc::new(bench.alarm.clone()),
        usage: Arc::new(bench.usage.clone()),
        stores: Arc::new(bench.layers.clone()),
        collectors: Arc::new(bench.collectors.clone()),
        pods: Arc::new(bench.pods.clone()),
        grants: Arc::new(bench.pods.clone()),
        evictions: sender,
        events: bench.world.events(),
        clock: bench.world.clock(),
    };
    tokio::spawn(Watch::new(settings, doors, pressure_sender, bench.tally.clone()).run());
    bench
}

impl Bench {
    fn use_memory(&self, uses: &[(&str, u64)]) {
        let at = Timestamp::from_second(0);
        let usage = |mebibytes: u64| CgroupUsage {
            at,
            cpu_nanos: None,
            cpu_nano_cores: None,
            memory: Some(MemoryUsage {
                usage: mebibytes * MI,
                working_set: mebibytes * MI,
                rss: 0,
                limit: None,
                page_faults: 0,
                major_page_faults: 0,
            }),
            swap_bytes: None,
            swap_limit_bytes: None,
        };
        let pods = uses.iter().map(|(uid, used)| PodUsage {
            uid: PodUid::new(*uid),
            total: usage(*used),
            containers: vec![(ContainerId::new(format!("{uid}-main")), usage(*used))],
        });
        let pods = pods.collect();
        self.usage.set(Some(UsageSnapshot { node: usage(0), all_pods: None, pods }));
    }

    fn leave_memory(&self, mebibytes: u64) {
        self.means.change(|it| {
            let memory = it.memory.as_mut().unwrap();
            memory.working_set = memory.capacity - mebibytes * MI;
            memory.usage = memory.working_set + 100 * MI;
        });
    }

    /// The victim ended: its status says so, and its cgroup is gone.
    fn end(&self, uid: &str, left: &[(&str, u64)]) {
        self.pods.0.lock().unwrap().retain(|it| it.uid().as_str() != uid);
        self.use_memory(left);
    }

    async fn next(&mut self, within: u64) -> Option<Eviction> {
        let wait = tokio::time::timeout(Duration::from_secs(within), self.evictions.recv());
        wait.await.ok().flatten()
    }

    fn events(&self) -> Vec<(String, String)> {
        let all = self.world.recorded_events().into_iter();
        all.map(|(_, it)| (it.reason, it.message)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_pod_furthest_above_its_request_goes_first_and_then_it_is_measured_again() {
    let pods = vec![pod("modest", 300 * MI, 0), pod("greedy", 0, 0), pod("second", 0, 0)];
    let mut bench = bench(vec![hard(Signal::MemoryAvailable, 100)], pods);
    bench.use_memory(&[("modest", 250), ("greedy", 200), ("second", 100)]);
    assert_eq!(bench.next(30).await, None, "enough is left");
    bench.leave_memory(90);
    let first = bench.next(11).await.unwrap();
    assert_eq!(first.uid.as_str(), "greedy");
    assert_eq!(
        first.message,
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container main was using 200Mi, request is 0, has larger consumption of memory. "
    );
    assert_eq!(first.disruption.as_ref(), Some(&first.message));
    assert_eq!(first.annotations["starved_resource"], "memory");
    assert_eq!(first.grace.unwrap().as_secs(), 1);
    assert!(bench.pressure.borrow().memory);
    // Nobody else while it is on its way out.
    assert_eq!(bench.next(20).await, None);
    bench.end("greedy", &[("modest", 250), ("second", 100)]);
    let second = bench.next(2).await.unwrap();
    assert_eq!(second.uid.as_str(), "second");
    bench.end("second", &[("modest", 250)]);
    bench.leave_memory(300);
    assert_eq!(bench.next(60).await, None, "enough is left again");
    assert!(bench.pressure.borrow().memory, "a condition outlives its cause");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!bench.pressure.borrow().memory);
    let met = ("EvictionThresholdMet".to_owned(), "Attempting to reclaim memory".to_owned());
    assert!(bench.events().contains(&met));
    let counted = bench.tally.samples();
    let evictions = counted.iter().find(|it| it.is_of(metrics::KUBELET_EVICTIONS)).unwrap();
    assert_eq!(evictions.labels, ["memory.available"]);
    assert_eq!(evictions.value, SampleValue::Number(2.0));
    assert!(counted.iter().any(|it| it.is_of(metrics::KUBELET_EVICTION_STATS_AGE_SECONDS)));
}

#[tokio::test(start_paused = true)]
async fn thresholds_may_change_come_and_go_while_the_node_runs() {
    let pods = vec![pod("greedy", 0, 0), pod("other", 0, 0)];
    let mut bench = bench(vec![], pods);
    bench.use_memory(&[("greedy", 200), ("other", 100)]);
    bench.leave_memory(90);
    assert_eq!(bench.next(60).await, None, "nobody watches");
    let hold = |bench: &Bench, mebibytes: u64| {
        bench
            .policy
            .send_modify(|it| it.thresholds = vec![hard(Signal::MemoryAvailable, mebibytes)]);
    };
    hold(&bench, 50);
    assert_eq!(bench.next(30).await, None, "enough is left");
    hold(&bench, 100);
    assert_eq!(bench.next(2).await.unwrap().uid.as_str(), "greedy", "at once");
    assert!(bench.pressure.borrow().memory);
    bench.end("greedy", &[("other", 100)]);
    bench.leave_memory(500);
    bench.policy.send_modify(|it| it.thresholds.clear());
    assert_eq!(bench.next(30).await, None);
    assert!(!bench.pressure.borrow().memory, "what nobody watches is not short");
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_does_not_leave_is_given_half_a_minute() {
    let pods = vec![pod("stuck", 0, 0), pod("other", 0, 0)];
    let mut bench = bench(vec![hard(Signal::MemoryAvailable, 100)], pods);
    bench.use_memory(&[("stuck", 200), ("other", 100)]);
    bench.leave_memory(50);
    assert_eq!(bench.next(5).await.unwrap().uid.as_str(), "stuck");
    assert_eq!(bench.next(29).await, None);
    // Its status says that it failed, whatever its processes do.
    bench.pods.0.lock().unwrap().retain(|it| it.uid().as_str() != "stuck");
    assert_eq!(bench.next(2).await.unwrap().uid.as_str(), "other");
}

#[tokio::test(start_paused = true)]
async fn critical_pods_stay_and_pods_that_nobody_measured_go_last() {
    let critical = pod("critical", 0, 2_000_000_000);
    let pods = vec![critical, pod("unknown", 0, -5), pod("known", 500 * MI, 1000)];
    let mut bench = bench(vec![hard(Signal::MemoryAvailable, 100)], pods);
    bench.use_memory(&[("critical", 800), ("known", 10)]);
    bench.leave_memory(50);
    assert_eq!(bench.next(5).await.unwrap().uid.as_str(), "known");
    bench.end("known", &[("critical", 800)]);
    assert_eq!(bench.next(5).await.unwrap().uid.as_str(), "unknown");
    bench.end("unknown", &[("critical", 800)]);
    assert_eq!(bench.next(60).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_costs_images_before_it_costs_a_pod() {
    let mut bench = bench(vec![hard(Signal::NodeFsAvailable, 100)], vec![pod("web", 0, 0)]);
    bench.use_memory(&[("web", 1)]);
    bench.collectors.free(100 * MI);
    bench.means.change(|it| it.node_fs.as_mut().unwrap().room.available = 50 * MI);
    assert_eq!(bench.next(11).await, None);
    assert!(bench.pressure.borrow().disk);
    assert_eq!(bench.collectors.calls(), ["containers", "images"]);
    let met = "Attempting to reclaim ephemeral-storage".to_owned();
    assert_eq!(bench.events(), [("EvictionThresholdMet".to_owned(), met)]);
}

#[tokio::test(start_paused = true)]
async fn what_pods_have_on_a_full_disk_decides_who_goes() {
    let pods = vec![pod("tidy", 0, 0), pod("writer", 0, 0)];
    let mut bench = bench(vec![hard(Signal::NodeFsAvailable, 100)], pods);
    bench.use_memory(&[("tidy", 100), ("writer", 1)]);
    let layer = |uid: &str, mebibytes: u64| LayerUsage {
        id: ContainerId::new(format!("{uid}-main")),
        at: None,
        used: InUse { bytes: mebibytes * MI, inodes: 1 },
    };
    let images = StoreUsage { place: "/i".to_owned(), at: None, used: InUse::default() };
    let stores = RuntimeStores { images: Some(images), containers: None };
    bench.layers.set(vec![layer("tidy", 1), layer("writer", 3)], stores);
    let at = Timestamp::from_second(0);
    let log = |uid: &str, mebibytes: u64| {
        let used = InUse { bytes: mebibytes * MI, inodes: 1 };
        (PodUid::new(uid), "main".to_owned(), used)
    };
    let disk = DiskUsage {
        at,
        node: FileRoom::default(),
        logs: FileRoom::default(),
        container_logs: vec![log("tidy", 5), log("writer", 7)],
        pod_files: Vec::new(),
        volumes: Vec::new(),
    };
    bench.usage.set_disk(disk, FileRoom::default());
    bench.means.change(|it| it.node_fs.as_mut().unwrap().room.available = 50 * MI);
    let evicted = bench.next(11).await.unwrap();
    assert_eq!(evicted.uid.as_str(), "writer");
    assert!(evicted.message.contains("Container main was using 10Mi, request is 0"), "{evicted:?}");
}

#[tokio::test(start_paused = true)]
async fn the_kernels_alarm_is_set_where_the_threshold_lies_and_answered_at_once() {
    let mut bench = bench(vec![hard(Signal::MemoryAvailable, 100)], vec![pod("web", 0, 0)]);
    bench.use_memory(&[("web", 100)]);
    assert_eq!(bench.next(3).await, None);
    // 1000 in all, less 100, plus the 100 that can be dropped.
    let line = AlarmLine { scope: AlarmScope::Node, usage: 1000 * MI };
    assert_eq!(bench.alarm.lines(), Some(vec![line]));
    bench.leave_memory(10);
    let began = tokio::time::Instant::now();
    bench.alarm.ring();
    assert!(bench.next(5).await.is_some());
    assert!(began.elapsed() <= Duration::from_millis(200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_kernel_that_takes_no_alarm_is_asked_by_the_clock() {
    let mut bench = bench(vec![hard(Signal::MemoryAvailable, 100)], vec![pod("web", 0, 0)]);
    bench.alarm.refuse();
    bench.use_memory(&[("web", 100)]);
    assert_eq!(bench.next(3).await, None);
    bench.leave_memory(10);
    assert!(bench.next(10).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_soft_threshold_waits_and_gives_grace() {
    let soft = Threshold {
        grace_period: Some(Duration::from_secs(30)),
        ..hard(Signal::MemoryAvailable, 100)
    };
    let mut bench = bench(vec![soft], vec![pod("web", 0, 0)]);
    bench.use_memory(&[("web", 100)]);
    bench.leave_memory(50);
    assert_eq!(bench.next(29).await, None);
    assert!(bench.pressure.borrow().memory);
    assert_eq!(bench.next(12).await.unwrap().grace.unwrap().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_read_evicts_nobody_and_is_looked_at_again() {
    let mut bench = bench(vec![hard(Signal::MemoryAvailable, 100)], vec![pod("web", 0, 0)]);
    bench.use_memory(&[("web", 100)]);
    bench.means.set(None);
    assert_eq!(bench.next(60).await, None);
    assert_eq!(*bench.pressure.borrow(), Pressure::default());
}

#[tokio::test(start_paused = true)]
async fn without_thresholds_nothing_is_read() {
    let mut bench = bench(Vec::new(), vec![pod("web", 0, 0)]);
    bench.leave_memory(0);
    assert_eq!(bench.next(60).await, None);
    assert_eq!((bench.usage.n_readings(), bench.alarm.lines()), (0, None));
}

/// A pod that ran before the agent did may be the one to go, although it is not shown yet.
#[tokio::test(start_paused = true)]
async fn after_a_start_nobody_goes_before_all_that_run_are_known() {
    let mut bench = bench(vec![hard(Signal::MemoryAvailable, 100)], vec![pod("early", 0, 0)]);
    bench.use_memory(&[("early", 10), ("late", 200)]);
    bench.leave_memory(50);
    assert_eq!(bench.next(5).await, None);
    assert!(bench.pressure.borrow().memory);
    bench.pods.0.lock().unwrap().push(pod("late", 0, 0));
    assert_eq!(bench.next(2).await.unwrap().uid.as_str(), "late");
}

/// What nobody will ever want must not keep the node from helping itself.
#[tokio::test(start_paused = true)]
async fn a_cgroup_that_nobody_knows_delays_nothing_for_long() {
    let mut bench = bench(vec![hard(Signal::MemoryAvailable, 100)], vec![pod("web", 0, 0)]);
    bench.use_memory(&[("web", 10), ("orphan", 200)]);
    bench.leave_memory(50);
    assert_eq!(bench.next(29).await, None);
    assert_eq!(bench.next(3).await.unwrap().uid.as_str(), "web");
}
