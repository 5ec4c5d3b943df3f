//! What the CRI adapter would read back: observations and listings from the world's state, the
//! newest first.

use ferrolet_ports::{ListedContainer, ListedSandbox, ListedState, RuntimeListing};
use ferrolet_spec::NamespaceMode;
use ferrolet_types::observed::{
    ContainerState, NetworkMode, ObservedContainer, ObservedMount, ObservedResources,
    ObservedSandbox, ObservedUser, PodObservation, TerminationMessageSource,
};
use ferrolet_types::{PodUid, Timestamp};

use crate::images::Store;
use crate::state::State;
use crate::{FakeContainer, FakeSandbox};

pub(crate) const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
pub(crate) const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";
pub(crate) const SPEC_HASH: &str = "io.kubernetes.container.hash";
pub(crate) const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub(crate) const CRASH_STREAK: &str = "ferrolet.dev/crash-streak";
pub(crate) const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub(crate) const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";

/// Everything the runtime knows of one pod; complete as of `at`.
pub(crate) fn observe(state: &State, uid: &PodUid, at: Timestamp) -> PodObservation {
    let sandboxes = state.sandboxes.iter().rev();
    let sandboxes = sandboxes.filter(|it| it.spec.uid == *uid);
    let containers = state.containers.iter().rev();
    let containers = containers.filter(|it| it.uid == *uid);
    let key = sandboxes.clone().map(|it| it.spec.key.clone()).next();
    let key = key.or_else(|| containers.clone().map(|it| it.key.clone()).next());
    PodObservation {
        uid: uid.clone(),
        key,
        sandboxes: sandboxes.map(observe_sandbox).collect(),
        containers: containers.map(|it| observe_container(&state.images, it)).collect(),
        at,
    }
}

fn observe_sandbox(sandbox: &FakeSandbox) -> ObservedSandbox {
    let network = match sandbox.spec.security.namespaces.network {
        NamespaceMode::Node => NetworkMode::Node,
        NamespaceMode::Pod | NamespaceMode::Container | NamespaceMode::Target => NetworkMode::Pod,
    };
    ObservedSandbox {
        id: sandbox.id.clone(),
        attempt: sandbox.spec.attempt,
        is_ready: sandbox.is_ready,
        created_at: sandbox.created_at,
        ips: sandbox.ips.clone(),
        network,
    }
}

fn observe_container(images: &Store, container: &FakeContainer) -> ObservedContainer {
    let spec = &container.spec;
    let annotation = |name: &str| spec.annotations.get(name).map(String::as_str);
    let number = |name: &str| annotation(name).and_then(|text| text.parse().ok());
    let image = images.find(&spec.image_ref);
    let image_id = image.map_or_else(|| spec.image_ref.clone(), |it| it.id.clone());
    let image_ref =
        image.and_then(|it| it.digests.first().cloned()).unwrap_or_else(|| image_id.clone());
    ObservedContainer {
        id: container.id.clone(),
        name: spec.name.clone(),
        sandbox: container.sandbox.clone(),
        state: container.state.clone(),
        created_at: container.created_at,
        restart_count: number(RESTART_COUNT).unwrap_or(spec.attempt),
        spec_hash: annotation(SPEC_HASH).map(str::to_owned),
        crash_streak: number(CRASH_STREAK),
        termination_message: TerminationMessageSource {
            path: annotation(TERMINATION_PATH).unwrap_or_default().to_owned(),
            falls_back_to_logs: annotation(TERMINATION_POLICY) == Some("FallbackToLogsOnError"),
        },
        image: spec.image.clone(),
        image_ref,
        image_id,
        log_path: container.log_path.clone(),
        mounts: spec
            .mounts
            .iter()
            .filter(|mount| mount.image.is_none())
            .map(|mount| ObservedMount {
                container_path: mount.container_path.clone(),
                host_path: mount.host_path.clone(),
                is_read_only: mount.read_only,
            })
            .collect(),
        user: Some(ObservedUser {
            uid: spec.security.run_as_user.unwrap_or(0),
            gid: spec.security.run_as_group.unwrap_or(0),
            supplemental_groups: spec.security.supplemental_groups.clone(),
        }),
        resources: Some(ObservedResources {
            cpu_shares: spec.resources.cpu_shares,
            cpu_quota: spec.resources.cpu_quota,
            cpu_period: spec.resources.cpu_period,
            memory_limit: spec.resources.memory_limit,
        }),
        stop_signal: Some(spec.stop_signal.clone().unwrap_or_else(|| "SIGTERM".to_owned())),
    }
}

/// Everything there is, in brief.
pub(crate) fn list(state: &State) -> RuntimeListing {
    let sandboxes = state.sandboxes.iter().rev().map(|sandbox| ListedSandbox {
        id: sandbox.id.clone(),
        uid: sandbox.spec.uid.clone(),
        key: sandbox.spec.key.clone(),
        is_ready: sandbox.is_ready,
        created_at: Some(sandbox.created_at),
    });
    let containers = state.containers.iter().rev();
    let containers = containers.map(|container| ListedContainer {
        id: container.id.clone(),
        uid: container.uid.clone(),
        name: container.spec.name.clone(),
        sandbox: container.sandbox.clone(),
        state: match container.state {
            ContainerState::Created => ListedState::Created,
            ContainerState::Running { .. } => ListedState::Running,
            ContainerState::Exited(_) => ListedState::Exited,
            ContainerState::Unknown => ListedState::Unknown,
        },
        image_ref: container.spec.image_ref.clone(),
        created_at: Some(container.created_at),
    });
    RuntimeListing { sandboxes: sandboxes.collect(), containers: containers.collect() }
}
