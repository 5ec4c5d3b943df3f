//! The container runtime inside the agent: opened, served over pairs of sockets, and called like any other.
//!
//! In: the configuration and `runtime.yaml` beside it. Out: the client of the runtime, and a part of the agent that
//! ends only if the runtime does. One path leads into it, the one that critest judges behind a socket (ADR 0055); a
//! second way in is the socket of `runtime.yaml`, for the administrator's own tools.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use ferrolet_config::{
    LoadError, Loaded, RUNTIME_FILE, RuntimeFile,
    config::{CgroupDriver, Endpoint},
};
use ferrolet_cri::{CriClient, Timeouts};
use ferrolet_ports::{Clock, Part};
use ferrolet_runtime_service::Incoming;

use crate::{
    files,
    runtime::engine::{Engine, EngineSettings, ensure_able, listen, ranges},
};

/// The client of the runtime that the configuration names, and what runs for it in this process.
pub(super) async fn client(
    loaded: &Loaded,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(CriClient, Option<Part>)> {
    let runtime = &loaded.config.runtime;
    let timeouts = Timeouts { request: runtime.request_timeout };
    match (&runtime.endpoint, &runtime.image_endpoint) {
        (Endpoint::Socket(_), images) => {
            let (endpoint, images) = (runtime.endpoint.to_string(), images.to_string());
            Ok((CriClient::connect_lazy(&endpoint, &images, timeouts, clock.clone())?, None))
        }
        (Endpoint::Embedded, _) => {
            let (client, part) = start(loaded, timeouts, clock).await?;
            Ok((client, Some(part)))
        }
    }
}

async fn start(
    loaded: &Loaded,
    timeouts: Timeouts,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(CriClient, Part)> {
    let file = runtime_file(loaded)?;
    ensure_able()?;
    if loaded.config.cgroups.driver == CgroupDriver::Systemd {
        tracing::warn!(
            "The embedded runtime makes control groups by itself: cgroupDriver systemd is not used"
        );
    }
    let engine = Engine::open(settings(&file)?).await.context("start the embedded runtime")?;
    let listener = file.socket.as_deref().map(listen).transpose()?;
    tracing::info!(
        root = %file.root.display(),
        run = %file.run.display(),
        socket = %file.socket.as_deref().unwrap_or(Path::new("none")).display(),
        "The container runtime is the embedded one"
    );
    let (dialler, incoming) = Incoming::inside(listener);
    // The agent asks it before its own loops run.
    let serving = tokio::spawn(engine.run(incoming, std::future::pending()));
    let client = CriClient::connect_inside(move || dialler.dial(), timeouts, clock.clone());
    let part = Part::new("embedded runtime").with_loop(async move {
        match serving.await {
            Ok(Ok(())) => tracing::error!("The embedded runtime ended"),
            Ok(Err(error)) => tracing::error!("The embedded runtime failed: {error:#}"),
            Err(error) => tracing::error!(%error, "The embedded runtime broke off"),
        }
    });
    Ok((client, part))
}

/// What `runtime.yaml` beside the configuration says, or what is usual.
fn runtime_file(loaded: &Loaded) -> anyhow::Result<RuntimeFile> {
    let beside = loaded.flags.config.as_deref().and_then(Path::parent);
    let path = beside.map(|directory| directory.join(RUNTIME_FILE)).filter(|path| path.exists());
    let text = path.as_deref().map(files::read).transpose()?;
    Ok(RuntimeFile::read(text.as_ref(), &loaded.flags.root_dir)
        .map_err(|faults| LoadError { faults })?)
}

fn settings(file: &RuntimeFile) -> anyhow::Result<EngineSettings> {
    let of_pods = ranges(&format!("{RUNTIME_FILE}: network.podCIDRs"), &file.pod_cidrs)?;
    let unmasked = file.unmasked_cidrs.iter().map(|it| it.parse());
    let unmasked = unmasked.collect::<Result<_, _>>();
    let unmasked = unmasked.with_context(|| format!("{RUNTIME_FILE}: network.unmaskedCIDRs"))?;
    Ok(EngineSettings {
        root: file.root.clone(),
        run: file.run.clone(),
        cgroup_parent: file.cgroup_parent.clone(),
        network_name: file.network_name.clone(),
        pod_ranges: of_pods,
        unmasked,
        cni_configurations: file.cni_configurations.clone(),
        cni_plugins: file.cni_plugins.clone(),
        registry_hosts: file.registry_hosts.clone(),
        registry_certificates: file.registry_certificates.clone(),
        load: Vec::new(),
        archives: file.archives.clone(),
        has_demonstration: file.has_demonstration,
    })
}
