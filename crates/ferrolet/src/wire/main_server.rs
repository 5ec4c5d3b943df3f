//! The main server on 10250, wired: who may call it, and what it answers from.
//!
//! A node on its own has nobody to ask about callers: without `authorization.mode: AlwaysAllow` its
//! main server stays closed.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use ferrolet_config::{
    CommandLine, Loaded,
    config::{AuthorizationMode, TlsVersion},
    flag_values,
};
use ferrolet_cri::CriClient;
use ferrolet_host::{
    OperatorFiles, OwnProfiler, SystemLogs,
    logs::NodeLogs,
    machine::{MachineFacts, read_cores_and_sockets, read_swap_bytes},
};
use ferrolet_linux::cgroups::CgroupLayout;
use ferrolet_ports::{
    Checkpoints, Clock, CredentialFiles as _, GrantsView, Measured, Profiler, ReadFile as _,
    Reviews,
    metrics::{self, process},
};
use ferrolet_server::{
    About, Authentication, Authorization, CheckpointDoors, ClientAuthorities, DebugDoors, Figures,
    Gate, Limits, Machine, MainDoors, OldestTls, PageDoors, Pages, Server, ServingCertificate,
    TlsOptions, Views, main_router, tls_setup,
};
use ferrolet_types::Timestamp;
use ferrolet_usage::OwnProcess;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::logging::LogControl;

/// Authorities are read again this often even if no change is seen, as upstream does.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// A directory that never rests is looked at no more often than this.
const AT_MOST: Duration = Duration::from_secs(1);

/// True when somebody can decide about callers.
pub(super) fn can_open(loaded: &Loaded, has_cluster: bool) -> bool {
    has_cluster || loaded.config.authorization.mode == AuthorizationMode::AlwaysAllow
}

/// Parts of the system that have a cgroup of their own, by the names summaries give them.
pub(super) fn system_cgroups(loaded: &Loaded) -> Vec<(String, String)> {
    let cgroups = &loaded.config.cgroups;
    let all = [
        ("kubelet", &cgroups.kubelet),
        ("runtime", &loaded.flags.runtime_cgroups),
        ("misc", &cgroups.system),
    ];
    let given = all.into_iter().filter_map(|(name, cgroup)| Some((name, cgroup.as_ref()?)));
    given
        .filter(|(_, cgroup)| cgroup.as_str() != "/" && !cgroup.contains(".."))
        .map(|(name, cgroup)| (name.to_owned(), cgroup.clone()))
        .collect()
}

/// What the process counts, what parts of the agent do, and facts that are shown as metrics.
pub(super) fn metrics_sources(
    loaded: &Loaded,
    layout: &CgroupLayout,
    others: Vec<Arc<dyn Measured>>,
) -> Arc<[Arc<dyn Measured>]> {
    let version = match layout {
        CgroupLayout::V1 { .. } => 1.0,
        CgroupLayout::V2 { .. } => 2.0,
    };
    let release = loaded.flags.kubelet_version.as_str();
    let mut parts = release.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let platform = format!("linux/{}", std::env::consts::ARCH);
    let build = ["", "rustc", "", "", release, "", major, minor, &platform];
    let mut facts = vec![
        metrics::KUBELET_CGROUP_VERSION.sample([], version),
        metrics::KUBELET_METRICS_PROVIDER.sample(["cadvisor"], 1.0),
        metrics::KUBERNETES_BUILD_INFO.sample(build, 1.0),
    ];
    for (gate, is_on) in loaded.config.gates.states() {
        let stage = match gate.stage.label() {
            "GA" => String::new(),
            other => other.to_owned(),
        };
        let labels = [gate.name, stage.as_str()];
        let value = f64::from(u8::from(is_on));
        facts.push(metrics::KUBERNETES_FEATURE_ENABLED.sample(labels, value));
    }
    let mut sources: Vec<Arc<dyn Measured>> =
        vec![Arc::new(process()), Arc::new(facts), Arc::new(OwnProcess)];
    sources.extend(others);
    sources.into()
}

