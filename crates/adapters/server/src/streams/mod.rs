//! `/exec`, `/attach`, `/portForward`: streams into pods, and `/run`, a command whose output is the
//! answer.
//!
//! The runtime prepares a stream and names its address; the client's upgrade is offered there
//! ([`proxy`]), and once both ends agree their bytes are carried until one of them is done. SPDY
//! and old WebSocket protocols are spoken end to end by client and runtime. The newest ones, which
//! the API server passes on where a node declares `ExtendWebSocketsToKubelet`, no runtime speaks:
//! for those a SPDY connection is made to the runtime and joined to the client's WebSocket here
//! ([`bridge`]).

mod bridge;
mod carry;
#[cfg(test)]
mod damaged;
mod options;
mod proxy;

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use ferrolet_ports::{
    RuntimeError, WantedStreams,
    metrics::{self, process},
};
use ferrolet_types::ContainerId;
use ferrolet_types::observed::PodObservation;

use self::proxy::Manner;
use crate::main_routes::Main;
use crate::query::{pairs_of, values};
use crate::refusal::Refusal;
use crate::target::{
    PodPath, find_pod, has_container, observe, running_container, runtime_refusal,
};

#[derive(serde::Deserialize)]
pub(crate) struct ContainerPath {
    namespace: String,
    pod: String,
    #[serde(default)]
    uid: Option<String>,
    container: String,
}

impl ContainerPath {
    fn pod(&self) -> PodPath {
        PodPath { namespace: self.namespace.clone(), pod: self.pod.clone(), uid: self.uid.clone() }
    }
}

pub(crate) async fn exec(
    State(main): State<Main>,
    Path(path): Path<ContainerPath>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let prepared = async {
        let pairs = pairs_of(parts.uri.query().unwrap_or_default());
        let wanted = options::wanted(&pairs).map_err(Refusal::bad)?;
        let command: Vec<String> = values(&pairs, "command").map(str::to_owned).collect();
        let (_, id) = container(&main, &path).await?;
        let id = id.ok_or_else(|| {
            Refusal::failed(format!("container not found ({:?})", path.container))
        })?;
        proxy::must_upgrade(&parts)?;
        let url = address(main.streams.exec(&id, &command, wanted).await)?;
        Ok((url, process_manner(&main, &parts, "exec", wanted)))
    };
    forward(&main, prepared.await, parts).await
}

pub(crate) async fn attach(
    State(main): State<Main>,
    Path(path): Path<ContainerPath>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let prepared = async {
        let pairs = pairs_of(parts.uri.query().unwrap_or_default());
        let wanted = options::wanted(&pairs).map_err(Refusal::bad)?;
        let (pod, id) = container(&main, &path).await?;
        let missing = || {
            let (pod, namespace) = (&path.pod, &path.namespace);
            Refusal::failed(format!(
                "container {} not found in pod {pod}_{namespace}",
                path.container
            ))
        };
        let id = id.ok_or_else(missing)?;
        // A process keeps the terminal it was made with, whatever the client would like.
        let terminal = has_container(&pod, &path.container).ok_or_else(missing)?;
        let wanted = WantedStreams { tty: terminal.0, ..wanted };
        proxy::must_upgrade(&parts)?;
        let url = address(main.streams.attach(&id, wanted).await)?;
        Ok((url, process_manner(&main, &parts, "attach", wanted)))
    };
    forward(&main, prepared.await, parts).await
}

