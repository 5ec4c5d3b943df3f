//! From CRI's answers to the plain data of the ports. Pure; what an answer leaves out becomes the
//! value that claims least.

use ferrolet_ports::{
    CgroupDriver, ImageInfo, ListedContainer, ListedSandbox, ListedState, RuntimeCondition,
    RuntimeEvent, RuntimeEventKind, RuntimeHandler, RuntimeStatus, RuntimeVersion,
};
use ferrolet_types::{ContainerName, PodKey, PodUid, SandboxId, Timestamp};
use std::collections::BTreeMap;

use crate::proto;

/// Labels that every kubelet puts on what it makes.
pub(crate) mod label {
    pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
    pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
    pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub(crate) const CONTAINER_NAME: &str = "io.kubernetes.container.name";
}

pub(crate) type Labels = BTreeMap<String, String>;

/// The moment that many nanoseconds after the epoch; `None` for "never", which some runtimes say
/// with a negative number.
pub(crate) fn moment(nanos: i64) -> Option<Timestamp> {
    Timestamp::from_nanos(nanos.max(0))
}

/// The pod something belongs to, if a kubelet made it.
pub(crate) fn pod_uid(labels: &Labels) -> Option<PodUid> {
    non_empty(labels, label::POD_UID).map(PodUid::from)
}

/// The pod's namespace and name, if a kubelet made it.
pub(crate) fn pod_key(labels: &Labels) -> Option<PodKey> {
    let namespace = non_empty(labels, label::POD_NAMESPACE)?;
    let name = non_empty(labels, label::POD_NAME)?;
    Some(PodKey::new(namespace, name))
}

fn non_empty<'a>(labels: &'a Labels, key: &str) -> Option<&'a str> {
    labels.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

pub(crate) fn version(answer: proto::VersionResponse) -> RuntimeVersion {
    RuntimeVersion {
        name: answer.runtime_name,
        version: answer.runtime_version,
        api_version: answer.runtime_api_version,
    }
}

pub(crate) fn status(
    answer: proto::StatusResponse,
    cgroup_driver: Option<CgroupDriver>,
) -> RuntimeStatus {
    let conditions = answer.status.unwrap_or_default().conditions;
    let condition = |kind: &str| {
        conditions.iter().find(|condition| condition.r#type == kind).map_or_else(
            || RuntimeCondition { is_ok: false, reason: String::new(), message: String::new() },
            |condition| RuntimeCondition {
                is_ok: condition.status,
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            },
        )
    };
    let mut handlers: Vec<_> = answer.runtime_handlers.into_iter().map(handler).collect();
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    RuntimeStatus {
        runtime: condition("RuntimeReady"),
        network: condition("NetworkReady"),
        handlers,
        has_supplemental_groups_policy: answer
            .features
            .is_some_and(|features| features.supplemental_groups_policy),
        cgroup_driver,
    }
}

fn handler(handler: proto::RuntimeHandler) -> RuntimeHandler {
    let features = handler.features.unwrap_or_default();
    RuntimeHandler {
        name: handler.name,
        recursive_read_only_mounts: features.recursive_read_only_mounts,
        user_namespaces: features.user_namespaces,
    }
}

pub(crate) fn cgroup_driver(answer: proto::RuntimeConfigResponse) -> Option<CgroupDriver> {
    Some(match answer.linux?.cgroup_driver() {
        proto::CgroupDriver::Systemd => CgroupDriver::Systemd,
        proto::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
    })
}

/// `None` when no kubelet made it.
pub(crate) fn listed_sandbox(sandbox: proto::PodSandbox) -> Option<ListedSandbox> {
    Some(ListedSandbox {
        uid: pod_uid(&sandbox.labels)?,
        key: pod_key(&sandbox.labels)?,
        is_ready: sandbox.state() == proto::PodSandboxState::SandboxReady,
        created_at: moment(sandbox.created_at),
        id: SandboxId::from(sandbox.id),
    })
}

/// `None` when no kubelet made it.
pub(crate) fn listed_container(container: proto::Container) -> Option<ListedContainer> {
    let state = match proto::ContainerState::try_from(container.state) {
        Ok(proto::ContainerState::ContainerCreated) => ListedState::Created,
        Ok(proto::ContainerState::ContainerRunning) => ListedState::Running,
        Ok(proto::ContainerState::ContainerExited) => ListedState::Exited,
        Ok(proto::ContainerState::ContainerUnknown) | Err(_) => ListedState::Unknown,
    };
    Some(ListedContainer {
        uid: pod_uid(&container.labels)?,
        name: ContainerName::from(non_empty(&container.labels, label::CONTAINER_NAME)?),
        id: container.id.into(),
        sandbox: container.pod_sandbox_id.into(),
        state,
        image_ref: container.image_ref,
        created_at: moment(container.created_at),
    })
}

pub(crate) fn image(image: proto::Image) -> ImageInfo {
    ImageInfo {
        id: image.id,
        tags: image.repo_tags,
        digests: image.repo_digests,
        size: image.size,
        user_id: image.uid.map(|uid| uid.value),
        username: image.username,
        is_pinned: image.pinned,
    }
}

/// `None` when the event does not say whose it is, or is of a kind that we do not know.
pub(crate) fn event(event: proto::ContainerEventResponse) -> Option<RuntimeEvent> {
    let kind = match proto::ContainerEventType::try_from(event.container_event_type).ok()? {
        proto::ContainerEventType::ContainerCreatedEvent => RuntimeEventKind::Created,
        proto::ContainerEventType::ContainerStartedEvent => RuntimeEventKind::Started,
        proto::ContainerEventType::ContainerStoppedEvent => RuntimeEventKind::Stopped,
        proto::ContainerEventType::ContainerDeletedEvent => RuntimeEventKind::Deleted,
    };
    let of_sandbox = event.pod_sandbox_status.as_ref().and_then(|sandbox| {
        sandbox
            .metadata
            .as_ref()
            .map(|metadata| metadata.uid.as_str())
            .filter(|uid| !uid.is_empty())
            .map(PodUid::from)
            .or_else(|| pod_uid(&sandbox.labels))
    });
    let of_containers =
        || event.containers_statuses.iter().find_map(|container| pod_uid(&container.labels));
    Some(RuntimeEvent { uid: of_sandbox.or_else(of_containers)?, id: event.container_id, kind })
}

#[cfg(test)]
mod tests;