/// What the metrics say about the machine.
pub(super) fn about_machine(machine: &MachineFacts) -> Machine {
    let (n_cores, n_sockets) = read_cores_and_sockets();
    Machine {
        boot_id: machine.boot_id.clone(),
        machine_id: machine.machine_id.clone(),
        system_uuid: machine.system_uuid.clone(),
        kernel_version: machine.kernel_version.clone(),
        os_image: machine.os_image.clone(),
        n_cpus: u64::from(machine.n_cpus),
        n_cores,
        n_sockets,
        memory_bytes: machine.memory_bytes,
        swap_bytes: read_swap_bytes(),
    }
}

/// Where checkpoints are written; none when the gate is off.
fn checkpoints(loaded: &Loaded, runtime: Arc<dyn Checkpoints>) -> Option<CheckpointDoors> {
    let directory = loaded.flags.root_dir.join("checkpoints");
    let is_on = loaded.config.gates.enabled("ContainerCheckpoint");
    is_on.then(|| CheckpointDoors::new(runtime, directory))
}

/// What pods were granted, to be shown; none when the gate is off.
pub(super) fn allocated(
    loaded: &Loaded,
    grants: Arc<dyn GrantsView>,
) -> Option<Arc<dyn GrantsView>> {
    Some(grants).filter(|_| loaded.config.gates.enabled("KubeletAllocatedPodsEndpoint"))
}

/// What may be asked of the process itself, as configured.
fn debugging(loaded: &Loaded, log: LogControl) -> DebugDoors {
    let server = &loaded.config.server;
    DebugDoors {
        profiler: server.profiling_handler.then(|| Arc::new(OwnProfiler) as Arc<dyn Profiler>),
        set_verbosity: server.debug_flags_handler.then(|| {
            Arc::new(move |level| log.set_threshold(level)) as Arc<dyn Fn(u32) + Send + Sync>
        }),
        command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    }
}

/// What the main server and the page look at.
pub(super) struct Inside {
    pub(super) views: Views,
    pub(super) figures: Figures,
    pub(super) page: PageDoors,
    pub(super) allocated: Option<Arc<dyn GrantsView>>,
    pub(super) runtime: Arc<CriClient>,
    pub(super) clock: Arc<dyn Clock>,
    /// When the agent began.
    pub(super) started: Timestamp,
    /// What `/configz` answers.
    pub(super) configuration: watch::Receiver<String>,
}

/// What the main server and the page answer from, with the handlers that are configured.
pub(super) fn doors(
    loaded: &Loaded,
    command_line: &CommandLine,
    log: LogControl,
    inside: Inside,
    tasks: &mut JoinSet<()>,
) -> Arc<MainDoors> {
    let (config, runtime) = (&loaded.config, inside.runtime);
    let logs = Arc::new(NodeLogs::new(config.sources.pod_logs_dir.clone()));
    tasks.spawn(logs.watch_changes());
    Arc::new(MainDoors {
        views: inside.views,
        runtime: runtime.clone(),
        streams: runtime.clone(),
        logs,
        clock: inside.clock,
        configuration: inside.configuration,
        about: About {
            started: inside.started,
            version: loaded.flags.kubelet_version.trim_start_matches('v').to_owned(),
            flags: flag_values(command_line)
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        },
        figures: Some(inside.figures),
        page: Some(inside.page),
        system_logs: Arc::new(SystemLogs::new("/var/log")),
        checkpoints: checkpoints(loaded, runtime),
        debugging: debugging(loaded, log),
        pages: Pages {
            has_flagz: config.gates.enabled("ComponentFlagz"),
            has_statusz: config.gates.enabled("ComponentStatusz"),
            has_cbor: config.gates.enabled("CBORServingAndStorage"),
        },
        has_debugging_handlers: config.server.debugging_handlers,
        has_system_logs: config.server.system_log_handler,
        allocated: inside.allocated,
        has_system_log_query: config.server.system_log_query,
        has_split_log_streams: config.gates.enabled("PodLogsQuerySplitStreams"),
        has_web_sockets: config.gates.enabled("ExtendWebSocketsToKubelet"),
        stream_idle_timeout: config.server.streaming_idle_timeout,
    })
}

