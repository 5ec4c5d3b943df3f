//! The loop of the node in paused time: registration, readiness, reports, outages, deletion.

use std::{sync::Arc, time::Duration};

use ferrolet_node::{NodeFacts, NodeImage, NodeSettings, NodeState, RuntimeHealth, RuntimeStatus};
use ferrolet_ports::{ApiErrorKind, Measured as _, NodeCopies, metrics::process};
use ferrolet_testkit::{FakeClusterApi, World};
use k8s_openapi::api::core::v1::{Node, NodeSpec};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// A node whose state a test changes.
#[derive(Clone)]
struct NodeInTest {
    state: Arc<watch::Sender<Arc<NodeState>>>,
}

impl NodeInTest {
    fn new(state: NodeState) -> Self {
        Self { state: Arc::new(watch::Sender::new(Arc::new(state))) }
    }

    fn change(&self, edit: impl FnOnce(&mut NodeFacts)) {
        self.state.send_modify(|state| edit(&mut Arc::make_mut(state).facts));
    }
}

impl NodeCopies for NodeInTest {
    fn learn(&self, node: Arc<Node>) {
        self.state.send_modify(|state| {
            Arc::make_mut(state).learn(node);
        });
    }

    fn lose(&self) {
        self.state.send_modify(|state| Arc::make_mut(state).lose());
    }
}

