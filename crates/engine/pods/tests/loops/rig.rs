//! A small agent on a world: what `wire` does, without sources, servers and files.

use std::{sync::Arc, time::Duration};

use ferrolet_lifecycle::BackOffPolicy;
use ferrolet_node::{NodeState, RuntimeCondition, RuntimeHealth, RuntimeStatus};
use ferrolet_pods::{
    Board, Doors, Inputs, LoopHealth, PodSettings, PullLimits, PullSettings, UserIds,
    World as Wiring,
};
use ferrolet_ports::{Events, PodsView as _, Runtime as _, RuntimeEventKind};
use ferrolet_spec::{NodeDns, SpecSettings};
use ferrolet_testkit::{
    Act, FakeClaims, FakeDevices, FakeHooks, FakeNames, FakeProbing, World, roomy_node,
};
use ferrolet_types::{
    Eviction, Pod, PodChange, PodChanges, PodUid, Timestamp, VolumeHealthReport,
    hint::{Hint, News, Seen},
    pod::{PodSource, PodView as _, ProbeKind},
    probe::{ProbeReport, ProbeResult},
};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodStatus};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep},
};

/// The image that every world of these tests has.
pub(crate) const IMAGE: &str = "registry.example/app:1";
/// Sandboxes in the making at once.
pub(crate) const N_PARALLEL_SANDBOXES: usize = 3;
/// Longer than anything but a back-off takes.
pub(crate) const SOON: Duration = Duration::from_secs(5);

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A world with one image, in which calls take no time.
pub(crate) fn world() -> World {
    let world = World::new();
    world.add_image(IMAGE);
    world.set_default_latency(Duration::ZERO, Duration::ZERO);
    world
}

/// An agent; dropping it is a `kill -9`.
pub(crate) struct Agent {
    pub(crate) board: Arc<Board>,
    pub(crate) hooks: Arc<FakeHooks>,
    changes: mpsc::Sender<PodChanges>,
    hints: mpsc::Sender<Hint>,
    node: watch::Sender<Arc<NodeState>>,
    evictions: mpsc::Sender<Eviction>,
    reports: mpsc::UnboundedSender<ProbeReport>,
    volume_health: mpsc::Sender<VolumeHealthReport>,
    pub(crate) devices: Arc<FakeDevices>,
    pub(crate) claims: Arc<FakeClaims>,
    _claim_news: mpsc::Sender<PodUid>,
    device_news: mpsc::Sender<PodUid>,
    _tasks: JoinSet<()>,
}

impl Agent {
    pub(crate) fn start(world: &World) -> Self {
        Self::with_events(world, world.events())
    }

    pub(crate) fn with_events(world: &World, events: Arc<dyn Events>) -> Self {
        Self::wire(world, events, roomy_node(), Arc::default())
    }

    /// On a node whose drivers hold something for these pods.
    pub(crate) fn with_claims(world: &World, holders: &[PodUid]) -> Self {
        let claims = Arc::new(FakeClaims::default());
        holders.iter().for_each(|uid| claims.hold(uid));
        Self::wire(world, world.events(), roomy_node(), claims)
    }

    /// On a node with bounds.
    pub(crate) fn with_node(world: &World, node: NodeState) -> Self {
        Self::wire(world, world.events(), node, Arc::default())
    }

