//! Which pod and which container a path means.
//!
//! In: names from a path. Out: what the runtime knows under them, or a refusal in upstream's words.
//! The pods the agent wants say which pod it is; the runtime says what really runs, because a
//! status may be a moment behind.

use axum::http::StatusCode;
use ferrolet_pod::bare_container_id;
use ferrolet_ports::{PodsView, RuntimeError, RuntimeErrorKind};
use ferrolet_types::observed::PodObservation;
use ferrolet_types::{ContainerId, Pod, PodUid, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerStatus};

use crate::main_routes::Main;
use crate::refusal::Refusal;

/// The names in a path.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct PodPath {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    /// Only this one, when given.
    #[serde(default)]
    pub(crate) uid: Option<String>,
}

/// The pod of the path, or a 404.
pub(crate) fn find_pod(pods: &dyn PodsView, path: &PodPath) -> Result<Pod, Refusal> {
    pods.pod_named(&path.namespace, &path.pod)
        .ok_or_else(|| Refusal::not_found("pod does not exist"))
}

/// Everything the runtime knows of the pod. A uid in the path that is not the pod's or its mirror's
/// finds nothing, as with upstream.
pub(crate) async fn observe(
    main: &Main,
    pod: &Pod,
    path: &PodPath,
) -> Result<Option<PodObservation>, Refusal> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let asked = path.uid.as_deref();
    let asked = asked.map(|asked| main.views.pods.local_uid(asked));
    if asked.is_some_and(|asked| asked.as_str() != uid) {
        return Ok(None);
    }
    let observed = main.runtime.observe_pod(&PodUid::from(uid)).await;
    observed.map(Some).map_err(|error| runtime_refusal(&error))
}

/// The container of that name that runs.
pub(crate) fn running_container(observed: &PodObservation, name: &str) -> Option<ContainerId> {
    let mut running = observed.running();
    running.find(|container| container.name.as_str() == name).map(|container| container.id.clone())
}

/// A container of any kind in the specification: whether there is one, and whether it has a
/// terminal.
pub(crate) fn has_container(pod: &Pod, name: &str) -> Option<HasTerminal> {
    let spec = pod.spec.as_ref()?;
    let plain = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let terminal = |container: &Container| container.tty.unwrap_or(false);
    let found = plain.filter(|container| container.name == name).map(terminal).next();
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral
        .filter(|container| container.name == name)
        .map(|container| container.tty.unwrap_or(false))
        .next();
    found.or(ephemeral).map(HasTerminal)
}

/// Whether a container was made with a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HasTerminal(pub(crate) bool);

/// The status of a container of any kind.
pub(crate) fn container_status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ]
    .into_iter()
    .flatten()
    .flatten()
    .find(|status| status.name == name)
}

/// What the runtime said, with the status upstream gives it.
pub(crate) fn runtime_refusal(error: &RuntimeError) -> Refusal {
    let status = match error.kind {
        RuntimeErrorKind::NotFound => StatusCode::NOT_FOUND,
        RuntimeErrorKind::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Refusal::new(status, error.to_string())
}

/// A container that runs, as the pod's status names it.
pub(crate) struct RunningName<'a> {
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) image: &'a str,
    pub(crate) started: Option<Timestamp>,
}

/// Every container of the pod that runs, of every kind.
pub(crate) fn running_names(pod: &Pod) -> Vec<RunningName<'_>> {
    let Some(status) = pod.status.as_ref() else {
        return Vec::new();
    };
    let all = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let running = all.into_iter().flatten().flatten().filter_map(|status| {
        let running = status.state.as_ref()?.running.as_ref()?;
        let id = status.container_id.as_deref()?;
        Some(RunningName {
            id: bare_container_id(id),
            name: &status.name,
            image: &status.image,
            started: running.started_at.as_ref().map(|at| Timestamp(at.0)),
        })
    });
    running.collect()
}
