//! The loop on a world in paused time, with a manager of power that does what the test says.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ferrolet_ports::{
    Fut, PodsView, Power, PowerError, PowerNews, PowerSession, Remains, StatusBacklog,
    StatusSink as _, StatusUpdate,
};
use ferrolet_testkit::{World, pod};
use ferrolet_types::{Eviction, GracePeriod, Pod, PodUid, pod::PodView as _};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::*;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A manager of power. Clones are handles to the same one.
#[derive(Clone)]
struct FakePower {
    state: Arc<Mutex<PowerState>>,
    news: watch::Sender<(u64, Option<PowerNews>)>,
}

struct PowerState {
    delay: Duration,
    obeys: bool,
    n_held: u32,
    is_held: bool,
}

impl FakePower {
    fn new(delay: Duration) -> Self {
        let state = PowerState { delay, obeys: true, n_held: 0, is_held: false };
        Self { state: Arc::new(Mutex::new(state)), news: watch::Sender::new((0, None)) }
    }

    fn say(&self, news: PowerNews) {
        self.news.send_modify(|(n, latest)| (*n, *latest) = (*n + 1, Some(news)));
    }

    fn hang_up(&self) {
        self.news.send_modify(|(n, latest)| (*n, *latest) = (*n + 1, None));
    }

    fn is_held(&self) -> bool {
        self.state.lock().unwrap().is_held
    }
}

struct Session {
    power: FakePower,
    heard: watch::Receiver<(u64, Option<PowerNews>)>,
}

impl Power for FakePower {
    fn listen(&self) -> Fut<'_, Result<Box<dyn PowerSession>, PowerError>> {
        let session = Session { power: self.clone(), heard: self.news.subscribe() };
        Box::pin(std::future::ready(Ok(Box::new(session) as Box<dyn PowerSession>)))
    }
}

impl PowerSession for Session {
    fn longest_delay(&mut self) -> Fut<'_, Result<Duration, PowerError>> {
        let delay = self.power.state.lock().unwrap().delay;
        Box::pin(std::future::ready(Ok(delay)))
    }

    fn ask_for_delay(&mut self, delay: Duration) -> Fut<'_, Result<(), PowerError>> {
        let mut state = self.power.state.lock().unwrap();
        if state.obeys {
            state.delay = delay;
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn hold_up(&mut self) -> Fut<'_, Result<(), PowerError>> {
        let mut state = self.power.state.lock().unwrap();
        state.is_held = true;
        state.n_held += 1;
        Box::pin(std::future::ready(Ok(())))
    }

    fn release(&mut self) {
        self.power.state.lock().unwrap().is_held = false;
    }

    fn next(&mut self) -> Fut<'_, Result<PowerNews, PowerError>> {
        Box::pin(async {
            self.heard.changed().await.unwrap();
            let (_, news) = *self.heard.borrow_and_update();
            news.ok_or(PowerError { attempt: "listen", cause: "it hung up".to_owned() })
        })
    }
}

struct Scene {
    world: World,
    pods: Vec<Pod>,
    ended: Arc<Ended>,
    backlog: Arc<Backlog>,
    orders: mpsc::Receiver<Eviction>,
    fault: watch::Receiver<Option<String>>,
    metrics: Vec<Arc<dyn ferrolet_ports::Measured>>,
    _tasks: JoinSet<()>,
}

struct These(Vec<Pod>);

impl PodsView for These {
    fn pods(&self) -> Vec<Pod> {
        self.0.clone()
    }
}

/// Statuses that the cluster does not know.
#[derive(Default)]
struct Backlog(AtomicUsize);

