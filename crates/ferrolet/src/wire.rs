//! The only place where everything is put together.
//!
//! ```text
//!  file, http, API ─► merge ─► pods::run ◄─ observe (events, listings, health) ◄─ cri
//!                                │  ▲ probes, volumes
//!                              Board ─► server (10248, 10255), and with a cluster: report ─► API server
//! ```

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use ferrolet_cluster::certificates::CertificateFigures;
use ferrolet_config::{
    CgroupVersion, CommandLine, Loaded,
    config::{ChangeDetection, CpuManagerPolicy, MemoryManagerPolicy},
    flag_values,
};
use ferrolet_cri::{CriClient, Timeouts};
use ferrolet_host::{
    KernelRecords, QuickFarewell, SystemClock, SystemLogs,
    cgroups::{CgroupLayout, CgroupTree, CgroupTreeSettings},
    files::{CONTAINER_LINKS, NodeFiles, NodeFilesSettings},
    logs::NodeLogs,
    machine::{
        MachineFacts, read_boot_time, read_machine, selinux_is_enabled, thermal_throttle_paths,
    },
    mountinfo,
    names::NameFiles,
    notify::Notifier,
    paging,
    state_files::NodeState,
    usage::{UsageReader, UsageSettings},
    volumes::{NodeFlexDrivers, NodeVolumes},
};
use ferrolet_lifecycle::BackOffPolicy;
use ferrolet_observe::{LastListing, ListingHealth, watch_containers, watch_health, watch_kernel};
use ferrolet_plugins::{PodNews, Registry, Sockets};
use ferrolet_pods::{Board, Doors, Inputs, LoopHealth, NodeFacts, PullSettings, UserIds, World};
use ferrolet_ports::{CgroupDriver, Clock, Events, HealthCheck, PodsView, Runtime, Tally, Usage};
use ferrolet_probes::{HookRunner, probes};
use ferrolet_report::node::{Startup, host_ips as node_host_ips, node_object};
use ferrolet_resources::{
    AdmissionNode, Amounts, CgroupMode, CgroupPolicy, NodeResources, SwapBehavior, SwapPolicy,
    declared_features, parse_amounts,
};
use ferrolet_server::{
    About, Figures, Limits, Listener, MainDoors, PageDoors, Pages, RecentEvents, Server, Views,
    page_router, read_only_router, router,
};
use ferrolet_sources::{Merger, merge};
use ferrolet_spec::NodeDns;
use ferrolet_traces::{Exporter, TraceLayer, TraceSettings};
use ferrolet_types::pod::PodSource;
use ferrolet_volumes::{
    Attaching, HealthDoors, NamedUsage, SelinuxNode, VolumeEngine, VolumeFigures, follow_health,
};
use k8s_openapi::api::core::v1::Node;
use tokio::{
    sync::{OnceCell, mpsc, watch},
    task::JoinSet,
};

mod cert_store;
mod cluster;
mod join;
mod local;
mod main_server;
mod node_facts;
mod node_views;
mod offline;
mod once;
mod portrait;
mod pulls;
mod reclaim;
mod resolver;
mod serving;
mod sources;
mod statics;
mod watchdog;

use self::{
    cluster::Cluster, node_facts::NodeDescription, node_views::NodeViews, portrait::Portrait,
    statics::TranslatedPods,
};
use crate::{
    logging::Verbosity,
    say::{LogEvents, LogIsUnbuffered},
};

/// How long a runtime that is there is given to say which cgroup driver it uses.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// Upstream's capacity for changes on their way to the sync loop.
const CHANNEL: usize = 50;
const HINTS: usize = 1000;
/// How often drivers are asked for the health of volumes where usage is never measured.
const HEALTH_PERIOD: Duration = Duration::from_secs(60);
/// What only the start needed is given back to the kernel after this long.
const FIRST_TRIM: Duration = Duration::from_secs(5);
/// Memory that is not in use is given back to the kernel this often.
const TRIM_PERIOD: Duration = Duration::from_secs(60);

