//! The node's loops on a world in paused time.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ferrolet_node::{
    HostAddresses, Machine, NodeFacts, NodeSettings, NodeState, RuntimeHealth, RuntimeStatus,
};
use ferrolet_ports::{
    HealthCheck, NodeCopies as _, NodeHost as _, NodeView as _, RuntimeErrorKind,
};
use ferrolet_resources::{
    AllocatablePolicy, NodeCgroupPlace, ReservedCgroup, ReservedScope, milli_cpu_to_shares,
};
use ferrolet_testkit::{Call, FakeNodeCgroups, FakeNodeHost, World};
use k8s_openapi::api::core::v1::Node;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    AllocatableDoors, AllocatableSettings, NodeHandle, RefreshDoors, enforce_allocatable, look_up,
    machine::watch_machine, refresh, watch_runtime,
};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A node whose runtime nobody has asked yet.
fn unasked(world: &World) -> NodeHandle {
    let (known, now) = (NodeFacts::example(), world.now());
    let facts = NodeFacts::at_start(known.machine.unwrap(), known.addresses, now);
    let settings = Arc::new(NodeSettings::example());
    NodeHandle::new(NodeState::at_start(settings, facts, now), world.clock())
}

/// A node whose runtime is being watched.
fn feelings(world: &World) -> (watch::Receiver<Arc<NodeState>>, JoinSet<()>) {
    let node = unasked(world);
    let mut tasks = JoinSet::new();
    let state = node.subscribe();
    tasks.spawn(watch_runtime(world.runtime(), node));
    (state, tasks)
}

async fn until(
    state: &mut watch::Receiver<Arc<NodeState>>,
    is_it: impl Fn(&RuntimeHealth) -> bool,
) -> Duration {
    let began = Instant::now();
    let waited = timeout(secs(60), state.wait_for(|state| is_it(&state.facts.runtime))).await;
    waited.unwrap().unwrap();
    began.elapsed()
}

fn is_answered(health: &RuntimeHealth) -> bool {
    matches!(health, RuntimeHealth::Answered(_))
}

