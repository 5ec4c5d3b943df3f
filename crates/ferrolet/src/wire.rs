//! The only place where everything is put together.
//!
//! ```text
//!  file, http, API ─► merge ─► pods::run ◄─ observe (events, listings, health) ◄─ cri
//!                                │  ▲ probes, volumes
//!                              Board ─► server (10248, 10255), and with a cluster: report ─► API server
//! ```

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use ferrolet_cluster::certificates::CertificateFigures;
use ferrolet_config::{CgroupVersion, CommandLine, Loaded};
use ferrolet_cri::{CriClient, Timeouts};
use ferrolet_host::{
    KernelRecords, QuickFarewell, SystemClock,
    cgroups::{CgroupLayout, CgroupTree, CgroupTreeSettings},
    files::{CONTAINER_LINKS, NodeFiles, NodeFilesSettings},
    machine::{MachineFacts, read_boot_time, read_machine},
    mountinfo,
    names::NameFiles,
    notify::Notifier,
    state_files::NodeState,
    usage::{UsageReader, UsageSettings},
};
use ferrolet_observe::{LastListing, ListingHealth, watch_containers, watch_health, watch_kernel};
use ferrolet_plugins::PodNews;
use ferrolet_pods::{Board, Doors, Inputs, LoopHealth, World};
use ferrolet_ports::{CgroupDriver, Clock, Events, HealthCheck, PodsView, Runtime, Tally, Usage};
use ferrolet_probes::{HookRunner, probes};
use ferrolet_report::node::{Startup, host_ips as node_host_ips, node_object};
use ferrolet_resources::{ClassBounds, parse_amounts};
use ferrolet_server::{Figures, Limits, PageDoors, RecentEvents, Requests, Views, page_router};
use ferrolet_sources::{Merger, merge};
use ferrolet_traces::{Exporter, TraceLayer, TraceSettings};
use ferrolet_types::pod::PodSource;
use ferrolet_volumes::NamedUsage;
use tokio::{
    sync::{OnceCell, mpsc, watch},
    task::JoinSet,
};

mod cert_store;
mod chains;
mod cluster;
mod join;
mod listeners;
mod local;
mod main_server;
mod node_facts;
mod node_views;
mod offline;
mod once;
mod pod_facts;
mod portrait;
mod pulls;
mod reclaim;
mod resolver;
mod serving;
mod sources;
mod statics;
mod storage;
mod watchdog;