/// Starts the main server.
pub(super) fn start(
    loaded: &Loaded,
    node_name: &str,
    (server, certificate): (Server, Arc<ServingCertificate>),
    reviews: Option<Arc<dyn Reviews>>,
    doors: Arc<MainDoors>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let config = &loaded.config;
    let authorities = match &config.authentication.client_ca_file {
        Some(path) => {
            let follows = config.gates.enabled("ReloadKubeletClientCAFile");
            Some(read_authorities(path.clone(), follows.then_some(tasks))?)
        }
        None => None,
    };
    let authentication = Authentication {
        anonymous: config.authentication.anonymous,
        authorities,
        tokens: reviews.clone().zip(config.authentication.webhook_cache),
    };
    let authorization = match (config.authorization.mode, reviews) {
        (AuthorizationMode::Webhook, Some(reviews)) => Authorization::Webhook {
            reviews,
            authorized: config.authorization.webhook_cache.authorized,
            unauthorized: config.authorization.webhook_cache.unauthorized,
        },
        (AuthorizationMode::AlwaysAllow, _) => Authorization::AlwaysAllow,
        (AuthorizationMode::Webhook, None) => {
            bail!("authorization.mode Webhook needs an API server to ask")
        }
    };
    let oldest = match config.tls.min_version {
        Some(TlsVersion::V13) => OldestTls::V13,
        _ => OldestTls::V12,
    };
    let options = TlsOptions {
        oldest,
        cipher_suites: config.tls.cipher_suites.clone(),
        curves: config.tls.curve_preferences.clone(),
    };
    let tls = tls_setup(certificate, &options).context("set up TLS for the main server")?;
    if !tls.ignored.is_empty() {
        tracing::warn!(names = tls.ignored.join(", "), "These TLS settings cannot be honoured");
    }
    let gate = Gate::new(node_name, authentication, authorization);
    tracing::info!(address = %server.address(), "Listening with TLS");
    let router = main_router(doors, gate);
    tasks.spawn(server.serve_tls(router, tls.config, Limits::MAIN, std::future::pending()));
    Ok(())
}

/// Reads the authorities of callers, and where somebody may follow it, again when the file changes.
fn read_authorities(
    path: PathBuf,
    tasks: Option<&mut JoinSet<()>>,
) -> anyhow::Result<Arc<ClientAuthorities>> {
    let authorities = ClientAuthorities::none_yet();
    let mut known = OperatorFiles
        .read(&path)
        .with_context(|| format!("read clientCAFile {}", path.display()))?;
    authorities.set_pem(&known).with_context(|| format!("use clientCAFile {}", path.display()))?;
    let Some(tasks) = tasks else {
        return Ok(authorities);
    };
    let followed = authorities.clone();
    tasks.spawn(async move {
        let mut around = OperatorFiles.watch(&path);
        loop {
            // Cancel-safe: a watch keeps what it has gathered. A change that is not seen is found
            // by looking again.
            let _ = timeout(READ_AGAIN, around.next()).await;
            match OperatorFiles.read(&path) {
                Ok(text) if text != known => {
                    if let Err(error) = followed.set_pem(&text) {
                        tracing::error!(%error, path = %path.display(), "New authorities cannot be used, keeping the old ones");
                    }
                    known = text;
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, path = %path.display(), "Authorities cannot be read, keeping the old ones"),
            }
            sleep(AT_MOST).await;
        }
    });
    Ok(authorities)
}
