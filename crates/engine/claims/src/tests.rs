//! The part on fake drivers, a fake API and paused time.

use std::{sync::Arc, time::Duration};

use ferrolet_claims::{DeviceHealth, Feeling};
use ferrolet_ports::{DriverNews, GivenView as _, PodClaims as _, StateFiles as _};
use ferrolet_testkit::{DriverFault, FakeClaimDrivers, FakeClaimObjects, World};
use ferrolet_types::{Pod, PodUid, pod::PodView as _};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    Built, ClaimRules, Doors, Settings, build,
    keep::{CLAIMS, HEALTH},
};

const GPU: &str = "gpu.example";
const NET: &str = "net.example";

/// What stays when the agent dies.
struct Node {
    world: World,
    drivers: Arc<FakeClaimDrivers>,
    objects: Arc<FakeClaimObjects>,
}

impl Node {
    fn new() -> Self {
        let node = Self { world: World::new(), drivers: Arc::default(), objects: Arc::default() };
        node.drivers.register(GPU, true);
        node.drivers.register(NET, true);
        node
    }

    /// A claim that drivers have to do with, reserved for these pods.
    fn claim(&self, name: &str, drivers: &[&str], pods: &[&str]) {
        self.put(name, drivers, pods, json!([]));
    }

    fn put(&self, name: &str, drivers: &[&str], pods: &[&str], skips: Value) {
        let result = |driver: &&str| {
            json!({"driver": driver, "pool": "pool", "device": "d", "request": "r",
                "skipNodeOperations": skips})
        };
        let results: Vec<Value> = drivers.iter().map(result).collect();
        let reserved = |uid: &&str| json!({"resource": "pods", "name": uid, "uid": uid});
        let reserved: Vec<Value> = pods.iter().map(reserved).collect();
        let claim = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}});
        self.objects.put(serde_json::from_value(claim).unwrap());
    }

    /// A life of the agent.
    async fn agent(&self) -> Agent {
        let (news_sender, news) = mpsc::channel(8);
        let (joined_sender, joined) = watch::channel(true);
        let doors = Doors {
            drivers: self.drivers.clone(),
            news,
            cluster: Some((self.objects.clone(), joined)),
            files: self.world.state_files(),
            clock: self.world.clock(),
        };
        let settings = Settings {
            rules: ClaimRules { groups: false, skipping: true },
            shows_health: true,
            shows_messages: true,
        };
        let (built, part) = build(settings, doors).await;
        let mut tasks = JoinSet::new();
        part.loops.into_iter().for_each(|run| {
            tasks.spawn(run);
        });
        Agent { built, news: news_sender, _joined: joined_sender, _tasks: tasks }
    }

    async fn file(&self, name: &str) -> String {
        let content = self.world.state_files().read(name).await.unwrap();
        String::from_utf8(content.unwrap_or_default()).unwrap()
    }
}