/// What notes traces and what sends them, where they are configured. Both are made before anything is logged.
pub fn traces(loaded: &Loaded) -> anyhow::Result<Option<(TraceLayer, Exporter)>> {
    let Some(tracing) = &loaded.config.tracing else {
        return Ok(None);
    };
    let node_name = match &loaded.flags.hostname_override {
        Some(name) => name.clone(),
        None => read_machine().context("read the machine's facts")?.hostname,
    };
    let settings = TraceSettings {
        endpoint: tracing.endpoint.clone(),
        per_million: tracing.sampling_rate_per_million,
        node_name: node_name.to_lowercase(),
    };
    let made = ferrolet_traces::traces(settings, Arc::new(SystemClock));
    Ok(Some(made.context("use tracing.endpoint")?))
}

/// Runs the agent until something it cannot do without fails, or until pods that run once have come up.
pub async fn run(
    command_line: &CommandLine,
    loaded: &Loaded,
    verbosity: Verbosity,
    exporter: Option<Exporter>,
) -> anyhow::Result<()> {
    let (config, flags) = (&loaded.config, &loaded.flags);
    let machine = read_machine().context("read the machine's facts")?;
    let layout = CgroupLayout::detect(&mountinfo::read().context("read mountinfo")?)?;
    check_host(loaded, &machine, &layout)?;
    let node_name = flags
        .hostname_override
        .clone()
        .unwrap_or_else(|| machine.hostname.clone())
        .to_lowercase();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let started = clock.now();

    let health_server = listen(
        config.server.healthz_port,
        config.server.healthz_bind_address,
    )
    .await?;
    let read_only = config
        .server
        .read_only_port
        .filter(|_| config.server.enabled);
    let read_only_server = listen(read_only, config.server.address).await?;
    let is_open = main_server::can_open(loaded, flags.kubeconfig.is_some());
    if config.server.enabled && !is_open {
        tracing::info!(
            "The main server stays closed: without a cluster nobody can be asked who may call it"
        );
    }
    let main_port = Some(config.server.port).filter(|_| config.server.enabled && is_open);
    let main_server = listen(main_port, config.server.address).await?;
    let page_server = match flags.page_address {
        Some(address) => Some(Server::bind(address).await?),
        None => None,
    };

    let cri = CriClient::connect_lazy(
        &endpoint(&config.runtime.endpoint.socket),
        &endpoint(&config.runtime.image_endpoint.socket),
        Timeouts {
            request: config.runtime.request_timeout,
        },
        clock.clone(),
    )?;
    let cri = Arc::new(cri);
    let settings = Arc::new(node_facts::settings(loaded, &node_name, &machine));
    let (cgroups, by_name) = tokio::join!(
        make_cgroups(loaded, cri.as_ref(), layout.clone()),
        node_facts::look_up(&settings),
    );
    let (cgroups, driver) = cgroups?;
    let files = NodeFiles::new(NodeFilesSettings {
        root: flags.root_dir.clone(),
        pod_logs: config.sources.pod_logs_dir.clone(),
        container_links: PathBuf::from(CONTAINER_LINKS),
    });
    files
        .prepare()
        .await
        .context("make the node's directories")?;

    let offline = offline::open(loaded).await;
    let cluster = match &flags.kubeconfig {
        Some(path) => Some(Cluster::new(
            path,
            loaded,
            &node_name,
            clock.clone(),
            offline,
        )?),
        None => None,
    };
    let first_facts =
        node_facts::first_facts(loaded, &machine, by_name.unwrap_or_default(), &*clock);
    // The node as it would register; with a cluster, the API's copy takes its place.
    let described = node_object(&settings, &first_facts, clock.now());
    let (admission_sender, admission) =
        watch::channel(Some(admission_node(loaded, &node_name, &described)));
    let allocatable = described
        .status
        .as_ref()
        .and_then(|it| it.allocatable.as_ref());
    let allocatable = parse_amounts(allocatable);
    let pod_news = Arc::new(PodNews::default());
    let cluster_sink = cluster.as_ref().map(|cluster| cluster.sink.clone());
    let sinks = cluster_sink.into_iter().chain([pod_news.clone() as _]);
    let board = Arc::new(Board::with_sinks(sinks.collect()));
    let runtime: Arc<dyn Runtime> = cri.clone();
    let events: Arc<dyn Events> = match &cluster {
        Some(cluster) => cluster.events.clone(),
        None => Arc::new(LogEvents),
    };
    let recent_events = Arc::new(RecentEvents::new(events, clock.clone()));
    let events: Arc<dyn Events> = recent_events.clone();
    let objects = cluster.as_ref().map(|cluster| cluster.pod_objects.clone());
    let probe_figures = Arc::new(Tally::default());
    let (probing, probe_loop, probe_reports) = probes(ferrolet_probes::Doors {
        figures: probe_figures.clone(),
        runtime: runtime.clone(),
        events: events.clone(),
        clock: clock.clone(),
        farewell: Arc::new(QuickFarewell),
    });
    let (volumes_ready_sender, volumes_ready) = mpsc::channel(CHANNEL);
    let (health_sender, volume_health) = mpsc::channel(CHANNEL);
    let plugins = Arc::new(Registry::default());
    let node_volumes = Arc::new(NodeVolumes::new(&flags.root_dir));
    let flex = NodeFlexDrivers::new(&config.volumes.plugin_dir, (*node_volumes).clone());
    let volumes = Arc::new(VolumeEngine::new(ferrolet_volumes::Doors {
        files: node_volumes.clone(),
        mounts: node_volumes,
        flex: Arc::new(flex),
        attaching: if cluster.is_some() && config.volumes.controller_attach_detach {
            Attaching::ByController
        } else {
            Attaching::Ourselves
        },
        objects: objects.clone(),
        storage: cluster.as_ref().map(Cluster::storage),
        drivers: plugins.clone(),
        node_name: node_name.clone(),
        clock: clock.clone(),
        events: events.clone(),
        allocatable: allocatable.clone(),
        meters_volumes: config
            .gates
            .enabled("LocalStorageCapacityIsolationFSQuotaMonitoring"),
        selinux: selinux(loaded),
        look_again: look_again(loaded),
        became_ready: Some(volumes_ready_sender),
    }));
    let (pull_settings, pull_doors) = pulls::wire(loaded)?;
    let usage: Arc<dyn Usage> = Arc::new(UsageReader::new(UsageSettings {
        root: config.cgroups.root.clone(),
        driver,
        layout: layout.clone(),
        systems: main_server::system_cgroups(loaded),
        root_dir: flags.root_dir.clone(),
        pod_logs: config.sources.pod_logs_dir.clone(),
        clock: clock.clone(),
    }));
    let shown = match config.volumes.stats_period {
        Some(_) => VolumeFigures::Shown,
        None => VolumeFigures::Hidden,
    };
    let usage: Arc<dyn Usage> = Arc::new(NamedUsage::new(usage, volumes.clone(), shown));
    let names = Arc::new(NameFiles::new(config.dns.resolv_conf.as_deref()));
    let doors = Doors {
        probing: Arc::new(probing),
        objects,
        lookups: cluster.as_ref().map(|cluster| cluster.lookups.clone()),
        hooks: Arc::new(HookRunner::new(
            runtime.clone(),
            events.clone(),
            Arc::new(QuickFarewell),
        )),
        runtime: cri.clone(),
        images: cri.clone(),
        pulls: Some(pull_doors),
        cgroups: Arc::new(cgroups),
        files: Arc::new(files),
        names: names.clone(),
        state_files: Arc::new(NodeState::new(&flags.root_dir)),
        usage: Some(usage.clone()),
        volumes: volumes.clone(),
        clock: clock.clone(),
        events,
        board: board.clone(),
        admission,
    };
    let spec = spec_facts(
        loaded,
        &machine,
        &layout,
        allocatable.clone(),
        pull_settings,
    )?;
    let world = Arc::new(World::new(doors, spec));
    resolver::check(loaded, names.as_ref(), world.events.as_ref()).await;
    world.describe(node_host_ips(&described), allocatable);

    let mut tasks: JoinSet<()> = JoinSet::new();
    if let Some(exporter) = exporter {
        tasks.spawn(exporter.run());
    }
    reclaim::start(
        loaded,
        &cri,
        board.clone(),
        world.events.clone(),
        clock.clone(),
        &mut tasks,
    );
    let eviction_figures = Arc::new(Tally::default());
    let evictions = reclaim::keep_limits(
        loaded,
        (board.clone(), usage.clone(), cri.clone()),
        eviction_figures.clone(),
        &mut tasks,
    );
    let (update_sender, updates) = mpsc::channel(CHANNEL);
    let (change_sender, changes) = mpsc::channel(CHANNEL);
    let (changes, once) = match flags.run_once_within {
        None => (changes, None),
        Some(within) => {
            let (onwards, noted) = mpsc::channel(CHANNEL);
            let (wanted_sender, wanted) = watch::channel(None);
            tasks.spawn(once::note_wanted(changes, onwards, wanted_sender));
            (noted, Some(once::await_all(wanted, board.clone(), within)))
        }
    };
    let (hint_sender, hints) = mpsc::channel(HINTS);
    let configured = match &cluster {
        None => sources::start(loaded, &node_name, update_sender.clone(), &mut tasks)?,
        Some(cluster) => {
            let (local, from_local) = mpsc::channel(CHANNEL);
            let mut configured = sources::start(loaded, &node_name, local, &mut tasks)?;
            cluster.statics.configure(&configured);
            tasks.spawn(
                cluster
                    .statics
                    .clone()
                    .pass_on(from_local, update_sender.clone()),
            );
            configured.push(PodSource::Api);
            configured
        }
    };
    if once.is_some() && configured.is_empty() {
        bail!(
            "--run-once-within: there are no pods to start without staticPodPath or staticPodURL"
        );
    }
    tasks.spawn(merge::run(
        Merger::new(configured),
        updates,
        change_sender,
        clock.clone(),
    ));

    let listing = Arc::new(ListingHealth::default());
    tasks.spawn(probe_loop.run());
    match KernelRecords::open() {
        Ok(log) => {
            tasks.spawn(watch_kernel(Box::new(log), world.events.clone()));
        }
        Err(error) => {
            tracing::info!(%error, "Nobody will be told when the machine runs out of memory");
        }
    }
    tasks.spawn(watch_containers(
        runtime.clone(),
        hint_sender,
        listing.clone(),
    ));
    let (runtime_health, mut runtime_feels) =
        watch::channel(ferrolet_observe::RuntimeHealth::default());
    tasks.spawn(watch_health(runtime.clone(), runtime_health));
    let portrait = Arc::new(Portrait {
        settings: settings.clone(),
        first: first_facts.clone(),
        health: runtime_feels.clone(),
        runtime: runtime.clone(),
        version: OnceCell::new(),
        clock: clock.clone(),
    });
    let reviews = cluster.as_ref().map(Cluster::reviews);
    let translations = cluster.as_ref().map(Cluster::translations);
    let serving_certificate = match main_server {
        Some(server) => {
            let signer = cluster.as_ref().map(Cluster::signer);
            let certificate = serving::start(loaded, &node_name, signer, &clock, &mut tasks)?;
            Some((server, certificate))
        }
        None => None,
    };
    if let Some(cluster) = cluster {
        let facts = node_facts::gather(
            &settings,
            first_facts,
            (runtime.clone(), cri.clone()),
            (runtime_feels.clone(), listing.clone()),
            volumes.volumes_in_use(),
            &clock,
            &mut tasks,
        );
        let description = NodeDescription {
            settings,
            facts,
            drivers: plugins.registered(),
            plugins: plugins.clone(),
            lease_duration: config.node.lease_duration,
            pod_cidr: config.node.pod_cidr.clone(),
            startup: Startup::new(read_boot_time(), started),
        };
        tasks.spawn(volumes.clone().refresh(cluster.objects.changes()));
        tasks.spawn(volumes.clone().follow_drivers(plugins.registered()));
        if config.gates.enabled("CSIVolumeHealth") {
            tasks.spawn(follow_health(HealthDoors {
                engine: volumes.clone(),
                registered: plugins.registered(),
                // Upstream asks even where usage is never measured.
                period: config.volumes.stats_period.unwrap_or(HEALTH_PERIOD),
                told: health_sender,
            }));
        }
        let (socket_sender, sockets) = watch::channel(Sockets::new());
        let registry = flags.root_dir.join("plugins_registry");
        tasks.spawn(ferrolet_host::sockets::follow(registry, socket_sender));
        let registry = plugins.clone();
        tasks.spawn(async move { registry.run(sockets).await });
        let views = NodeViews::new(admission_sender, world.clone());
        tasks.spawn(cluster.run(description, runtime, update_sender, views));
    }
    let (network_sender, network) = watch::channel(false);
    tasks.spawn(async move {
        while runtime_feels.changed().await.is_ok() {
            network_sender.send_replace(runtime_feels.borrow_and_update().is_network_ready());
        }
    });

    let pulse = Arc::new(LoopHealth::new(config.sources.sync_frequency));
    let checks: Arc<[Arc<dyn HealthCheck>]> = Arc::new([
        Arc::new(LogIsUnbuffered) as Arc<dyn HealthCheck>,
        pulse.clone(),
        listing.clone(),
    ]);
    local::start(loaded, board.clone(), pod_news, &mut tasks)?;
    let pods: Arc<dyn PodsView> = match translations {
        Some(translations) => Arc::new(TranslatedPods {
            board,
            translations,
        }),
        None => board,
    };
    let views = Views { pods, checks };
    let figures = Figures {
        node_name: node_name.clone(),
        began: clock.now(),
        usage,
        disk: cri.clone(),
        machine: Arc::new(main_server::about_machine(&machine)),
        clock: clock.clone(),
        sources: main_server::figure_sources(
            loaded,
            &layout,
            vec![
                probe_figures,
                eviction_figures,
                plugins,
                Arc::new(LastListing::new(listing, clock.clone())),
                Arc::new(CertificateFigures::new(clock.clone())),
            ],
        ),
    };
    if serving_certificate.is_some() || page_server.is_some() {
        let logs = Arc::new(NodeLogs::new(config.sources.pod_logs_dir.clone()));
        tasks.spawn(logs.watch_changes());
        let doors = Arc::new(MainDoors {
            views: views.clone(),
            runtime: cri.clone(),
            streams: cri.clone(),
            logs,
            clock: clock.clone(),
            configuration: loaded.raw.to_json().to_string(),
            about: About {
                started,
                version: ferrolet_config::KUBERNETES_VERSION
                    .trim_start_matches('v')
                    .to_owned(),
                flags: flag_values(command_line)
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
            },
            figures: Some(figures.clone()),
            page: Some(PageDoors::new(portrait, recent_events)),
            system_logs: Arc::new(SystemLogs::new("/var/log")),
            checkpoints: main_server::checkpoints(loaded, cri.clone()),
            debugging: main_server::debugging(loaded, verbosity),
            pages: Pages {
                has_flagz: config.gates.enabled("ComponentFlagz"),
                has_statusz: config.gates.enabled("ComponentStatusz"),
                has_cbor: config.gates.enabled("CBORServingAndStorage"),
            },
            has_debugging_handlers: config.server.debugging_handlers,
            has_system_logs: config.server.system_log_handler,
            allocated: main_server::allocated(loaded, &world),
            has_system_log_query: config.server.system_log_query,
            has_split_log_streams: config.gates.enabled("PodLogsQuerySplitStreams"),
            has_web_sockets: config.gates.enabled("ExtendWebSocketsToKubelet"),
            stream_idle_timeout: config.server.streaming_idle_timeout,
        });
        if let Some(server) = page_server {
            tracing::info!(address = %server.address(), "The node's page is served");
            let page = page_router(doors.clone());
            tasks.spawn(server.serve(page, Limits::LOCAL, std::future::pending()));
        }
        if let Some((server, certificate)) = serving_certificate {
            main_server::start(
                loaded,
                &node_name,
                server,
                certificate,
                reviews,
                doors,
                &mut tasks,
            )?;
        }
    }
    for (server, listener) in [
        (health_server, Listener::Health),
        (read_only_server, Listener::ReadOnly),
    ] {
        if let Some(server) = server {
            tracing::info!(address = %server.address(), ?listener, "Listening");
            let rows = match listener {
                Listener::ReadOnly => read_only_router(views.clone(), figures.clone()),
                Listener::Health | Listener::Main => router(listener, views.clone()),
            };
            tasks.spawn(server.serve(rows, Limits::LOCAL, std::future::pending()));
        }
    }
    tasks.spawn(async {
        tokio::time::sleep(FIRST_TRIM).await;
        loop {
            ferrolet_host::process::trim_memory();
            tokio::time::sleep(TRIM_PERIOD).await;
        }
    });
    let notifier = Notifier::new(std::env::var_os("NOTIFY_SOCKET"));
    let said = |name: &str| std::env::var(name).ok();
    let (interval, pid) = (said("WATCHDOG_USEC"), said("WATCHDOG_PID"));
    let pace = watchdog::pace(interval.as_deref(), pid.as_deref(), std::process::id());
    if let Some(pace) = pace {
        tasks.spawn(watchdog::run(notifier.clone(), pace, pulse.clone()));
    }
    tasks.spawn(ferrolet_pods::run(
        world,
        Inputs {
            changes,
            hints,
            probes: probe_reports,
            volumes_ready,
            volume_health,
            evictions,
            network,
        },
        pulse,
    ));
    if let Err(error) = notifier.ready() {
        tracing::warn!(%error, "The service manager cannot be told that the agent is ready");
    }

    // Only an agent that runs pods once has anything to wait for besides its end.
    let all_up = async {
        match once {
            Some(all_up) => all_up.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = all_up => ended,
        // Every task here lives as long as the agent: one that ends is a fault.
        ended = tasks.join_next() => match ended {
            Some(Err(error)) => bail!("a part of the agent failed: {error}"),
            _ => bail!("a part of the agent ended"),
        },
    }
}

fn check_host(
    loaded: &Loaded,
    machine: &MachineFacts,
    layout: &CgroupLayout,
) -> anyhow::Result<()> {
    let version = match layout {
        CgroupLayout::V1 { .. } => CgroupVersion::V1,
        CgroupLayout::V2 { .. } => CgroupVersion::V2,
    };
    loaded.config.check_host(version).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", lines.join("; "))
    })?;
    if machine.swap_is_on && loaded.config.kernel.refuse_swap {
        bail!("running with swap on is not supported: turn swap off, or set failSwapOn to false");
    }
    Ok(())
}

