//! The agent under test: what `wire` puts together, with a world's doors and without servers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ferrolet_lifecycle::BackOffPolicy;
use ferrolet_node::{NodeFacts, NodeState, RuntimeHealth};
use ferrolet_node_engine::{NodeHandle, watch_runtime};
use ferrolet_observe::{ListingHealth, watch_containers};
use ferrolet_pods::{
    Board, Doors, Inputs, LoopHealth, PodSettings, PullLimits, PullSettings, UserIds,
    World as Wiring,
};
use ferrolet_ports::{NoDevices, StatusSink};
use ferrolet_probes::{HookRunner, probes};
use ferrolet_sources::{Merger, merge};
use ferrolet_spec::{NodeDns, SpecSettings};
use ferrolet_testkit::{FakeNames, FakeOutbound, World, roomy_node};
use ferrolet_types::{Eviction, Pod, SourceUpdate, SourcedPod, pod::PodSource, pod::PodView as _};
use tokio::{sync::mpsc, task::JoinSet};

/// A running agent; dropping it is a `kill -9`.
pub(crate) struct Agent {
    updates: mpsc::Sender<SourceUpdate>,
    evictions: mpsc::Sender<Eviction>,
    _tasks: JoinSet<()>,
}

impl Agent {
    pub(crate) fn start(world: &World, sink: Arc<dyn StatusSink>) -> Self {
        let mut tasks = JoinSet::new();
        let (update_sender, updates) = mpsc::channel(50);
        let (change_sender, changes) = mpsc::channel(50);
        let (hint_sender, hints) = mpsc::channel(1000);
        let node = NodeHandle::new(unasked(world), world.clock());
        let merger = Merger::new([PodSource::File, PodSource::Api]);
        tasks.spawn(merge::run(merger, updates, change_sender, None, world.clock()));
        let listing = Arc::new(ListingHealth::default());
        tasks.spawn(watch_containers(world.runtime(), hint_sender, listing));
        tasks.spawn(watch_runtime(world.runtime(), node.clone()));
        let (probing, probe_loop, probe_reports) = probes(ferrolet_probes::Doors {
            runtime: world.runtime(),
            events: world.events(),
            clock: world.clock(),
            figures: Arc::default(),
            outbound: Arc::new(FakeOutbound::default()),
        });
        tasks.spawn(probe_loop.run());
        let hooks =
            HookRunner::new(world.runtime(), world.events(), Arc::new(FakeOutbound::default()));
        let (eviction_sender, evictions) = mpsc::channel(8);
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
            devices: Arc::new(NoDevices),
            probing: Arc::new(probing),
            hooks: Arc::new(hooks),
            objects: None,
            lookups: None,
            clock: world.clock(),
            events: world.events(),
            board: Arc::new(Board::with_sinks(vec![sink])),
            node: node.subscribe(),
        };
        let inputs = Inputs {
            changes,
            hints,
            probes: probe_reports,
            volumes_ready: mpsc::channel(1).1,
            volume_health: mpsc::channel(1).1,
            devices: mpsc::channel(1).1,
            evictions,
        };
        let pulse = Arc::new(LoopHealth::new(Duration::from_secs(60)));
        let wiring = Arc::new(Wiring::new(doors, settings()));
        tasks.spawn(ferrolet_pods::run(wiring, inputs, pulse));
        Self { updates: update_sender, evictions: eviction_sender, _tasks: tasks }
    }

    /// The node cannot afford a pod any longer.
    pub(crate) async fn evict(&self, eviction: Eviction) {
        let sent = self.evictions.send(eviction).await;
        sent.expect("the dispatcher runs as long as the agent");
    }

    /// One source's whole set.
    pub(crate) async fn tell(&self, source: PodSource, pods: impl Iterator<Item = Pod>) {
        let sourced = pods.map(|pod| SourcedPod { origin: pod.key().to_string().into(), pod });
        let update = SourceUpdate {
            source,
            pods: sourced.collect(),
            unreadable: BTreeSet::new(),
            is_provisional: false,
        };
        let sent = self.updates.send(update).await;
        sent.expect("the merge runs as long as the agent");
    }
}

/// A node with room for every pod, whose runtime nobody has asked yet.
fn unasked(world: &World) -> NodeState {
    let runtime = RuntimeHealth::Never { since: world.now(), error: None };
    let node = roomy_node();
    NodeState { facts: NodeFacts { runtime, runtime_version: None, ..node.facts }, ..node }
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
        back_off: BackOffPolicy::upstream(Duration::from_secs(300)),
        pulls: PullSettings {
            limits: PullLimits::at_most(2),
            rate: None,
            verification: None,
            providers: Vec::new(),
        },
        user_ids: UserIds::all(65_536),
        has_static_cpus: false,
        has_static_memory: false,
        n_parallel_sandboxes: 2,
        n_dead_kept: Some(1),
        sync_frequency: Duration::from_secs(60),
    }
}