fn is_refused(health: &RuntimeHealth) -> bool {
    matches!(health, RuntimeHealth::Never { error: Some(_), .. } | RuntimeHealth::Silent { .. })
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_comes_up_is_noticed_quickly_and_one_that_goes_within_five_seconds() {
    let world = World::new();
    world.runtime_down();
    let (mut state, _tasks) = feelings(&world);
    assert!(until(&mut state, is_refused).await < millis(10));
    world.runtime_up();
    assert!(until(&mut state, RuntimeHealth::is_well).await <= millis(120));
    world.runtime_down();
    assert!(until(&mut state, is_refused).await <= millis(5010));
    assert!(state.borrow().facts.runtime.last().is_some());
    sleep(secs(60)).await;
    world.runtime_up();
    assert!(until(&mut state, RuntimeHealth::is_well).await <= millis(5010));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_comes_late_is_noticed_as_quickly() {
    for (late, at_most) in [(secs(90), millis(220)), (secs(600), millis(5020))] {
        let world = World::new();
        world.runtime_down();
        let (mut state, _tasks) = feelings(&world);
        sleep(late).await;
        world.runtime_up();
        assert!(until(&mut state, RuntimeHealth::is_well).await <= at_most);
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_not_ready_is_told_apart() {
    let world = World::new();
    world.set_network_trouble(Some(("NetworkPluginNotReady", "no CNI configuration")));
    let (mut state, _tasks) = feelings(&world);
    until(&mut state, is_answered).await;
    assert_eq!(
        state.borrow().facts.runtime.network_trouble().as_deref(),
        Some(
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
             message:no CNI configuration"
        )
    );
    world.set_network_trouble(None);
    assert!(until(&mut state, RuntimeHealth::is_well).await <= secs(1));
}

#[tokio::test(start_paused = true)]
async fn only_a_changed_feeling_is_told() {
    let world = World::new();
    let (mut state, _tasks) = feelings(&world);
    until(&mut state, RuntimeHealth::is_well).await;
    assert!(state.borrow_and_update().facts.runtime_version.is_some());
    sleep(secs(60)).await;
    assert!(!state.has_changed().unwrap());
    world.fail_next(Call::Status, 1, RuntimeErrorKind::Internal, "hiccup");
    until(&mut state, is_refused).await;
    assert!(until(&mut state, RuntimeHealth::is_well).await < secs(1));
}

/// A loop that is not well.
struct Unlisted;

impl HealthCheck for Unlisted {
    fn name(&self) -> &'static str {
        "pleg"
    }

    fn check(&self) -> Result<(), String> {
        Err("never listed".to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn images_addresses_and_names_are_looked_at_every_half_minute() {
    let world = World::new();
    world.add_image("registry.example/app:1");
    let host = FakeNodeHost::default();
    let at = |text: &str| HostAddresses {
        interfaces: vec![ip(text)],
        default_v4: Some(ip(text)),
        ..HostAddresses::default()
    };
    host.set_addresses(at("10.0.0.1"));
    host.set_name("lab-node", Some(vec![ip("10.0.0.7")]));
    let settings = NodeSettings { node_ips: Vec::new(), ..NodeSettings::example() };
    let by_name = look_up(&settings, &host).await.unwrap();
    let addresses = HostAddresses { by_name, ..host.addresses() };
    let facts = NodeFacts::at_start(Machine::default(), addresses, world.now());
    let state = NodeState::at_start(Arc::new(settings), facts, world.now());
    let node = NodeHandle::new(state, world.clock());
    assert_eq!(node.state().facts.addresses.by_name, [ip("10.0.0.7")]);
    assert_eq!(node.state().facts.images, None);
    let mut tasks = JoinSet::new();
    let doors = RefreshDoors {
        images: world.images(),
        host: Arc::new(host.clone()),
        listing: Arc::new(Unlisted),
    };
    tasks.spawn(refresh(node.clone(), doors));
    sleep(secs(1)).await;
    let facts = node.state().facts.clone();
    let images = facts.images.unwrap();
    assert_eq!(images[0].names.last().unwrap(), "registry.example/app:1");
    assert!(facts.loop_faults.is_empty(), "the first listing may take a moment");
    // The machine moves, and the name service fails: what it said before counts on.
    host.set_addresses(at("10.0.0.2"));
    host.set_name("lab-node", None);
    sleep(secs(30)).await;
    let facts = node.state().facts.clone();
    assert_eq!(facts.addresses.interfaces, [ip("10.0.0.2")]);
    assert_eq!(facts.addresses.by_name, [ip("10.0.0.7")]);
    assert_eq!(facts.loop_faults, ["PLEG is not healthy: never listed"]);
}

#[tokio::test(start_paused = true)]
async fn readers_hear_of_what_is_different_only() {
    let world = World::new();
    let node = unasked(&world);
    let mut state = node.subscribe();
    node.update(|facts| facts.pressure.disk = false);
    assert!(!state.has_changed().unwrap());
    node.update(|facts| facts.pressure.disk = true);
    assert!(state.borrow_and_update().facts.pressure.disk);
    let copy = Arc::new(Node::default());
    node.learn(copy.clone());
    assert!(state.has_changed().unwrap());
    assert_eq!(state.borrow_and_update().object, Some(copy.clone()));
    node.learn(copy);
    assert!(!state.has_changed().unwrap());
    node.lose();
    assert_eq!(state.borrow_and_update().object, None);
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_value_is_followed_to_its_end() {
    let world = World::new();
    let node = unasked(&world);
    let (volumes, seen) = watch::channel(Vec::new());
    let following = node.clone().follow(seen, |facts, names| facts.volumes_in_use = Some(names));
    let mut tasks = JoinSet::new();
    tasks.spawn(following);
    volumes.send_replace(vec!["csi/a".to_owned()]);
    let mut state = node.subscribe();
    let is_seen = |state: &Arc<NodeState>| {
        state.facts.volumes_in_use.as_deref() == Some(&["csi/a".to_owned()])
    };
    state.wait_for(is_seen).await.unwrap();
    drop(volumes);
    assert!(tasks.join_next().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_page_shows_the_node_as_it_would_register() {
    let world = World::new();
    let node = unasked(&world);
    node.update(|facts| facts.runtime = RuntimeHealth::Answered(RuntimeStatus::example()));
    let shown = node.node().await;
    assert_eq!(shown.metadata.name.as_deref(), Some("lab-node"));
    let conditions = shown.status.unwrap().conditions.unwrap();
    assert_eq!(conditions.last().unwrap().status, "True");
}

/// A node whose pods and daemons are bounded, and the words of its events.
fn enforcing(world: &World) -> (NodeHandle, Arc<FakeNodeCgroups>, JoinSet<()>) {
    let (node, cgroups) = (unasked(world), Arc::new(FakeNodeCgroups::default()));
    let kube = ReservedCgroup { name: "/daemons".to_owned(), scope: ReservedScope::Compressible };
    let policy = AllocatablePolicy { bounds_pods: true, kube: Some(kube), ..Default::default() };
    let settings =
        AllocatableSettings { policy, pods_cgroup: vec!["lab".to_owned(), "kubepods".to_owned()] };
    let doors = AllocatableDoors { cgroups: cgroups.clone(), events: world.events() };
    let mut tasks = JoinSet::new();
    tasks.spawn(enforce_allocatable(node.subscribe(), settings, doors));
    (node, cgroups, tasks)
}

fn said(world: &World) -> Vec<String> {
    let events = world.recorded_events();
    events.into_iter().map(|(_, it)| format!("{} {}", it.reason, it.message)).collect()
}

#[tokio::test(start_paused = true)]
async fn bounds_are_written_at_once_told_once_and_put_right_within_a_minute() {
    let world = World::new();
    let (node, cgroups, _tasks) = enforcing(&world);
    sleep(millis(1)).await;
    let memory = || cgroups.at(&NodeCgroupPlace::Pods)?.limits.memory;
    let shares = || cgroups.at(&NodeCgroupPlace::Pods)?.limits.cpu_shares;
    assert_eq!(memory(), Some(24_682_416 * 1024));
    assert_eq!(shares(), Some(milli_cpu_to_shares(2000)));
    let told = [
        "NodeAllocatableEnforced Updated Node Allocatable limit across pods",
        "NodeAllocatableEnforced Updated limits on kube reserved cgroup /daemons",
    ];
    assert_eq!(said(&world), told);
    cgroups.clear();
    sleep(secs(61)).await;
    assert_eq!(memory(), Some(24_682_416 * 1024));
    assert_eq!(said(&world), told, "putting right is no news");
    node.update(|facts| facts.machine.as_mut().unwrap().memory_bytes = 1 << 30);
    sleep(millis(1)).await;
    assert_eq!(memory(), Some(1 << 30), "a machine that changed is followed at once");
}

#[tokio::test(start_paused = true)]
async fn a_bound_that_the_kernel_refuses_is_told_and_tried_again() {
    let world = World::new();
    let (_node, cgroups, _tasks) = enforcing(&world);
    cgroups.refuse(Some(NodeCgroupPlace::Pods));
    sleep(millis(1)).await;
    let failed = "FailedNodeAllocatableEnforcement Failed to update Node Allocatable Limits \
                  [\"lab\" \"kubepods\"]: write memory.limit_in_bytes: device or resource busy";
    let daemons = "NodeAllocatableEnforced Updated limits on kube reserved cgroup /daemons";
    assert_eq!(said(&world), [failed, daemons]);
    sleep(secs(60)).await;
    assert_eq!(said(&world), [failed, daemons, failed]);
    cgroups.refuse(None);
    sleep(secs(60)).await;
    let last = said(&world).pop().unwrap();
    assert_eq!(last, "NodeAllocatableEnforced Updated Node Allocatable limit across pods");
    assert!(cgroups.at(&NodeCgroupPlace::Pods).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_grows_is_noticed_within_a_minute_and_one_that_is_silent_stays_as_it_was() {
    let (world, host) = (World::new(), FakeNodeHost::default());
    let node = unasked(&world);
    let mut tasks = JoinSet::new();
    tasks.spawn(watch_machine(Arc::new(host.clone()), node.clone()));
    let before = node.state();
    sleep(secs(61)).await;
    assert_eq!(node.state(), before, "it is as it was");
    let machine = before.facts.machine.clone().unwrap();
    let grown =
        Machine { n_cpus: machine.n_cpus + 2, memory_bytes: machine.memory_bytes * 2, ..machine };
    host.set_machine(Some(grown.clone()));
    sleep(secs(60)).await;
    assert_eq!(node.state().facts.machine, Some(grown.clone()));
    assert!(node.state().allocatable["memory"] > before.allocatable["memory"]);
    host.set_machine(None);
    sleep(secs(60)).await;
    assert_eq!(node.state().facts.machine, Some(grown));
}