async fn listen(port: Option<u16>, address: std::net::IpAddr) -> anyhow::Result<Option<Server>> {
    match port {
        Some(port) => Ok(Some(Server::bind(SocketAddr::new(address, port)).await?)),
        None => Ok(None),
    }
}

fn endpoint(socket: &std::path::Path) -> String {
    format!("unix://{}", socket.display())
}

/// The runtime knows best which driver is in use; one that is not there yet is taken to use the configured one.
async fn make_cgroups(
    loaded: &Loaded,
    runtime: &CriClient,
    layout: CgroupLayout,
) -> anyhow::Result<(CgroupTree, CgroupDriver)> {
    let cgroups = &loaded.config.cgroups;
    let told = tokio::time::timeout(FIRST_ANSWER, runtime.status()).await;
    let told = told
        .ok()
        .and_then(Result::ok)
        .and_then(|status| status.cgroup_driver);
    let driver = told.unwrap_or(match cgroups.driver {
        ferrolet_config::config::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        ferrolet_config::config::CgroupDriver::Systemd => CgroupDriver::Systemd,
    });
    let tree = CgroupTree::new(CgroupTreeSettings {
        root: cgroups.root.clone(),
        per_qos: cgroups.per_qos,
        driver,
        layout,
    })?;
    tree.ensure_node(ferrolet_resources::CgroupLimits::default())
        .await
        .context("make the node's cgroups")?;
    Ok((tree, driver))
}

