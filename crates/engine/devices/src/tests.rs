//! The part on fake plugins and paused time.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ferrolet_devices::{Device, PluginId, PluginOptions};
use ferrolet_ports::{
    DeviceError, GivenDevices, GivenView as _, PluginNews, PodDevices as _, StateFiles as _,
};
use ferrolet_testkit::{FakePlugins, World};
use ferrolet_types::{Pod, PodUid, Quantity, pod::PodView as _};
use serde_json::json;
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use crate::{Built, Doors, Settings, build, keep::CHECKPOINT};

const GPU: &str = "example.com/gpu";

struct Rig {
    world: World,
    plugins: Arc<FakePlugins>,
    news: mpsc::Sender<PluginNews>,
    built: Built,
    _tasks: JoinSet<()>,
}

impl Rig {
    async fn new() -> Self {
        Self::on(World::new()).await
    }

    /// A new life of the agent on this world.
    async fn on(world: World) -> Self {
        let plugins = Arc::new(FakePlugins::default());
        let (news_sender, news) = mpsc::channel(8);
        let doors = Doors {
            plugins: plugins.clone(),
            news,
            files: world.state_files(),
            clock: world.clock(),
        };
        let (built, part) = build(Settings { shows_health: true }, doors).await;
        let mut tasks = JoinSet::new();
        part.loops.into_iter().for_each(|run| {
            tasks.spawn(run);
        });
        Self { world, plugins, news: news_sender, built, _tasks: tasks }
    }

    async fn say(&self, said: PluginNews) {
        self.news.send(said).await.unwrap();
        sleep(Duration::from_millis(10)).await;
    }

    async fn connect(&self, plugin: u64, devices: &str) {
        let options = PluginOptions { pre_start: true, preferred: true };
        let (resource, plugin) = (GPU.to_owned(), PluginId(plugin));
        self.say(PluginNews::Connected { resource, plugin, options }).await;
        self.list(plugin, devices).await;
    }

    async fn list(&self, plugin: PluginId, devices: &str) {
        let device = |word: &str| {
            let is_healthy = !word.ends_with('!');
            let device = Device { is_healthy, numa_nodes: Vec::new() };
            (word.trim_end_matches('!').to_owned(), device)
        };
        let devices = devices.split_whitespace().map(device).collect();
        self.say(PluginNews::Listed { resource: GPU.to_owned(), plugin, devices }).await;
    }

    async fn gone(&self, plugin: u64) {
        let (resource, plugin) = (GPU.to_owned(), PluginId(plugin));
        self.say(PluginNews::Gone { resource, plugin }).await;
    }

    async fn allocate(&self, pod: &Pod) -> Result<(), DeviceError> {
        self.built.devices.allocate(pod, &BTreeSet::new()).await
    }

    /// Healthy devices and all, as the node shows them.
    fn shown(&self) -> Option<(i64, i64)> {
        let amounts = self.built.amounts.borrow();
        let n = |amount: &Quantity| amount.value();
        Some((n(amounts.allocatable.get(GPU)?), n(amounts.capacity.get(GPU)?)))
    }
}

