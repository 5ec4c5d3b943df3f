//! The life of the agent's process: configuration, log, runtime, signals.

use std::time::Duration;

use anyhow::Context as _;
use ferrolet_config::{CommandLine, Loaded, effective_yaml, flag_values, load};
use ferrolet_host::{LockFile, Termination};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::timeout,
};

use crate::{
    files::read_configuration,
    own_log::OwnLog,
    wire::{self, Beside},
};

/// Enough for the few loops and many short tasks; each further one costs memory.
const WORKER_THREADS: usize = 2;
/// Those of the pools, those of the embedded runtime, and some for libraries that take one by themselves. A thread exists only while
/// it is needed.
pub(crate) const MOST_BLOCKING_THREADS: usize =
    ferrolet_linux::offload::ALL_THREADS + 8 + crate::runtime::MOST_BLOCKING_THREADS;

/// What a shutdown may take beside the time of its pods: its record, and the cluster's ear.
const AFTER_PODS: Duration = Duration::from_secs(10);

/// Runs the agent until it is told to stop.
pub(crate) fn run(command_line: &CommandLine) -> anyhow::Result<()> {
    ferrolet_linux::process::tune_allocator();
    ferrolet_linux::process::settle_name_service();
    let texts = read_configuration(command_line)?;
    let loaded = load(command_line, texts.0.clone(), &texts.1)?;
    let (traces, exporter) = wire::traces(&loaded)?.unzip();
    let log = OwnLog::start(&loaded.config.logging, traces)?;
    announce(command_line, &loaded);
    let lock = lock(&loaded)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(MOST_BLOCKING_THREADS)
        .enable_all()
        .build()
        .context("start the async runtime")?;
    let termination = loaded.flags.shutdown_on_sigterm.then(Termination::new);
    let ended = runtime.block_on(async {
        let beside = Beside { exporter, termination: termination.as_ref(), visit: None };
        tokio::select! {
            // Dropping the agent leaves its pods running: leaving is not an end of pods.
            ended = wire::run(command_line, (&loaded, texts), log.clone(), beside) => ended,
            stopped = leave(&loaded, termination.as_ref()) => stopped,
            wanted = give_way(&loaded, lock.as_ref()) => wanted,
        }
    });
    runtime.shutdown_background();
    log.streams.flush();
    ended
}

/// Takes the lock file, waiting for as long as somebody else has it.
fn lock(loaded: &Loaded) -> anyhow::Result<Option<LockFile>> {
    let Some(path) = &loaded.flags.lock_file else {
        return Ok(None);
    };
    tracing::info!(path = %path.display(), "Acquiring file lock");
    let lock = LockFile::acquire(path);
    Ok(Some(lock.with_context(|| format!("unable to acquire file lock on {:?}", path))?))
}

/// Ends when somebody else wants the lock file and we are told to give way.
async fn give_way(loaded: &Loaded, lock: Option<&LockFile>) -> anyhow::Result<()> {
    match lock.filter(|_| loaded.flags.exit_on_lock_contention) {
        None => std::future::pending().await,
        Some(lock) => {
            lock.contended().await.context("watch the lock file")?;
            tracing::info!("Somebody else wants the lock file, leaving; pods go on running");
            Ok(())
        }
    }
}

fn announce(command_line: &CommandLine, loaded: &Loaded) {
    tracing::info!(
        version = ferrolet_config::FERROLET_VERSION,
        kubernetes = ferrolet_config::KUBERNETES_VERSION,
        "Starting the node agent"
    );
    let user = ferrolet_linux::process::user_id();
    if user != 0 {
        tracing::error!(
            error = format!("kubelet needs to run as uid `0`. It is being run as {user}"),
            "Kubelet running with insufficient permissions"
        );
    }
    for (name, value) in flag_values(command_line) {
        tracing::info!(v = 1, "FLAG: --{name}={value:?}");
    }
    tracing::info!(config = effective_yaml(&loaded.raw), "Effective KubeletConfiguration");
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
}

/// Ends when we are told to stop and, where SIGTERM says that the machine goes down, pods have ended.
async fn leave(loaded: &Loaded, termination: Option<&Termination>) -> anyhow::Result<()> {
    let Some(termination) = termination else {
        return told_to_stop().await;
    };
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let shutdown = async {
        terminate.recv().await;
        let longest = loaded.config.shutdown.longest().saturating_add(AFTER_PODS);
        tracing::info!(?longest, "Received SIGTERM, the machine goes down");
        termination.begin();
        if timeout(longest, termination.over()).await.is_err() {
            tracing::error!("The shutdown takes longer than it was given, leaving");
        }
    };
    tokio::select! {
        // Signals are remembered by the kernel's handler, and dropping a shutdown leaves pods to
        // themselves, which is what SIGINT asks for.
        () = shutdown => tracing::info!("The shutdown is over, leaving"),
        _ = interrupt.recv() => tracing::info!("Received SIGINT, leaving; pods go on running"),
    }
    Ok(())
}

pub(crate) async fn told_to_stop() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    tokio::select! {
        // Signals are remembered by the kernel's handler, not by these futures.
        _ = terminate.recv() => tracing::info!("Received SIGTERM, leaving; pods go on running"),
        _ = interrupt.recv() => tracing::info!("Received SIGINT, leaving; pods go on running"),
    }
    Ok(())
}