use self::{
    cluster::Cluster, listeners::Listeners, node_facts::NodeDescription, node_views::NodeViews,
    portrait::Portrait, statics::TranslatedPods, storage::Storage,
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
    let node_name =
        flags.hostname_override.clone().unwrap_or_else(|| machine.hostname.clone()).to_lowercase();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let started = clock.now();

    let mut listeners = Listeners::bind(loaded).await?;
    let cri = CriClient::connect_lazy(
        &endpoint(&config.runtime.endpoint.socket),
        &endpoint(&config.runtime.image_endpoint.socket),
        Timeouts { request: config.runtime.request_timeout },
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
    files.prepare().await.context("make the node's directories")?;

    let offline = offline::open(loaded).await;
    let cluster = match &flags.kubeconfig {
        Some(path) => Some(Cluster::new(path, loaded, &node_name, clock.clone(), offline)?),
        None => None,
    };
    let first_facts =
        node_facts::first_facts(loaded, &machine, by_name.unwrap_or_default(), &*clock);
    // The node as it would register; with a cluster, the API's copy takes its place.
    let described = node_object(&settings, &first_facts, clock.now());
    let (admission_sender, admission) =
        watch::channel(Some(pod_facts::admission_node(loaded, &node_name, &described)));
    let allocatable = described.status.as_ref().and_then(|it| it.allocatable.as_ref());
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
    let storage = Storage::new(
        loaded,
        &node_name,
        cluster.as_ref(),
        allocatable.clone(),
        (clock.clone(), events.clone()),
    );
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
    let shown = storage::figures(loaded);
    let usage: Arc<dyn Usage> = Arc::new(NamedUsage::new(usage, storage.engine.clone(), shown));
    let names = Arc::new(NameFiles::new(config.dns.resolv_conf.as_deref()));
    let doors = Doors {
        probing: Arc::new(probing),
        objects,
        lookups: cluster.as_ref().map(|cluster| cluster.lookups.clone()),
        hooks: Arc::new(HookRunner::new(runtime.clone(), events.clone(), Arc::new(QuickFarewell))),
        runtime: cri.clone(),
        images: cri.clone(),
        pulls: Some(pull_doors),
        cgroups: Arc::new(cgroups),
        files: Arc::new(files),
        names: names.clone(),
        state_files: Arc::new(NodeState::new(&flags.root_dir)),
        usage: Some(usage.clone()),
        volumes: storage.engine.clone(),
        clock: clock.clone(),
        events,
        board: board.clone(),
        admission,
    };
    let spec =
        pod_facts::node_facts(loaded, &machine, &layout, allocatable.clone(), pull_settings)?;
    let world = Arc::new(World::new(doors, spec));
    resolver::check(loaded, names.as_ref(), world.events.as_ref()).await;
    world.describe(node_host_ips(&described), allocatable);

    let mut tasks: JoinSet<()> = JoinSet::new();
    if let Some(exporter) = exporter {
        tasks.spawn(exporter.run());
    }
    reclaim::start(loaded, &cri, board.clone(), world.events.clone(), clock.clone(), &mut tasks);
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
            tasks.spawn(cluster.statics.clone().pass_on(from_local, update_sender.clone()));
            configured.push(PodSource::Api);
            configured
        }
    };
    if once.is_some() && configured.is_empty() {
        bail!(
            "--run-once-within: there are no pods to start without staticPodPath or staticPodURL"
        );
    }
    tasks.spawn(merge::run(Merger::new(configured), updates, change_sender, clock.clone()));

    let listing = Arc::new(ListingHealth::default());
    tasks.spawn(probe_loop.run());
    follow_kernel(&world, &mut tasks);
    tasks.spawn(watch_containers(runtime.clone(), hint_sender, listing.clone()));
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
    let serving_certificate = match listeners.main.take() {
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
            storage.engine.volumes_in_use(),
            &clock,
            &mut tasks,
        );
        let description = NodeDescription {
            settings,
            facts,
            drivers: storage.plugins.registered(),
            plugins: storage.plugins.clone(),
            lease_duration: config.node.lease_duration,
            pod_cidr: config.node.pod_cidr.clone(),
            startup: Startup::new(read_boot_time(), started),
        };
        storage.follow(loaded, &cluster, &mut tasks);
        let views = NodeViews::new(admission_sender, world.clone());
        tasks.spawn(cluster.run(description, runtime, update_sender, views));
    }
    let (network_sender, network) =
        watch::channel(ferrolet_observe::RuntimeHealth::default().network_trouble());
    tasks.spawn(async move {
        while runtime_feels.changed().await.is_ok() {
            network_sender.send_replace(runtime_feels.borrow_and_update().network_trouble());
        }
    });

    let pulse = Arc::new(LoopHealth::new(config.sources.sync_frequency));
    let checks: Arc<[Arc<dyn HealthCheck>]> =
        Arc::new([Arc::new(LogIsUnbuffered) as Arc<dyn HealthCheck>, pulse.clone()]);
    local::start(loaded, board.clone(), pod_news, &mut tasks)?;
    chains::start(loaded, &mut tasks);
    let pods: Arc<dyn PodsView> = match translations {
        Some(translations) => Arc::new(TranslatedPods { board, translations }),
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
                storage.plugins,
                Arc::new(LastListing::new(listing, clock.clone())),
                Arc::new(CertificateFigures::new(clock.clone())),
            ],
        ),
        requests: Requests::default(),
    };
    if serving_certificate.is_some() || listeners.page.is_some() {
        let inside = main_server::Inside {
            views: views.clone(),
            figures: figures.clone(),
            page: PageDoors::new(portrait, recent_events),
            allocated: main_server::allocated(loaded, &world),
            runtime: cri.clone(),
            clock: clock.clone(),
            started,
        };
        let doors = main_server::doors(loaded, command_line, verbosity, inside, &mut tasks);
        if let Some(server) = listeners.page.take() {
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
    listeners.serve_plain(&views, &figures, &mut tasks);
    tasks.spawn(stay_small());
    let notifier = Notifier::new(std::env::var_os("NOTIFY_SOCKET"));
    watchdog::start(&notifier, &pulse, &mut tasks);
    tasks.spawn(ferrolet_pods::run(
        world,
        Inputs {
            changes,
            hints,
            probes: probe_reports,
            volumes_ready: storage.ready,
            volume_health: storage.health,
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

/// Gives back what only the start needed, then what is not in use.
async fn stay_small() {
    tokio::time::sleep(FIRST_TRIM).await;
    loop {
        ferrolet_host::process::trim_memory();
        tokio::time::sleep(TRIM_PERIOD).await;
    }
}

/// Reads what the kernel says, where it may be read.
fn follow_kernel(world: &World, tasks: &mut JoinSet<()>) {
    match KernelRecords::open() {
        Ok(log) => {
            tasks.spawn(watch_kernel(Box::new(log), world.events.clone()));
        }
        Err(error) => {
            tracing::info!(%error, "Nobody will be told when the machine runs out of memory");
        }
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
    })?;
    tree.ensure_node(classes).await.context("make the node's cgroups")?;
    Ok((tree, driver))
}