fn spec_facts(
    loaded: &Loaded,
    machine: &MachineFacts,
    layout: &CgroupLayout,
    allocatable: Amounts,
    pulls: PullSettings,
) -> anyhow::Result<NodeFacts> {
    let (config, flags) = (&loaded.config, &loaded.flags);
    let mode = match layout {
        CgroupLayout::V1 { .. } => CgroupMode::V1,
        CgroupLayout::V2 { .. } => CgroupMode::V2,
    };
    let host_ips: Vec<String> = match flags.node_ips.as_slice() {
        [] => ferrolet_host::addresses::read_addresses()
            .default_v4
            .iter()
            .map(ToString::to_string)
            .collect(),
        given => given.iter().map(ToString::to_string).collect(),
    };
    let cluster_dns: Vec<String> = config
        .dns
        .cluster_servers
        .iter()
        .map(ToString::to_string)
        .collect();
    let period = config.cgroups.cpu_quota_period;
    let cluster_domain = config.dns.cluster_domain.clone().unwrap_or_default();
    Ok(NodeFacts {
        dns: NodeDns {
            cluster_dns,
            cluster_domain: cluster_domain.clone(),
            resolv_conf: None,
            node_ips: host_ips.clone(),
        },
        cluster_domain,
        back_off: BackOffPolicy {
            crash_initial: config.runtime.first_restart_back_off,
            ..BackOffPolicy::upstream(config.runtime.max_restart_back_off)
        },
        pulls,
        user_ids: user_ids(loaded)?,
        has_static_cpus: config.resources.cpu_policy == CpuManagerPolicy::Static,
        has_static_memory: config.resources.memory_policy == MemoryManagerPolicy::Static,
        // Two per processor keep every processor busy; more only make the median pod wait for the last one.
        n_parallel_sandboxes: usize::try_from(machine.n_cpus)? * 2,
        n_dead_kept: flags
            .maximum_dead_containers_per_container
            .map(usize::try_from)
            .transpose()?,
        spec: ferrolet_spec::NodeFacts {
            resources: NodeResources {
                cgroup_mode: mode,
                cgroups: CgroupPolicy {
                    cpu_cfs_quota: period.is_some(),
                    cfs_period_micros: period
                        .map_or(Ok(100_000), |period| u32::try_from(period.as_micros()))?,
                    pids_limit: config
                        .cgroups
                        .pod_pids_limit
                        .map(|n| i64::try_from(n.get()))
                        .transpose()?,
                },
                memory_capacity: i64::try_from(machine.memory_bytes)?,
                swap: SwapPolicy {
                    is_controlled: paging::swap_is_controlled(layout),
                    behavior: match config.cgroups.swap {
                        ferrolet_config::config::SwapBehavior::Unset
                        | ferrolet_config::config::SwapBehavior::NoSwap => SwapBehavior::NoSwap,
                        ferrolet_config::config::SwapBehavior::LimitedSwap => {
                            SwapBehavior::LimitedSwap
                        }
                    },
                    capacity: i64::try_from(machine.swap_bytes)?,
                },
                huge_page_sizes: paging::huge_page_sizes(),
                single_process_oom_kill: config
                    .cgroups
                    .single_process_oom_kill
                    .unwrap_or(mode == CgroupMode::V1),
                memory_qos: None,
            },
            allocatable,
            host_ips,
            seccomp_root: flags.root_dir.join("seccomp"),
            is_seccomp_default: config.runtime.seccomp_default,
            is_selinux_enabled: selinux_is_enabled(),
            extra_masked_paths: thermal_throttle_paths(),
            has_stop_signals: config.gates.enabled("ContainerStopSignals"),
        },
    })
}