    fn wire(
        world: &World,
        events: Arc<dyn Events>,
        node: NodeState,
        claims: Arc<FakeClaims>,
    ) -> Self {
        let board = Arc::new(Board::default());
        let hooks = Arc::new(FakeHooks::default());
        let devices = Arc::new(FakeDevices::default());
        let (node_sender, node) = watch::channel(Arc::new(node));
        let doors = Doors {
            runtime: world.runtime(),
            images: world.images(),
            pulls: None,
            cgroups: world.cgroups(),
            files: world.files(),
            state_files: world.state_files(),
            names: Arc::new(FakeNames::default()),
            usage: None,
            placing: None,
            volumes: world.volumes(),
            devices: devices.clone(),
            claims: claims.clone(),
            probing: Arc::new(FakeProbing::default()),
            hooks: hooks.clone(),
            objects: None,
            lookups: None,
            clock: world.clock(),
            events,
            board: board.clone(),
            node,
        };
        let (change_sender, changes) = mpsc::channel(50);
        let (hint_sender, hints) = mpsc::channel(1000);
        let (report_sender, probes) = mpsc::unbounded_channel();
        let (eviction_sender, evictions) = mpsc::channel(8);
        let (health_sender, volume_health) = mpsc::channel(8);
        let (device_sender, device_news) = mpsc::channel(8);
        let (claim_sender, claim_news) = mpsc::channel(8);
        let inputs = Inputs {
            changes,
            hints,
            probes,
            volumes_ready: mpsc::channel(1).1,
            volume_health,
            devices: device_news,
            claims: claim_news,
            evictions,
        };
        let mut tasks = JoinSet::new();
        let wiring = Arc::new(Wiring::new(doors, settings()));
        let pulse = Arc::new(LoopHealth::new(secs(60)));
        tasks.spawn(ferrolet_pods::run(wiring, inputs, pulse));
        tasks.spawn(pass_events_on(world.clone(), hint_sender.clone()));
        Self {
            board,
            hooks,
            devices,
            device_news: device_sender,
            claims,
            _claim_news: claim_sender,
            changes: change_sender,
            hints: hint_sender,
            node: node_sender,
            evictions: eviction_sender,
            reports: report_sender,
            volume_health: health_sender,
            _tasks: tasks,
        }
    }

    /// What a probe of the newest container of this name says.
    pub(crate) fn report(
        &self,
        (world, uid): (&World, &PodUid),
        name: &str,
        kind: ProbeKind,
        result: ProbeResult,
    ) {
        let newest = world.newest_container(uid, name);
        let report = ProbeReport {
            uid: uid.clone(),
            container: name.into(),
            container_id: newest.expect("it was made").id,
            kind,
            result,
        };
        self.reports.send(report).expect("the loop runs");
    }

    /// Hands changes in as if all sources had spoken.
    pub(crate) async fn tell(&self, changes: impl IntoIterator<Item = PodChange>) {
        self.tell_when(changes, true).await;
    }

    pub(crate) async fn tell_when(
        &self,
        changes: impl IntoIterator<Item = PodChange>,
        all_sources_ready: bool,
    ) {
        let changes = PodChanges {
            source: PodSource::File,
            changes: changes.into_iter().collect(),
            all_sources_ready,
        };
        let sent = self.changes.send(changes).await;
        sent.expect("the agent listens");
    }

    pub(crate) async fn add(&self, pod: &Pod) {
        self.tell([PodChange::Added(pod.clone())]).await;
    }

    pub(crate) async fn remove(&self, pod: &Pod) {
        self.tell([PodChange::Removed(pod.clone())]).await;
    }

    pub(crate) async fn hint(&self, hint: Hint) {
        let sent = self.hints.send(hint).await;
        sent.expect("the agent listens");
    }

    pub(crate) async fn evict(&self, eviction: Eviction) {
        let sent = self.evictions.send(eviction).await;
        sent.expect("the agent listens");
    }

    pub(crate) async fn tell_health(&self, report: VolumeHealthReport) {
        let sent = self.volume_health.send(report).await;
        sent.expect("the agent listens");
    }

    pub(crate) async fn tell_devices(&self, uid: &PodUid) {
        let sent = self.device_news.send(uid.clone()).await;
        sent.expect("the agent listens");
    }

    pub(crate) fn set_network(&self, is_ready: bool) {
        let network = RuntimeCondition {
            is_ok: is_ready,
            reason: "NetworkPluginNotReady".to_owned(),
            message: "no plugin".to_owned(),
        };
        let status = RuntimeStatus { network, ..RuntimeStatus::example() };
        self.node.send_modify(|node| {
            Arc::make_mut(node).facts.runtime = RuntimeHealth::Answered(status);
        });
    }

    pub(crate) fn status(&self, uid: &PodUid) -> Option<PodStatus> {
        let pods = self.board.pods();
        let pod = pods.into_iter().find(|it| it.uid() == *uid)?;
        pod.status.clone()
    }