impl StatusBacklog for Backlog {
    fn n_pending(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A pod of that priority and grace.
fn member(name: &str, priority: i32, grace: i64) -> Pod {
    let mut made = k8s_openapi::api::core::v1::Pod::clone(&pod(name).grace(grace).build());
    made.spec.as_mut().unwrap().priority = Some(priority);
    Arc::new(made)
}

impl Scene {
    fn new(power: FakePower, pods: Vec<Pod>) -> Self {
        let world = World::new();
        let (evictions, orders) = mpsc::channel(16);
        let ended = Arc::new(Ended::default());
        let backlog = Arc::new(Backlog::default());
        let doors = Doors {
            power: Arc::new(power.clone()),
            pods: Arc::new(These(pods.clone())),
            evictions,
            ended: ended.clone(),
            backlog: Some(backlog.clone()),
            state_files: world.state_files(),
            events: world.events(),
            clock: world.clock(),
        };
        let groups = two_phases(secs(30), secs(10));
        let (shutdown, part) = build(Settings { groups, keeps_record: true }, doors);
        let mut tasks = JoinSet::new();
        part.loops.into_iter().for_each(|run| drop(tasks.spawn(run)));
        let metrics = part.metrics;
        let scene = Self {
            world,
            pods,
            ended,
            backlog,
            orders,
            fault: shutdown.fault,
            metrics,
            _tasks: tasks,
        };
        scene.pods.iter().for_each(|pod| scene.show(pod, Remains::Active));
        scene
    }

    fn show(&self, pod: &Pod, remains: Remains) {
        self.ended.publish(StatusUpdate { pod: pod.clone(), version: 1, remains });
    }

    fn said(&self) -> Vec<String> {
        let events = self.world.recorded_events().into_iter();
        events.map(|(_, it)| format!("{} {}", it.reason, it.message)).collect()
    }

    fn metrics(&self) -> BTreeMap<&'static str, bool> {
        let samples = self.metrics.iter().flat_map(|it| it.samples());
        samples
            .map(|it| (it.family.name, it.value != ferrolet_ports::SampleValue::Number(0.0)))
            .collect()
    }

    /// Who was told to go, with the grace, in the order of names.
    fn told(&mut self) -> Vec<(PodUid, Option<GracePeriod>)> {
        let mut told = Vec::new();
        while let Ok(order) = self.orders.try_recv() {
            assert_eq!(order.reason.as_str(), "Terminated");
            told.push((order.uid, order.grace));
        }
        told
    }
}

#[tokio::test(start_paused = true)]
async fn ordinary_pods_end_first_critical_ones_last_and_then_the_machine_may_go_down() {
    let (web, job, proxy) =
        (member("web", 0, 5), member("job", -7, 300), member("proxy", 2_000_001_000, 60));
    let power = FakePower::new(secs(60));
    let mut scene = Scene::new(power.clone(), vec![proxy.clone(), web.clone(), job.clone()]);
    sleep(secs(1)).await;
    assert!(power.is_held());
    assert_eq!(*scene.fault.borrow(), None);
    power.say(PowerNews::GoesDown);
    sleep(secs(1)).await;
    assert_eq!(scene.fault.borrow().as_deref(), Some("node is shutting down"));
    assert_eq!(scene.said(), ["Shutdown Shutdown manager detected shutdown event"]);
    let grace = |seconds| Some(GracePeriod::from_secs(seconds));
    assert_eq!(scene.told(), [(web.uid(), grace(5)), (job.uid(), grace(20))]);
    scene.show(&web, Remains::Stopped);
    scene.show(&job, Remains::Settled);
    sleep(secs(1)).await;
    assert_eq!(scene.told(), [], "volumes are still mounted");
    scene.show(&web, Remains::Settled);
    sleep(secs(1)).await;
    assert_eq!(scene.told(), [(proxy.uid(), grace(10))]);
    assert!(power.is_held());
    let began = Instant::now();
    // It never ends; its group's time is over after ten seconds.
    while power.is_held() {
        sleep(secs(1)).await;
    }
    assert!((secs(8)..secs(11)).contains(&began.elapsed()), "{:?}", began.elapsed());
    let both = [
        "kubelet_graceful_shutdown_end_time_seconds",
        "kubelet_graceful_shutdown_start_time_seconds",
    ];
    assert_eq!(scene.metrics(), both.map(|family| (family, true)).into());
    assert!(scene.fault.borrow().is_some(), "it still goes down");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_called_off_takes_everything_back() {
    let (web, proxy) = (member("web", 0, 5), member("proxy", 2_000_001_000, 60));
    let power = FakePower::new(secs(60));
    let mut scene = Scene::new(power.clone(), vec![web.clone(), proxy]);
    sleep(secs(1)).await;
    power.say(PowerNews::GoesDown);
    sleep(secs(1)).await;
    power.say(PowerNews::StaysUp);
    sleep(secs(1)).await;
    assert_eq!(*scene.fault.borrow(), None);
    assert!(power.is_held());
    assert_eq!(power.state.lock().unwrap().n_held, 2, "the lock is taken anew");
    scene.show(&web, Remains::Settled);
    sleep(secs(60)).await;
    let told: Vec<PodUid> = scene.told().into_iter().map(|(uid, _)| uid).collect();
    assert_eq!(told, [web.uid()], "the next group is left alone");
    assert_eq!(
        scene.said().last().unwrap(),
        "Shutdown Shutdown manager detected shutdown cancellation"
    );
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_dies_on_the_way_down_ends_nothing_early() {
    let (web, proxy) = (member("web", 0, 5), member("proxy", 2_000_001_000, 60));
    let power = FakePower::new(secs(60));
    let mut scene = Scene::new(power.clone(), vec![web.clone(), proxy.clone()]);
    sleep(secs(1)).await;
    power.say(PowerNews::GoesDown);
    sleep(secs(1)).await;
    power.hang_up();
    sleep(secs(1)).await;
    scene.show(&web, Remains::Settled);
    sleep(secs(1)).await;
    let told: Vec<PodUid> = scene.told().into_iter().map(|(uid, _)| uid).collect();
    assert_eq!(told, [web.uid(), proxy.uid()]);
    scene.show(&proxy, Remains::Settled);
    sleep(Duration::from_millis(100)).await;
    assert!(!power.is_held());
}

#[tokio::test(start_paused = true)]
async fn too_short_a_delay_is_lengthened_and_a_deaf_manager_asked_again() {
    let power = FakePower::new(secs(5));
    power.state.lock().unwrap().obeys = false;
    let _scene = Scene::new(power.clone(), Vec::new());
    sleep(secs(3)).await;
    assert!(!power.is_held(), "it would not wait long enough");
    power.state.lock().unwrap().obeys = true;
    sleep(secs(5)).await;
    assert!(power.is_held());
    assert_eq!(power.state.lock().unwrap().delay, secs(30));
    power.hang_up();
    sleep(secs(3)).await;
    assert_eq!(power.state.lock().unwrap().n_held, 2, "it is looked for again");
}

#[tokio::test(start_paused = true)]
async fn the_machine_waits_until_the_cluster_knows_but_not_for_a_cluster_that_is_away() {
    for (n_secs_deaf, held_after) in [(1, Some(secs(1))), (600, Some(secs(2)))] {
        let web = member("web", 0, 5);
        let power = FakePower::new(secs(60));
        let scene = Scene::new(power.clone(), vec![web.clone()]);
        sleep(secs(1)).await;
        scene.backlog.0.store(1, Ordering::Relaxed);
        power.say(PowerNews::GoesDown);
        sleep(secs(1)).await;
        scene.show(&web, Remains::Settled);
        let began = Instant::now();
        let mut held_for = None;
        while held_for.is_none() {
            sleep(Duration::from_millis(100)).await;
            if began.elapsed() >= secs(n_secs_deaf) {
                scene.backlog.0.store(0, Ordering::Relaxed);
            }
            held_for = (!power.is_held()).then(|| began.elapsed());
        }
        let rounded = held_for.map(|it| secs(it.as_secs()));
        assert_eq!(rounded, held_after, "deaf for {n_secs_deaf} s");
    }
}