fn pod(uid: &str, n: u32) -> Pod {
    let limits = json!({"limits": {GPU: n.to_string()}});
    let pod = json!({
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"containers": [{"name": "c", "resources": limits}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn refused(why: &str) -> Result<(), DeviceError> {
    let message = format!("Allocate failed due to {why}, which is unexpected");
    Err(DeviceError::Refused { reason: "UnexpectedAdmissionError", message })
}

#[tokio::test(start_paused = true)]
async fn pods_get_devices_keep_them_and_give_them_back() {
    let rig = Rig::new().await;
    assert!(rig.built.amounts.borrow().is_reset, "there was no record");
    let none = pod("none", 1);
    // Nobody offers the resource: somebody else's business.
    assert_eq!(rig.allocate(&none).await, Ok(()));
    rig.connect(1, "a b c!").await;
    assert_eq!(rig.shown(), Some((2, 3)));
    rig.plugins.prefer(&["b"]);
    let (one, two) = (pod("one", 1), pod("two", 1));
    rig.allocate(&one).await.unwrap();
    rig.allocate(&one).await.unwrap();
    rig.allocate(&two).await.unwrap();
    let ids = |name: &str| BTreeSet::from([name.to_owned()]);
    assert_eq!(rig.plugins.allocated(), [ids("b"), ids("a")]);
    let words =
        "requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0";
    assert_eq!(rig.allocate(&pod("three", 1)).await, refused(words));

    let devices = &rig.built.devices;
    let given = devices.for_container(&one.uid(), "c").await.unwrap();
    assert_eq!(given.env, [("b".to_owned(), "given".to_owned())]);
    assert_eq!(rig.plugins.started(), [ids("b")]);
    let line =
        GivenDevices { resource: GPU.to_owned(), ids: vec!["b".to_owned()], numa_nodes: vec![] };
    assert_eq!(devices.given_to(&one, &one.spec_ref().containers[0]).devices, [line]);
    assert_eq!(devices.allocatable().devices.len(), 2);

    devices.release(&one.uid());
    rig.allocate(&pod("three", 1)).await.unwrap();
    devices.retain(&|uid| *uid == PodUid::new("two"));
    rig.allocate(&pod("four", 1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_plugin_says_no_to_is_free_again() {
    let rig = Rig::new().await;
    rig.connect(1, "a").await;
    rig.plugins.fail(Some("rpc error: code = Unavailable desc = broken"));
    let words = "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unavailable desc = broken";
    assert_eq!(rig.allocate(&pod("one", 1)).await, refused(words));
    rig.plugins.fail(None);
    rig.allocate(&pod("one", 1)).await.unwrap();
    rig.plugins.fail(Some("no"));
    let told = rig.built.devices.for_container(&PodUid::new("one"), "c").await;
    assert_eq!(told.unwrap_err(), "device plugin PreStartContainer rpc failed with err: no");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_hangs_holds_up_its_own_pods_only_and_an_interrupted_pod_holds_nothing() {
    let rig = Rig::new().await;
    rig.connect(1, "a b").await;
    rig.plugins.hold_up(true);
    let (one, two) = (pod("one", 1), pod("two", 2));
    {
        let waiting = tokio::time::timeout(Duration::from_secs(1), rig.allocate(&one));
        let other = async {
            sleep(Duration::from_millis(500)).await;
            // One of the two is spoken for.
            rig.allocate(&two).await
        };
        let (waited, other) = tokio::join!(waiting, other);
        assert!(waited.is_err());
        let words = "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1";
        assert_eq!(other, refused(words));
    }
    rig.plugins.hold_up(false);
    rig.allocate(&two).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn health_reaches_whoever_has_the_device_and_a_lost_plugin_is_missed_after_five_minutes() {
    let mut rig = Rig::new().await;
    rig.connect(1, "a b").await;
    let one = pod("one", 1);
    rig.allocate(&one).await.unwrap();
    let health = |rig: &Rig| {
        let told = rig.built.devices.health(&PodUid::new("one"), "c");
        let device = &told[0].resources.as_ref().unwrap()[0];
        (told[0].name.clone(), device.resource_id.clone(), device.health.clone().unwrap())
    };
    let is = |health: &str| (GPU.to_owned(), "a".to_owned(), health.to_owned());
    assert_eq!(health(&rig), is("Healthy"));
    rig.list(PluginId(1), "a! b").await;
    assert_eq!(health(&rig), is("Unhealthy"));
    assert_eq!(rig.built.changed.recv().await, Some(one.uid()));
    rig.list(PluginId(1), "a b").await;
    assert_eq!(rig.built.changed.recv().await, Some(one.uid()));

    rig.gone(1).await;
    assert_eq!(rig.shown(), Some((0, 2)));
    sleep(Duration::from_secs(299)).await;
    assert_eq!(rig.shown(), Some((0, 2)));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.shown(), None);
    assert_eq!(rig.built.amounts.borrow().removed, [GPU]);
    let words = "cannot allocate unregistered device example.com/gpu";
    assert_eq!(rig.allocate(&pod("new", 1)).await, refused(words));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_owners_wait_for_their_plugin_and_others_too_until_it_is_missed() {
    let world = World::new();
    let one = pod("one", 1);
    {
        let rig = Rig::on(world.clone()).await;
        rig.connect(1, "a b").await;
        rig.allocate(&one).await.unwrap();
    }
    let mut rig = Rig::on(world.clone()).await;
    assert!(!rig.built.amounts.borrow().is_reset);
    assert_eq!(rig.shown(), Some((0, 0)));
    rig.allocate(&one).await.unwrap();
    let why = "no healthy devices present; cannot allocate unhealthy devices example.com/gpu";
    let words = format!("waiting for the device plugin of example.com/gpu: {why}");
    let waits = rig.built.devices.for_container(&one.uid(), "c").await;
    assert_eq!(waits.unwrap_err(), words);
    let new = pod("new", 1);
    let not_yet = DeviceError::NotYet { reason: "FailedAllocateDevices", message: words };
    assert_eq!(rig.allocate(&new).await, Err(not_yet));
    // It comes back: whoever waits hears of it, and has what it had.
    rig.connect(7, "a b").await;
    assert_eq!(rig.built.changed.recv().await, Some(one.uid()));
    let given = rig.built.devices.for_container(&one.uid(), "c").await.unwrap();
    assert_eq!(given.env, [("a".to_owned(), "given".to_owned())]);
    rig.allocate(&new).await.unwrap();
    let other = rig.built.devices.for_container(&new.uid(), "c").await.unwrap();
    assert_eq!(other.env, [("b".to_owned(), "given".to_owned())]);
    // A device that it does not list any more is waited for.
    rig.list(PluginId(7), "b").await;
    let waits = rig.built.devices.for_container(&one.uid(), "c").await.unwrap_err();
    assert!(waits.contains("previously allocated devices are no longer healthy"), "{waits}");

    let rig = Rig::on(world).await;
    sleep(Duration::from_secs(301)).await;
    let words = "cannot allocate unregistered device example.com/gpu";
    assert_eq!(rig.allocate(&pod("late", 1)).await, refused(words));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_is_set_aside() {
    let world = World::new();
    let files = world.state_files();
    files.write(CHECKPOINT, b"{".to_vec()).await.unwrap();
    let rig = Rig::on(world).await;
    assert!(!rig.built.amounts.borrow().is_reset);
    let aside = rig.world.state_files().read("kubelet_internal_checkpoint.unreadable").await;
    assert_eq!(aside.unwrap().unwrap(), b"{");
    rig.connect(1, "a").await;
    rig.allocate(&pod("one", 1)).await.unwrap();
}