    pub(crate) fn phase(&self, uid: &PodUid) -> String {
        let status = self.status(uid);
        status.and_then(|it| it.phase).unwrap_or_default()
    }

    pub(crate) fn container(&self, uid: &PodUid, name: &str) -> Option<ContainerStatus> {
        let status = self.status(uid)?;
        let init = status.init_container_statuses.unwrap_or_default();
        let mut all = init.into_iter().chain(status.container_statuses.unwrap_or_default());
        all.find(|it| it.name == name)
    }

    pub(crate) fn container_state(&self, uid: &PodUid, name: &str) -> ContainerState {
        let status = self.container(uid, name);
        status.and_then(|it| it.state).unwrap_or_default()
    }

    /// Why a container waits; empty when it does not.
    pub(crate) fn waits_for(&self, uid: &PodUid, name: &str) -> String {
        let waiting = self.container_state(uid, name).waiting;
        waiting.and_then(|it| it.reason).unwrap_or_default()
    }
}

/// Waits until something holds; panics, naming it, when it does not in time.
pub(crate) async fn eventually(what: &str, patience: Duration, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !is_true() {
        assert!(Instant::now() < deadline, "waited {patience:?} in vain for: {what}");
        sleep(millis(5)).await;
    }
}

/// Waits until the container `main` of a pod runs.
pub(crate) async fn main_runs(world: &World, uid: &PodUid, patience: Duration) {
    world.until("it runs", patience, |world| world.is_running(uid, "main")).await;
}

/// Waits until the runtime and the disk have forgotten a pod.
pub(crate) async fn nothing_is_left(world: &World, uid: &PodUid, patience: Duration) {
    world.until("nothing is left", patience, |world| world.is_gone(uid)).await;
}

/// When the containers of that name in that pod began, in order.
pub(crate) fn starts_of(world: &World, uid: &PodUid, container: &str) -> Vec<Timestamp> {
    times(
        world,
        uid,
        |act| matches!(act, Act::ContainerStarted { name, .. } if name.as_str() == container),
    )
}

/// When something happened to a pod.
pub(crate) fn times(world: &World, uid: &PodUid, is_it: impl Fn(&Act) -> bool) -> Vec<Timestamp> {
    let journal = world.journal_of(uid).into_iter();
    journal.filter(|entry| is_it(&entry.act)).map(|entry| entry.at).collect()
}

/// The place of the first such entry in the journal.
pub(crate) fn place(world: &World, is_it: impl Fn(&Act) -> bool) -> usize {
    let journal = world.journal();
    let place = journal.iter().position(|entry| is_it(&entry.act));
    place.unwrap_or_else(|| panic!("it never happened; the journal: {journal:#?}"))
}

/// What `observe` would make of the runtime's events, without its memory and without its listings.
async fn pass_events_on(world: World, hints: mpsc::Sender<Hint>) {
    loop {
        let Ok(mut stream) = world.runtime().events().await else {
            sleep(millis(100)).await;
            continue;
        };
        while let Some(Ok(event)) = stream.next().await {
            let now = match event.kind {
                RuntimeEventKind::Created => Seen::Created,
                RuntimeEventKind::Started => Seen::Running,
                RuntimeEventKind::Stopped => Seen::Ended,
                RuntimeEventKind::Deleted => Seen::Removed,
            };
            let news = News { id: event.id, now };
            let uid = event.uid;
            if hints.send(Hint::Changed { uid, news }).await.is_err() {
                return;
            }
        }
    }
}

fn settings() -> PodSettings {
    PodSettings {
        spec: SpecSettings::example(),
        dns: NodeDns {
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: None,
            node_ips: vec!["10.0.0.1".to_owned()],
        },
        cluster_domain: String::new(),
        back_off: BackOffPolicy::upstream(secs(300)),
        pulls: PullSettings {
            limits: PullLimits { at_once: 2, per_registry: 2 },
            rate: None,
            verification: None,
            providers: Vec::new(),
        },
        user_ids: UserIds::all(65_536),
        has_static_cpus: false,
        has_static_memory: false,
        n_parallel_sandboxes: N_PARALLEL_SANDBOXES,
        n_dead_kept: Some(1),
        sync_frequency: secs(60),
    }
}