pub(crate) async fn port_forward(
    State(main): State<Main>,
    Path(path): Path<PodPath>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let prepared = async {
        let pairs = pairs_of(parts.uri.query().unwrap_or_default());
        let manner = match main.has_web_sockets {
            true => proxy::port_manner(&parts.headers),
            false => Manner::AsItIs,
        };
        // SPDY names its ports later, in its streams, whatever carries it.
        let names_ports = manner == Manner::AsItIs && proxy::is_websocket(&parts.headers);
        let ports =
            if names_ports { options::ports(&pairs).map_err(Refusal::bad)? } else { Vec::new() };
        let pod = find_pod(main.views.pods.as_ref(), &path)?;
        let Some(observed) = observe(&main, &pod, &path).await? else {
            return Err(Refusal::not_found("pod not found"));
        };
        let sandbox = ready_sandbox(&observed);
        let (name, namespace) = (&path.pod, &path.namespace);
        let full_name = format!("{name}_{namespace}");
        let sandbox =
            sandbox.ok_or_else(|| Refusal::failed(format!("pod not found ({full_name:?})")))?;
        proxy::must_upgrade(&parts)?;
        let url = address(main.streams.port_forward(sandbox, &ports).await)?;
        if manner != Manner::AsItIs {
            count("portforward");
        }
        Ok((url, manner))
    };
    forward(&main, prepared.await, parts).await
}

/// Runs a command to its end and answers with what it wrote.
pub(crate) async fn run(
    State(main): State<Main>,
    Path(path): Path<ContainerPath>,
    uri: Uri,
) -> Response {
    let id = match container(&main, &path).await {
        Ok((_, Some(id))) => id,
        Ok((_, None)) => {
            return Refusal::failed(format!("container not found ({:?})", path.container))
                .into_response();
        }
        Err(refusal) => return refusal.into_response(),
    };
    let pairs = pairs_of(uri.query().unwrap_or_default());
    let line = values(&pairs, "cmd").next().unwrap_or_default();
    let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
    match main.runtime.exec(&id, &command, Duration::ZERO).await {
        Ok(output) if output.code == 0 => {
            let text = [output.stdout, output.stderr].concat();
            ([(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
        Ok(output) => Refusal::failed(format!(
            "command '{line}' exited with {}: {}",
            output.code,
            String::from_utf8_lossy(&output.stderr)
        ))
        .into_response(),
        Err(error) => Refusal::failed(error.to_string()).into_response(),
    }
}

/// The pod of the path, and the container in it if it runs.
async fn container(
    main: &Main,
    path: &ContainerPath,
) -> Result<(ferrolet_types::Pod, Option<ContainerId>), Refusal> {
    let pod_path = path.pod();
    let pod = find_pod(main.views.pods.as_ref(), &pod_path)?;
    let observed = observe(main, &pod, &pod_path).await?;
    let id = observed.and_then(|observed| running_container(&observed, &path.container));
    Ok((pod, id))
}

fn ready_sandbox(observed: &PodObservation) -> Option<&ferrolet_types::SandboxId> {
    let mut ready = observed.sandboxes.iter().filter(|it| it.is_ready);
    ready.next().map(|sandbox| &sandbox.id)
}

fn address(prepared: Result<String, RuntimeError>) -> Result<String, Refusal> {
    prepared.map_err(|error| runtime_refusal(&error))
}

/// How a process's streams are joined for this client.
fn process_manner(
    main: &Main,
    parts: &Parts,
    subresource: &'static str,
    wanted: WantedStreams,
) -> Manner {
    if !main.has_web_sockets {
        return Manner::AsItIs;
    }
    let manner = proxy::process_manner(&parts.headers, wanted);
    if manner != Manner::AsItIs {
        count(subresource);
    }
    manner
}

fn count(subresource: &'static str) {
    process().add(metrics::KUBELET_WEBSOCKET_STREAMING_REQUESTS_TOTAL, [subresource], 1.0);
    tracing::debug!(subresource, "A stream comes by WebSocket");
}

async fn forward(
    main: &Main,
    prepared: Result<(String, Manner), Refusal>,
    parts: Parts,
) -> Response {
    match prepared {
        Ok((url, manner)) => proxy::proxy(&url, parts, manner, main.stream_idle_timeout).await,
        Err(refusal) => refusal.into_response(),
    }
}
