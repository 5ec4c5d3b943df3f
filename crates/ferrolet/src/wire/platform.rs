//! The real world: every port of the agent on this machine's adapters.

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use ferrolet_agent::{ClaimDoors, ClusterDoors, DeviceDoors, Platform, PluginDoors, RuntimeDoors};
use ferrolet_bus::{Logind, Systemd};
use ferrolet_cluster::{
    api::Pace,
    certificates::CertificateMetrics,
    client::Rate,
    joining::JoinSettings,
    node_cluster::{self, ClusterSettings, NodeCluster},
    objects::Strategy,
};
use ferrolet_config::{Loaded, config::ChangeDetection};
use ferrolet_cri::CriClient;
use ferrolet_host::{
    Iptables, KernelMemoryAlarm, KernelRecords, NodeOutbound, OperatorFiles, Termination,
    ThisMachine,
    certificates::CertDirectory,
    cgroups::{CgroupTree, CgroupTreeSettings},
    daemons::{Daemons, SystemCgroup},
    files::{CONTAINER_LINKS, NodeFiles, NodeFilesSettings},
    log_store::{NodeDisks, NodeLogStore},
    manifests::ManifestDisk,
    names::NameFiles,
    offline::OfflineCopies,
    sockets,
    state_files::NodeState,
};
use ferrolet_linux::{SystemClock, cgroups::CgroupLayout};
use ferrolet_mounts::{NodeFlexDrivers, NodeVolumes};
use ferrolet_node::NodeSettings;
use ferrolet_node_engine::look_up;
use ferrolet_plugins::{DeviceRegistry, DriverRegistry, PodNews, Registry, Sockets, Takers};
use ferrolet_ports::{
    CgroupDriver, Clock, Events, KernelLog, OfflineStore, Part, Power, Runtime as _, StatusSink,
};
use ferrolet_resources::ClassBounds;
use ferrolet_server::RecentEvents;
use ferrolet_types::Timestamp;
use ferrolet_usage::{UsageReader, UsageSettings};
use tokio::sync::watch;

use super::{
    Machine, Visit, embedded,
    local::DEVICE_PLUGINS,
    machine::{Description, LiveMachine},
    node_facts, pod_facts, process, pulls,
};
use crate::say::LogEvents;

/// How long a runtime that is there is given to say which cgroup driver it uses.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// How old a cached object may be before the node's own annotation says otherwise.
const CACHE_AGE: Duration = Duration::from_secs(60);

/// The adapters that servers talk to beside the agent.
pub(super) struct Adapters {
    pub(super) clock: Arc<dyn Clock>,
    /// When the agent began.
    pub(super) started: Timestamp,
    pub(super) cri: Arc<CriClient>,
    pub(super) cluster: Option<Arc<NodeCluster>>,
    pub(super) recent_events: Arc<RecentEvents>,
    pub(super) pod_news: Arc<PodNews>,
    pub(super) devices: Arc<DeviceRegistry>,
    /// How the node presents itself.
    pub(super) node_settings: Arc<NodeSettings>,
    /// The addresses that the name service has for the node's name.
    pub(super) by_name: Vec<IpAddr>,
}

