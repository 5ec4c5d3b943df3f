//! The agent under test: what the executable starts, on a bench of fakes and without servers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_agent::{NodeSlice, Settings, Views, assemble};
use ferrolet_claims_engine::ClaimRules;
use ferrolet_lifecycle::BackOffPolicy;
use ferrolet_node::{Machine, MachineTopology, NodeFacts, NodeSettings, NodeState};
use ferrolet_placement::{
    Placement,
    topology::{TopologyPolicy, TopologyRules, TopologyScope},
};
use ferrolet_pods::{PodSettings, PullLimits, PullSettings, UserIds};
use ferrolet_ports::StatusSink;
use ferrolet_reclaim::{containers, images, logs};
use ferrolet_report::node::{ReportSettings, Startup};
use ferrolet_sources::FileSettings;
use ferrolet_spec::{NodeDns, SpecSettings};
use ferrolet_testkit::World;
use ferrolet_types::Eviction;
use ferrolet_volumes::{ProjectionGates, VolumeStats};
use tokio::{sync::watch, task::JoinSet};

use crate::bench::{Bench, Lifeline, MANIFESTS, NODE};

/// A running agent; dropping it is a `kill -9`.
pub(crate) struct Agent {
    views: Views,
    tasks: JoinSet<String>,
    _lifeline: Lifeline,
}

impl Agent {
    pub(crate) async fn start(bench: &Bench, sink: Arc<dyn StatusSink>) -> Self {
        let (platform, lifeline) = bench.platform(sink);
        let agent = assemble(settings(&bench.world), platform).await;
        let agent = agent.expect("no source is a URL that could be wrong");
        let views = agent.views.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async { format!("{:?}", agent.run().await) });
        Self { views, tasks, _lifeline: lifeline }
    }

    /// The node cannot afford a pod any longer.
    pub(crate) async fn evict(&self, eviction: Eviction) {
        let sent = self.views.evictions.send(eviction).await;
        sent.expect("the dispatcher runs as long as the agent");
    }

    /// Why it ended by itself, which it never should.
    pub(crate) fn end(&mut self) -> Option<String> {
        let ended = self.tasks.try_join_next()?;
        Some(ended.unwrap_or_else(|error| error.to_string()))
    }
}

/// A node with room for every pod, whose runtime nobody has asked yet.
fn unasked(world: &World) -> NodeState {
    let example = NodeFacts::example();
    let machine = example.machine.expect("the example has a machine");
    let machine = Machine { n_cpus: 1024, memory_bytes: 1 << 40, ..machine };
    let settings = NodeSettings {
        name: NODE.to_owned(),
        hostname: NODE.to_owned(),
        ..NodeSettings::example()
    };
    let facts = NodeFacts::at_start(machine, example.addresses, world.now());
    NodeState::at_start(Arc::new(settings), facts, world.now())
}

/// Upstream's defaults, as far as they matter to a node without hardware of its own.
// tidy: a table, one value for each setting
fn settings(world: &World) -> Settings {
    let state = unasked(world);
    let anything = images::Policy {
        minimum_age: Duration::from_secs(120),
        maximum_age: None,
        high_percent: 85,
        low_percent: 80,
    };
    Settings {
        sources: ferrolet_sources::Settings {
            node_name: NODE.to_owned(),
            file: Some(FileSettings { path: MANIFESTS.into(), period: Duration::from_secs(20) }),
            http: None,
            has_api: true,
            ignored: Vec::new(),
        },
        pods: ferrolet_pods::Settings { making: making(), resolv_conf: None, once_within: None },
        devices: ferrolet_devices_engine::Settings { shows_health: true },
        claims: ferrolet_claims_engine::Settings {
            rules: ClaimRules { groups: false, skipping: false },
            shows_health: true,
            shows_messages: true,
        },
        placement: ferrolet_placement_engine::Settings {
            placement: Placement::new(topology(), None, None),
            reconcile_period: Duration::from_secs(10),
            has_free_quota: true,
        },
        volumes: ferrolet_volumes::Settings {
            node_name: NODE.to_owned(),
            allocatable: state.allocatable.clone(),
            meters_volumes: false,
            projections: ProjectionGates { trust_bundles: true, pod_certificates: true },
            selinux: None,
            look_again: None,
            shown: VolumeStats::Shown,
            health_period: None,
        },
        rare_volumes: ferrolet_rare_volumes::Settings {
            attaching: ferrolet_rare_volumes::Attaching::ByController,
            node_name: NODE.to_owned(),
        },
        reclaim: ferrolet_reclaim::Settings {
            images: watch::channel(anything).1,
            logs: watch::channel(Some(logs::Policy {
                max_size: 10 << 20,
                max_files: 5,
                max_workers: 1,
                interval: Duration::from_secs(10),
            }))
            .1,
            containers: containers::Policy {
                minimum_age: Duration::ZERO,
                per_container: Some(1),
                in_all: None,
            },
            keeps_storage_limits: true,
        },
        shutdown: ferrolet_shutdown::Settings { groups: Vec::new(), keeps_record: false },
        eviction: ferrolet_eviction_engine::Settings {
            policy: watch::channel(ferrolet_eviction_engine::Policy {
                thresholds: Vec::new(),
                transition: Duration::from_secs(300),
                max_pod_grace: None,
            })
            .1,
            is_pods_enforced: true,
            huge_page_bytes: 0,
        },
        keeps_chains: true,
        node: NodeSlice {
            state,
            allocatable: None,
            report: ReportSettings {
                must_register: true,
                gets_existing_only: false,
                update_frequency: Duration::from_secs(10),
                report_frequency: Duration::from_secs(300),
            },
            pod_cidr: None,
            startup: Startup::new(None, world.now()),
        },
    }
}

fn topology() -> TopologyRules {
    let (policy, scope) = (TopologyPolicy::None, TopologyScope::Container);
    let rules = TopologyRules::new(policy, scope, &BTreeMap::new(), &MachineTopology::default());
    rules.expect("no options, so none that is wrong")
}

fn making() -> PodSettings {
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