/// The ids that pods with users of their own get.
fn user_ids(loaded: &Loaded) -> anyhow::Result<UserIds> {
    let config = &loaded.config;
    let per_pod = config.cgroups.user_namespace_ids_per_pod;
    let ids = match ferrolet_host::subids::read_sub_ids().context("kubelet mappings")? {
        Some((first, n_ids)) => UserIds {
            first,
            n_ids,
            per_pod,
        },
        None => UserIds::all(per_pod),
    };
    Ok(ids.check(config.node.max_pods)?)
}

/// What SELinux calls things on this node.
fn selinux(loaded: &Loaded) -> Option<SelinuxNode> {
    Some(SelinuxNode {
        file_label: ferrolet_host::selinux::container_file_label()?,
        is_for_all_modes: loaded.config.gates.enabled("SELinuxMount"),
    })
}

/// How often objects are looked at when their changes are not announced.
fn look_again(loaded: &Loaded) -> Option<Duration> {
    match loaded.config.volumes.change_detection {
        ChangeDetection::Watch => None,
        ChangeDetection::Cache | ChangeDetection::Get => Some(loaded.config.sources.sync_frequency),
    }
}

/// The node as admission sees it before the cluster has described it.
fn admission_node(loaded: &Loaded, name: &str, described: &Node) -> AdmissionNode {
    let config = &loaded.config;
    let mut node = AdmissionNode {
        name: name.to_owned(),
        labels: Default::default(),
        taints: Vec::new(),
        allocatable: Amounts::new(),
        has_supplemental_groups_policy: false,
        has_apparmor: ferrolet_host::machine::has_apparmor(),
        allowed_unsafe_sysctls: config.kernel.allowed_unsafe_sysctls.clone(),
        declared_features: declared_features(|gate| config.gates.enabled(gate)),
    };
    node_views::apply(described, &mut node);
    // Nobody has asked the runtime yet, and on a node on its own nobody will.
    node.has_supplemental_groups_policy = true;
    node
}