/// Opens every door. Only the node's own directories and cgroups are made; nothing runs yet.
// tidy: a table, one door after another
pub(super) async fn open(
    loaded: &Loaded,
    machine: &Machine,
    (termination, visit): (Option<&Termination>, Option<&Visit>),
) -> anyhow::Result<(Adapters, Platform)> {
    let (config, flags) = (&loaded.config, &loaded.flags);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let started = clock.now();
    let (cri, embedded) = embedded::client(loaded, &clock).await?;
    let cri = Arc::new(cri);
    let node_settings = Arc::new(node_facts::settings(loaded, &machine.node_name));
    // Each may take a moment; the start waits for the longer one.
    let (cgroups, by_name) = tokio::join!(
        make_cgroups(loaded, &cri, machine.layout.clone()),
        look_up(&node_settings, &ThisMachine),
    );
    let ((cgroups, driver), by_name) = (cgroups?, by_name.unwrap_or_default());
    let container_links = match visit {
        None => PathBuf::from(CONTAINER_LINKS),
        Some(_) => flags.root_dir.join("container-links"),
    };
    let files = NodeFiles::new(NodeFilesSettings {
        root: flags.root_dir.clone(),
        pod_logs: config.sources.pod_logs_dir.clone(),
        container_links: container_links.clone(),
    });
    files.prepare().await.context("make the node's directories")?;
    let mut parts = vec![runtime_part()];
    parts.extend(embedded);
    let cluster = join(loaded, machine, &clock, &mut parts)?;
    let events: Arc<dyn Events> = match (&cluster, visit) {
        (Some(cluster), _) => cluster.events(),
        (None, Some(visit)) => visit.events.clone(),
        (None, None) => Arc::new(LogEvents),
    };
    let recent_events = Arc::new(RecentEvents::new(events, clock.clone()));
    let pod_news = Arc::new(PodNews::default());
    let mut sinks: Vec<Arc<dyn StatusSink>> = vec![pod_news.clone()];
    sinks.extend(visit.map(|visit| visit.sink.clone()));
    let (plugins, devices) = plugins(loaded, &mut parts)?;
    let volumes = Arc::new(NodeVolumes::new(&flags.root_dir));
    let (daemons, systems) = Daemons::new(process::daemons(loaded, machine));
    if visit.is_none() {
        parts.push(Part::new("daemons").with_loop(daemons.keep()));
    }
    let usage = usage(loaded, machine, driver, (&clock, systems));
    let platform = Platform {
        clock: clock.clone(),
        events: recent_events.clone(),
        runtime: RuntimeDoors {
            runtime: cri.clone(),
            images: cri.clone(),
            image_place: cri.clone(),
            reopen: cri.clone(),
            disk: cri.clone(),
        },
        node_cgroups: Arc::new(cgroups.clone()),
        cgroups: Arc::new(cgroups),
        files: Arc::new(files),
        names: Arc::new(NameFiles::new(config.dns.resolv_conf.as_deref())),
        machine: Arc::new(LiveMachine::new(Description::of(loaded))),
        network: Arc::new(ThisMachine),
        state_files: Arc::new(NodeState::new(&flags.root_dir)),
        manifests: Arc::new(ManifestDisk),
        pulls: pulls::doors(loaded),
        usage: usage.clone(),
        means: usage,
        memory_alarm: Arc::new(KernelMemoryAlarm::new(
            &machine.layout,
            &config.cgroups.root,
            driver,
        )),
        logs: Arc::new(NodeLogStore::new(config.sources.pod_logs_dir.clone(), container_links)),
        disks: Arc::new(NodeDisks),
        flex: Arc::new(NodeFlexDrivers::new(&config.volumes.plugin_dir, (*volumes).clone())),
        volume_files: volumes.clone(),
        mounts: volumes,
        plugins,
        outbound: Arc::new(NodeOutbound),
        power: power(termination),
        packet_filter: Arc::new(Iptables::of_node()),
        kernel_log: kernel_log(),
        cluster: cluster_doors(loaded, cluster.as_ref()).await,
        sinks,
        parts,
    };
    let adapters = Adapters {
        clock,
        started,
        cri,
        cluster,
        recent_events,
        pod_news,
        devices,
        node_settings,
        by_name,
    };
    Ok((adapters, platform))
}

/// Who says that the machine goes down: logind, unless the process's own end does.
fn power(termination: Option<&Termination>) -> Arc<dyn Power> {
    match termination {
        Some(termination) => Arc::new(termination.clone()),
        None => Arc::new(Logind::of_machine()),
    }
}

fn runtime_part() -> Part {
    Part::new("runtime")
}

/// The runtime knows best which driver is in use; one that is not there yet is taken to use the
/// configured one.
async fn make_cgroups(
    loaded: &Loaded,
    runtime: &CriClient,
    layout: CgroupLayout,
) -> anyhow::Result<(CgroupTree, CgroupDriver)> {
    let cgroups = &loaded.config.cgroups;
    let told = tokio::time::timeout(FIRST_ANSWER, runtime.status()).await;
    let told = told.ok().and_then(Result::ok).and_then(|status| status.cgroup_driver);
    let driver = told.unwrap_or(match cgroups.driver {
        ferrolet_config::config::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        ferrolet_config::config::CgroupDriver::Systemd => CgroupDriver::Systemd,
    });
    let classes =
        ClassBounds::at_start(pod_facts::cgroup_mode(&layout), pod_facts::has_reservations(loaded));
    let tree = CgroupTree::new(CgroupTreeSettings {
        root: cgroups.root.clone(),
        per_qos: cgroups.per_qos,
        driver,
        layout,
        slices: Some(Arc::new(Systemd::of_machine())),
    })?;
    tree.ensure_node(classes).await.context("make the node's cgroups")?;
    Ok((tree, driver))
}

fn usage(
    loaded: &Loaded,
    machine: &Machine,
    driver: CgroupDriver,
    (clock, systems): (&Arc<dyn Clock>, watch::Receiver<Vec<SystemCgroup>>),
) -> Arc<UsageReader> {
    Arc::new(UsageReader::new(UsageSettings {
        root: loaded.config.cgroups.root.clone(),
        driver,
        layout: machine.layout.clone(),
        systems,
        root_dir: loaded.flags.root_dir.clone(),
        pod_logs: loaded.config.sources.pod_logs_dir.clone(),
        clock: clock.clone(),
    }))
}

/// What the kernel says, where it may be read.
fn kernel_log() -> Option<Box<dyn KernelLog>> {
    match KernelRecords::open() {
        Ok(log) => Some(Box::new(log)),
        Err(error) => {
            tracing::info!(%error, "Nobody will be told when the machine runs out of memory");
            None
        }
    }
}