struct Scene {
    world: World,
    api: FakeClusterApi,
    node: NodeInTest,
    task: JoinHandle<()>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scene {
    /// A loop at an API server that `prepare` had first.
    fn begin(
        report: ReportSettings,
        facts: NodeFacts,
        prepare: impl FnOnce(&FakeClusterApi),
    ) -> Self {
        let (world, api) = (World::new(), FakeClusterApi::new("lab-node"));
        prepare(&api);
        let settings = Arc::new(NodeSettings::example());
        let node = NodeInTest::new(NodeState::at_start(settings, facts, world.now()));
        let doors = NodeDoors {
            api: Arc::new(api.clone()),
            events: world.events(),
            clock: world.clock(),
            report,
            node: node.state.subscribe(),
            watched: api.watch_node(),
            copies: Arc::new(node.clone()),
            startup: Startup::new(None, world.now()),
        };
        let task = tokio::spawn(run(doors));
        Self { world, api, node, task }
    }

    async fn until_ready(&self, status: &str) {
        let what = format!("the node's readiness to be {status}");
        let is_so = |api: &FakeClusterApi| ready(api).as_deref() == Some(status);
        self.api.until(&what, PATIENCE, is_so).await;
    }

    fn said(&self) -> Vec<String> {
        let events = self.world.recorded_events().into_iter();
        events.map(|(_, event)| event.reason).collect()
    }

    fn n_requests(&self, verb: &str) -> usize {
        let requests = self.api.requests();
        requests.iter().filter(|it| it.verb == verb).count()
    }
}

fn report() -> ReportSettings {
    ReportSettings {
        must_register: true,
        gets_existing_only: false,
        update_frequency: Duration::from_secs(10),
        report_frequency: Duration::from_secs(300),
    }
}

fn facts() -> NodeFacts {
    NodeFacts::example()
}

fn ready(api: &FakeClusterApi) -> Option<String> {
    let node = api.node()?;
    let list = node.status.as_ref()?.conditions.as_ref()?;
    let ready = list.iter().find(|it| it.type_ == "Ready")?;
    Some(ready.status.clone())
}

fn unasked(mut facts: NodeFacts, world_begins: ferrolet_types::Timestamp) -> NodeFacts {
    facts.runtime = RuntimeHealth::Never { since: world_begins, error: None };
    facts
}

fn answered() -> RuntimeHealth {
    RuntimeHealth::Answered(RuntimeStatus::example())
}

#[tokio::test(start_paused = true)]
async fn the_node_is_registered_at_once_and_ready_as_soon_as_the_runtime_answers() {
    let began = Instant::now();
    let facts = unasked(facts(), World::new().now());
    let scene = Scene::begin(report(), facts, |_| {});
    scene.until_ready("False").await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    sleep(Duration::from_millis(300)).await;
    scene.node.change(|it| it.runtime = answered());
    scene.until_ready("True").await;
    assert_eq!(began.elapsed(), Duration::from_millis(300));
    sleep(Duration::from_millis(1)).await;
    let expected = [
        "Starting",
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
        "NodeReady",
    ];
    assert_eq!(scene.said(), expected);
    assert_eq!(scene.n_requests("get node"), 0);
    let shown = process().samples();
    for family in ["registration", "post_registration"] {
        let family = format!("kubelet_node_startup_{family}_duration_seconds");
        assert!(shown.iter().any(|it| it.family.name == family), "{family}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_reports_about_every_five_minutes_and_a_busy_one_every_ten_seconds() {
    let scene = Scene::begin(report(), facts(), |_| {});
    scene.until_ready("True").await;
    sleep(Duration::from_secs(3600)).await;
    let n = scene.n_requests("patch node status");
    assert!((10..=13).contains(&n), "{n} reports in an hour");
    for n in 0..60_u64 {
        sleep(Duration::from_secs(1)).await;
        let images = [NodeImage { id: "x".to_owned(), names: vec!["x:1".to_owned()], size: n + 1 }];
        scene.node.change(|it| it.images = Some(images.into()));
    }
    let n = scene.n_requests("patch node status") - n;
    assert!((5..=7).contains(&n), "{n} patches in a busy minute");
}

#[tokio::test(start_paused = true)]
async fn pressure_and_readiness_do_not_wait() {
    let scene = Scene::begin(report(), facts(), |_| {});
    scene.until_ready("True").await;
    sleep(Duration::from_secs(11)).await;
    let began = Instant::now();
    scene.node.change(|it| it.pressure.memory = true);
    let has_pressure = |api: &FakeClusterApi| {
        let node = api.node().unwrap();
        let list = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
        list[0].status == "True"
    };
    scene.api.until("memory pressure", PATIENCE, has_pressure).await;
    scene.node.change(|it| it.loop_faults = vec!["PLEG is not healthy".to_owned()]);
    scene.until_ready("False").await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    sleep(Duration::from_millis(1)).await;
    let said = scene.said();
    assert_eq!(said[said.len() - 2..], ["NodeHasInsufficientMemory", "NodeNotReady"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_while_we_run_is_registered_again() {
    let scene = Scene::begin(report(), facts(), |_| {});
    scene.until_ready("True").await;
    sleep(Duration::from_secs(60)).await;
    let first = scene.api.node().unwrap().metadata.uid.clone();
    let began = Instant::now();
    scene.api.remove_node();
    scene.api.until("another node", PATIENCE, |api| api.node().is_some()).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    let second = scene.api.node().unwrap();
    assert_ne!(second.metadata.uid, first);
    assert_eq!(ready(&scene.api).as_deref(), Some("True"));
    sleep(Duration::from_millis(1)).await;
    let known = scene.node.state.borrow().object.clone().unwrap();
    assert_eq!(known.metadata.uid, second.metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_there_already_is_adopted_without_a_flap() {
    let seen = World::new().now();
    let begun = Scene::begin(report(), facts(), |_| {});
    begun.until_ready("True").await;
    let existing = begun.api.node().unwrap();
    let facts = unasked(facts(), seen);
    let scene = Scene::begin(report(), facts, |api| {
        api.put_node(&existing);
        api.edit_node(|node| {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.remove("kubernetes.io/hostname");
            let info = node.status.as_mut().unwrap().node_info.as_mut().unwrap();
            info.boot_id = "an earlier boot".to_owned();
        });
    });
    let is_adopted = |api: &FakeClusterApi| {
        let node = api.node().unwrap();
        node.metadata.labels.as_ref().unwrap().contains_key("kubernetes.io/hostname")
    };
    scene.api.until("the label", PATIENCE, is_adopted).await;
    sleep(Duration::from_secs(5)).await;
    scene.node.change(|it| it.runtime = answered());
    sleep(Duration::from_secs(30)).await;
    assert_eq!(ready(&scene.api).as_deref(), Some("True"));
    assert_eq!(scene.said(), ["Starting", "Rebooted"]);
    assert_eq!(scene.api.node().unwrap().metadata.uid, existing.metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_tried_until_it_is_back() {
    let scene = Scene::begin(report(), facts(), |api| api.set_down(true));
    sleep(Duration::from_secs(180)).await;
    let n = scene.api.requests().len();
    assert!((25..=40).contains(&n), "{n} requests in three minutes");
    assert!(scene.api.n_reconnects() > 0);
    scene.api.set_down(false);
    scene.api.until("registration", Duration::from_secs(8), |api| api.node().is_some()).await;
    // The same in mid-life: what changed meanwhile arrives.
    sleep(Duration::from_secs(20)).await;
    scene.api.set_down(true);
    scene.node.change(|it| it.pressure.disk = true);
    sleep(Duration::from_secs(180)).await;
    scene.api.set_down(false);
    let has_arrived = |api: &FakeClusterApi| {
        let node = api.node().unwrap();
        let list = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
        list[1].status == "True"
    };
    scene.api.until("disk pressure", Duration::from_secs(8), has_arrived).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_we_may_not_create_is_found_or_waited_for() {
    let scene = Scene::begin(report(), facts(), |api| api.refuse_next(ApiErrorKind::Forbidden));
    scene.until_ready("True").await;
    assert_eq!(scene.n_requests("create node"), 2);
    let unregistered = ReportSettings { must_register: false, ..report() };
    let scene = Scene::begin(unregistered, facts(), |_| {});
    sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.api.requests(), []);
    scene.api.put_node(&Node::default());
    scene.until_ready("True").await;
    assert_eq!(scene.n_requests("create node"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_we_may_not_create_is_read_only_where_the_gate_lets_us() {
    for (gets_existing_only, n_reads) in [(false, 1), (true, 0)] {
        let settings = ReportSettings { gets_existing_only, ..report() };
        let scene = Scene::begin(settings, facts(), |api| {
            api.put_node(&Node::default());
            api.refuse_next(ApiErrorKind::Forbidden);
        });
        let has_answer = |api: &FakeClusterApi| !api.requests().is_empty();
        scene.api.until("the first request", PATIENCE, has_answer).await;
        sleep(Duration::from_millis(50)).await;
        assert_eq!(scene.n_requests("get node"), n_reads, "{gets_existing_only}");
    }
}

#[tokio::test(start_paused = true)]
async fn cordoning_is_said_and_the_pod_range_reaches_the_runtime_once() {
    let scene = Scene::begin(report(), facts(), |_| {});
    scene.until_ready("True").await;
    let configured = Some("10.99.0.0/16".to_owned());
    let range = hand_over_pod_cidr(scene.world.runtime(), scene.node.state.subscribe(), configured);
    let range = tokio::spawn(range);
    let is_configured = |world: &World| world.pod_cidr().as_deref() == Some("10.99.0.0/16");
    scene.world.until("the configured range", PATIENCE, is_configured).await;
    scene.world.fail_next(
        ferrolet_testkit::Call::SetPodCidr,
        1,
        ferrolet_ports::RuntimeErrorKind::Unavailable,
        "not now",
    );
    scene.api.edit_node(|node| {
        node.spec = Some(NodeSpec {
            pod_cidrs: Some(vec!["10.88.0.0/20".to_owned(), "fd01::/64".to_owned()]),
            unschedulable: Some(true),
            ..NodeSpec::default()
        });
    });
    let is_told = |world: &World| world.pod_cidr().as_deref() == Some("10.88.0.0/20,fd01::/64");
    scene.world.until("the range", PATIENCE, is_told).await;
    scene.api.edit_node(|node| node.spec.as_mut().unwrap().unschedulable = None);
    let is_said = |world: &World| {
        let events = world.recorded_events();
        events.last().is_some_and(|(_, it)| it.reason == "NodeSchedulable")
    };
    scene.world.until("the event", PATIENCE, is_said).await;
    assert!(scene.said().contains(&"NodeNotSchedulable".to_owned()));
    range.abort();
}