/// One life of the agent; dropping it is a `kill -9`.
struct Agent {
    built: Built,
    news: mpsc::Sender<DriverNews>,
    _joined: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Agent {
    async fn prepare(&self, pod: &Pod) -> Result<(), String> {
        self.built.claims.prepare(pod).await
    }

    async fn unprepare(&self, pod: &Pod) -> Result<(), String> {
        self.built.claims.unprepare(&pod.uid()).await
    }

    fn devices(&self, pod: &Pod) -> Vec<String> {
        self.built.claims.cdi_devices(pod, &pod.spec_ref().containers[0]).unwrap()
    }

    async fn say(&self, said: DriverNews) {
        self.news.send(said).await.unwrap();
        sleep(Duration::from_millis(10)).await;
    }

    fn woken(&mut self) -> Vec<PodUid> {
        std::iter::from_fn(|| self.built.changed.try_recv().ok()).collect()
    }
}

/// A pod whose container uses these claims.
fn pod(uid: &str, claims: &[&str]) -> Pod {
    let named: Vec<Value> =
        claims.iter().map(|it| json!({"name": it, "resourceClaimName": it})).collect();
    let used: Vec<Value> = claims.iter().map(|it| json!({"name": it})).collect();
    let pod = json!({
        "metadata": {"name": uid, "namespace": "shop", "uid": uid},
        "spec": {"resourceClaims": named,
            "containers": [{"name": "c", "resources": {"claims": used}}]}});
    Pod::new(serde_json::from_value(pod).unwrap())
}

#[tokio::test(start_paused = true)]
async fn claims_are_prepared_in_batches_and_taken_back_after_their_last_pod() {
    let node = Node::new();
    node.claim("a", &[GPU], &["p", "q"]);
    node.claim("b", &[GPU, NET], &["p"]);
    let agent = node.agent().await;
    let (p, q) = (pod("p", &["a", "b"]), pod("q", &["a"]));
    agent.prepare(&p).await.unwrap();
    assert_eq!(node.drivers.calls(), ["prepare gpu.example a+b", "prepare net.example b"]);
    let devices = ["gpu.example/device=a-0", "gpu.example/device=b-0", "net.example/device=b-0"];
    assert_eq!(agent.devices(&p), devices);
    let container = &p.spec_ref().containers[0];
    let given = agent.built.claims.given_to(&p, container).claims;
    let given: Vec<(&str, usize)> =
        given.iter().map(|it| (it.name.as_str(), it.devices.len())).collect();
    assert_eq!(given, [("a", 1), ("b", 2)]);
    // Somebody else prepared it already.
    agent.prepare(&q).await.unwrap();
    assert_eq!(node.drivers.calls().len(), 2);
    assert!(node.file(CLAIMS).await.contains("gpu.example/device=a-0"));

    agent.unprepare(&p).await.unwrap();
    let calls = node.drivers.calls();
    assert_eq!(calls[2..], ["unprepare gpu.example b", "unprepare net.example b"]);
    assert!(!agent.built.claims.holds(&p.uid()));
    agent.unprepare(&q).await.unwrap();
    assert!(node.drivers.prepared(GPU).is_empty() && node.drivers.prepared(NET).is_empty());
    assert!(agent.built.claims.holders().is_empty());
    assert!(node.file(CLAIMS).await.contains("ClaimInfoStateList\\\":null"));
    // A pod that has nothing has nothing to give back.
    agent.unprepare(&q).await.unwrap();
    assert_eq!(node.drivers.calls().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn whatever_is_wrong_is_said_in_upstreams_words_and_leaves_nothing_behind() {
    let node = Node::new();
    node.claim("a", &[GPU], &["p"]);
    node.claim("b", &["away.example"], &["p"]);
    node.claim("c", &[GPU], &["somebody-else"]);
    let agent = node.agent().await;
    let check = async |claims: &[&str], expected: &str| {
        let failed = agent.prepare(&pod("p", claims)).await.unwrap_err();
        assert_eq!(failed, format!("prepare dynamic resources: {expected}"));
        assert!(agent.built.claims.holders().is_empty());
    };
    check(&["a", "x"], "fetch ResourceClaim x: resourceclaims.resource.k8s.io \"x\" not found")
        .await;
    check(&["a", "b"], "DRA driver away.example is not registered").await;
    check(&["a", "c"], "pod p (p) is not allowed to use ResourceClaim c (uid-c)").await;
    node.objects.go_down(true);
    check(&["a"], "fetch ResourceClaim a: no connection").await;
    assert!(node.drivers.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_lies_fails_its_pod_and_what_it_may_hold_is_taken_back() {
    let node = Node::new();
    node.claim("a", &[GPU], &["p"]);
    let agent = node.agent().await;
    let p = pod("p", &["a"]);
    let check = async |fault, expected: &str| {
        node.drivers.break_calls(Some(fault));
        let failed = agent.prepare(&p).await.unwrap_err();
        assert_eq!(failed, format!("prepare dynamic resources: {expected}"));
        assert!(agent.built.claims.holds(&p.uid()));
    };
    check(DriverFault::IsAway, "NodePrepareResources: it is away").await;
    check(DriverFault::Fails, "NodePrepareResources failed for ResourceClaim a: no").await;
    check(DriverFault::Skips, "NodePrepareResources skipped 1 ResourceClaims").await;
    let unknown = "NodePrepareResources returned result for unknown claim UID of-nobody";
    check(DriverFault::Invents, unknown).await;

    node.drivers.break_calls(Some(DriverFault::Fails));
    let failed = agent.unprepare(&p).await.unwrap_err();
    let words = "NodeUnprepareResources failed for ResourceClaim a: no";
    assert_eq!(failed, format!("unprepare dynamic resources: {words}"));
    // Nobody else gets it meanwhile.
    node.claim("a", &[GPU], &["p", "q"]);
    let refused = agent.prepare(&pod("q", &["a"])).await.unwrap_err();
    assert_eq!(refused, "prepare dynamic resources: ResourceClaim a is being unprepared");
    node.drivers.break_calls(None);
    agent.unprepare(&p).await.unwrap();
    agent.prepare(&pod("q", &["a"])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_holds_up_its_own_pods_only() {
    let node = Node::new();
    node.claim("a", &[GPU], &["p"]);
    node.claim("b", &[NET], &["q"]);
    let agent = node.agent().await;
    node.drivers.break_calls(Some(DriverFault::Hangs));
    let p = pod("p", &["a"]);
    let hanging = timeout(Duration::from_secs(5), agent.prepare(&p));
    assert!(hanging.await.is_err());
    // On disk before the driver was asked: whoever comes next knows whom to ask.
    assert!(node.file(CLAIMS).await.contains("uid-a"));
    node.drivers.break_calls(None);
    agent.prepare(&pod("q", &["b"])).await.unwrap();
    agent.unprepare(&p).await.unwrap();
    assert!(!agent.built.claims.holds(&p.uid()));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_knows_what_is_prepared_and_asks_again_only_for_a_new_sandbox() {
    let node = Node::new();
    node.claim("a", &[GPU], &["p"]);
    let p = pod("p", &["a"]);
    node.agent().await.prepare(&p).await.unwrap();
    let agent = node.agent().await;
    assert_eq!(agent.built.claims.holders(), [p.uid()].into());
    // No driver, no API: a container of a sandbox that is there starts all the same.
    node.objects.go_down(true);
    agent.built.claims.ensure(&p).await.unwrap();
    assert_eq!(agent.devices(&p), ["gpu.example/device=a-0"]);
    assert_eq!(node.drivers.calls().len(), 1);
    node.objects.go_down(false);
    agent.prepare(&p).await.unwrap();
    assert_eq!(node.drivers.calls().len(), 2);
    agent.unprepare(&p).await.unwrap();
    assert!(node.drivers.prepared(GPU).is_empty());
}

#[tokio::test(start_paused = true)]
async fn records_that_cannot_be_read_are_set_aside_and_begun_anew() {
    let node = Node::new();
    node.claim("a", &[GPU], &["p"]);
    let p = pod("p", &["a"]);
    let good = {
        node.agent().await.prepare(&p).await.unwrap();
        node.file(CLAIMS).await
    };
    let check = async |content: &str| {
        let files = node.world.state_files();
        files.write(CLAIMS, content.as_bytes().to_vec()).await.unwrap();
        files.write(HEALTH, content.as_bytes().to_vec()).await.unwrap();
        let agent = node.agent().await;
        assert!(agent.built.claims.holders().is_empty(), "{content}");
        assert_eq!(node.file("dra_manager_state.unreadable").await, content);
        assert_eq!(node.file("dra_health_state.unreadable").await, content);
        // A container that starts in a sandbox of before is no worse off.
        agent.built.claims.ensure(&p).await.unwrap();
        assert_eq!(agent.devices(&p), ["gpu.example/device=a-0"]);
    };
    check("").await;
    check("{").await;
    check("[]").await;
    check(&good[..good.len() / 2]).await;
    check(&good.replace("pool", "pond")).await;
    check(r#"{"version":"v1","entries":[{"driverName":"x"}],"checksum":1}"#).await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_may_be_spared() {
    let node = Node::new();
    node.put("a", &[GPU], &["p"], json!(["*"]));
    node.drivers.register(GPU, false);
    let agent = node.agent().await;
    let p = pod("p", &["a"]);
    agent.prepare(&p).await.unwrap();
    agent.unprepare(&p).await.unwrap();
    assert!(node.drivers.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_are_woken_when_a_driver_comes() {
    let node = Node::new();
    node.claim("a", &[GPU], &["p"]);
    node.drivers.register(GPU, false);
    let mut agent = node.agent().await;
    let p = pod("p", &["a"]);
    agent.prepare(&p).await.unwrap_err();
    assert!(agent.woken().is_empty());
    node.drivers.register(GPU, true);
    agent.say(DriverNews::Usable { driver: GPU.to_owned() }).await;
    assert_eq!(agent.woken(), [p.uid()]);
    agent.prepare(&p).await.unwrap();
    agent.say(DriverNews::Usable { driver: GPU.to_owned() }).await;
    assert!(agent.woken().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_says_of_its_devices_is_shown_and_wakes_who_uses_them() {
    let node = Node::new();
    node.claim("a", &[GPU], &["p"]);
    let mut agent = node.agent().await;
    let p = pod("p", &["a"]);
    agent.prepare(&p).await.unwrap();
    let shown = |agent: &Agent| {
        let shown = agent.built.claims.health(&p, &p.spec_ref().containers[0]);
        serde_json::to_value(shown).unwrap()[0]["resources"][0].clone()
    };
    let id = "gpu.example/device=a-0";
    assert_eq!(shown(&agent), json!({"resourceID": id, "health": "Unknown"}));
    let feels = |device: &str, feeling, message: &str| DriverNews::Feels {
        driver: GPU.to_owned(),
        devices: vec![DeviceHealth {
            pool: "pool".to_owned(),
            device: device.to_owned(),
            feeling,
            holds: Duration::ZERO,
            message: message.to_owned(),
        }],
    };
    agent.say(feels("a-0", Feeling::Unhealthy, &"hot ".repeat(500))).await;
    assert_eq!(agent.woken(), [p.uid()]);
    let told = shown(&agent);
    assert_eq!(told["health"], "Unhealthy");
    assert_eq!(told["message"].as_str().map(str::len), Some(1024));
    agent.say(feels("other", Feeling::Healthy, "")).await;
    assert!(agent.woken().is_empty());
    // It is remembered, but not for long.
    drop(agent);
    let mut agent = node.agent().await;
    assert_eq!(shown(&agent)["health"], "Unhealthy");
    agent.say(feels("a-0", Feeling::Healthy, "")).await;
    assert_eq!(agent.woken(), [p.uid()]);
    assert_eq!(shown(&agent), json!({"resourceID": id, "health": "Healthy"}));
    agent.say(DriverNews::Silent { driver: GPU.to_owned() }).await;
    assert_eq!(agent.woken(), [p.uid()]);
    assert_eq!(shown(&agent)["health"], "Unknown");
}

#[tokio::test(start_paused = true)]
async fn what_drivers_offer_that_are_not_there_is_removed() {
    let node = Node::new();
    node.objects.go_down(true);
    let agent = node.agent().await;
    sleep(Duration::from_secs(10)).await;
    node.objects.go_down(false);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(node.objects.wiped(), [None]);
    agent.say(DriverNews::Unusable { driver: GPU.to_owned() }).await;
    agent.say(DriverNews::Unusable { driver: NET.to_owned() }).await;
    sleep(Duration::from_secs(20)).await;
    agent.say(DriverNews::Usable { driver: NET.to_owned() }).await;
    assert_eq!(node.objects.wiped(), [None]);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(node.objects.wiped(), [None, Some(GPU.to_owned())]);
}