/// Plugins that introduce themselves: drivers of volumes and of dynamic resources, and whoever
/// offers devices.
fn plugins(
    loaded: &Loaded,
    parts: &mut Vec<Part>,
) -> anyhow::Result<(PluginDoors, Arc<DeviceRegistry>)> {
    let root = &loaded.flags.root_dir;
    let device_directory = root.join(DEVICE_PLUGINS);
    sockets::make_directory(&device_directory)
        .with_context(|| format!("make {}", device_directory.display()))?;
    let (devices, watching, news) = DeviceRegistry::new(device_directory.clone());
    let asks_health = loaded.config.gates.enabled("ResourceHealthStatus");
    let (drivers, following, driver_news) = DriverRegistry::new(asks_health);
    let takers = Takers { devices: Some(devices.clone()), claims: Some(drivers.clone()) };
    let registry = Arc::new(Registry::with_takers(takers));
    let mut part = Part::new("plugins")
        .with_check(devices.clone())
        .with_loop(watching.run(devices.clone()))
        .with_loop(following.run());
    part.metrics.push(registry.clone());
    let (socket_sender, found) = watch::channel(Sockets::new());
    part.add_loop(sockets::follow(root.join("plugins_registry"), socket_sender));
    let registering = registry.clone();
    part.add_loop(async move { registering.run(found).await });
    parts.push(part);
    let device_doors = DeviceDoors {
        plugins: devices.clone(),
        news: Some(news),
        files: Arc::new(NodeState::new(&device_directory)),
    };
    let registered = registry.registered();
    let claims = ClaimDoors { drivers, news: Some(driver_news) };
    Ok((PluginDoors { registered, csi: registry, devices: device_doors, claims }, devices))
}

/// The node's place in its cluster, if it has one.
fn join(
    loaded: &Loaded,
    machine: &Machine,
    clock: &Arc<dyn Clock>,
    parts: &mut Vec<Part>,
) -> anyhow::Result<Option<Arc<NodeCluster>>> {
    let (config, flags) = (&loaded.config, &loaded.flags);
    let Some(kubeconfig) = &flags.kubeconfig else {
        // A node on its own counts what it asks of a cluster too: nothing.
        let part = Part::new("cluster").with_metrics(CertificateMetrics::new(clock.clone()));
        parts.push(part);
        return Ok(None);
    };
    let settings = ClusterSettings {
        node_name: machine.node_name.clone(),
        joining: JoinSettings {
            kubeconfig: kubeconfig.clone(),
            bootstrap_kubeconfig: flags.bootstrap_kubeconfig.clone(),
            rotates: config.tls.rotate_client_certificate,
        },
        pace: pace(loaded),
        strategy: match config.volumes.change_detection {
            ChangeDetection::Watch => Strategy::Watch,
            ChangeDetection::Cache => Strategy::Cache(CACHE_AGE),
            ChangeDetection::Get => Strategy::Get,
        },
        lease_duration: config.node.lease_duration,
    };
    let doors = node_cluster::ClusterDoors {
        files: Arc::new(OperatorFiles),
        certificates: Arc::new(certificates(loaded)?),
        clock: clock.clone(),
    };
    let (cluster, part) = NodeCluster::build(settings, doors)?;
    parts.push(part);
    Ok(Some(cluster))
}

/// The certificate directory.
pub(super) fn certificates(loaded: &Loaded) -> anyhow::Result<CertDirectory> {
    let directory = &loaded.flags.cert_dir;
    CertDirectory::at(directory)
        .with_context(|| format!("resolve --cert-dir {}", directory.display()))
}

fn pace(loaded: &Loaded) -> Pace {
    let config = &loaded.config;
    let limited =
        |per_second: u32, burst: u32| Rate::Limited { per_second: f64::from(per_second), burst };
    Pace {
        work: if config.api.per_second == 0 {
            Rate::Unlimited
        } else {
            limited(config.api.per_second, config.api.burst)
        },
        events: event_rate(loaded),
        heartbeat_timeout: config.node.status_update_frequency.min(config.node.lease_duration),
    }
}

/// How fast events are sent.
pub(super) fn event_rate(loaded: &Loaded) -> Rate {
    let events = &loaded.config.events;
    events.per_second.map_or(Rate::Unlimited, |rate| Rate::Limited {
        per_second: f64::from(rate),
        burst: events.burst,
    })
}

async fn cluster_doors(
    loaded: &Loaded,
    cluster: Option<&Arc<NodeCluster>>,
) -> Option<ClusterDoors> {
    let copies = copies(loaded).await;
    let cluster = cluster?;
    Some(ClusterDoors {
        api: cluster.api(),
        objects: cluster.objects(),
        lookups: cluster.lookups(),
        storage: cluster.storage(),
        claims: cluster.claims(),
        feeds: cluster.clone(),
        joined: cluster.joined(),
        copies,
    })
}

/// Copies for `--offline-start`. Without the flag none stays behind: they hold secrets.
async fn copies(loaded: &Loaded) -> Option<Arc<dyn OfflineStore>> {
    let flags = &loaded.flags;
    let copies = OfflineCopies::new(&flags.root_dir);
    if flags.offline_start && flags.kubeconfig.is_some() {
        return Some(Arc::new(copies));
    }
    if let Err(error) = copies.discard().await {
        tracing::warn!(%error, "Copies of pods from an earlier --offline-start are still on disk");
    }
    None
}
