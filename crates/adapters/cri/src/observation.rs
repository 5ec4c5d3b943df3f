//! From the statuses of one pod's sandboxes and containers to a [`PodObservation`]. Pure.
//!
//! What the runtime cannot know (restart count, specification hash, where last words are left)
//! comes back in the annotations that a kubelet, ours or another, put on the container when it made
//! it. One key is our own, [`CRASH_STREAK`].

use std::cmp::Reverse;
use std::net::IpAddr;

use ferrolet_types::observed::{
    ContainerState, Exit, NetworkMode, ObservedContainer, ObservedMount, ObservedResources,
    ObservedSandbox, ObservedUser, PodObservation, TerminationMessageSource,
};
use ferrolet_types::{ContainerName, PodUid, SandboxId, Timestamp};

use crate::decode::{Labels, label, moment, pod_key};
use crate::proto;

const HASH: &str = "io.kubernetes.container.hash";
const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
const CRASH_STREAK: &str = "ferrolet.dev/crash-streak";

/// Puts a pod's pieces together, the newest first. Each container comes with its sandbox, which its
/// status does not tell.
pub(crate) fn pod(
    uid: PodUid,
    at: Timestamp,
    sandboxes: Vec<proto::PodSandboxStatus>,
    containers: Vec<(SandboxId, proto::ContainerStatus)>,
) -> PodObservation {
    let key = sandboxes
        .iter()
        .map(|sandbox| &sandbox.labels)
        .chain(containers.iter().map(|(_, container)| &container.labels))
        .find_map(pod_key);
    let mut sandboxes: Vec<_> = sandboxes.into_iter().map(sandbox).collect();
    sandboxes.sort_by_key(|sandbox| Reverse((sandbox.created_at, sandbox.attempt)));
    let mut containers: Vec<_> =
        containers.into_iter().map(|(sandbox, status)| container(sandbox, status)).collect();
    containers.sort_by_key(|container| Reverse((container.created_at, container.restart_count)));
    PodObservation { uid, key, sandboxes, containers, at }
}

fn sandbox(status: proto::PodSandboxStatus) -> ObservedSandbox {
    let is_on_node = status
        .linux
        .as_ref()
        .and_then(|linux| linux.namespaces.as_ref())
        .and_then(|namespaces| namespaces.options.as_ref())
        .is_some_and(|options| options.network() == proto::NamespaceMode::Node);
    ObservedSandbox {
        attempt: status.metadata.as_ref().map_or(0, |metadata| metadata.attempt),
        is_ready: status.state() == proto::PodSandboxState::SandboxReady,
        created_at: moment_or_epoch(status.created_at),
        ips: status.network.map_or_else(Vec::new, addresses),
        network: if is_on_node { NetworkMode::Node } else { NetworkMode::Pod },
        id: status.id.into(),
    }
}

/// All addresses or, when one of them is none, nothing: half of a dual-stack pair would be a wrong
/// answer.
fn addresses(network: proto::PodSandboxNetworkStatus) -> Vec<String> {
    let addresses: Vec<String> = std::iter::once(network.ip)
        .filter(|ip| !ip.is_empty())
        .chain(network.additional_ips.into_iter().map(|ip| ip.ip))
        .collect();
    if addresses.iter().all(|ip| ip.parse::<IpAddr>().is_ok()) { addresses } else { Vec::new() }
}

fn container(sandbox: SandboxId, status: proto::ContainerStatus) -> ObservedContainer {
    let annotations = &status.annotations;
    let metadata = status.metadata.clone().unwrap_or_default();
    let name = status
        .labels
        .get(label::CONTAINER_NAME)
        .filter(|name| !name.is_empty())
        .map_or(metadata.name.as_str(), String::as_str);
    let stop_signal = match status.stop_signal() {
        proto::Signal::RuntimeDefault => None,
        signal => Some(signal_name(signal)),
    };
    ObservedContainer {
        name: ContainerName::from(name),
        sandbox,
        state: state(&status),
        created_at: moment_or_epoch(status.created_at),
        restart_count: number(annotations, RESTART_COUNT).unwrap_or(metadata.attempt),
        spec_hash: annotations.get(HASH).filter(|hash| !hash.is_empty()).cloned(),
        crash_streak: number(annotations, CRASH_STREAK),
        termination_message: TerminationMessageSource {
            path: annotations.get(MESSAGE_PATH).cloned().unwrap_or_default(),
            falls_back_to_logs: annotations
                .get(MESSAGE_POLICY)
                .is_some_and(|policy| policy == "FallbackToLogsOnError"),
        },
        image: status.image.map_or_else(String::new, |image| image.image),
        // Runtimes before 1.30 know only the reference.
        image_id: if status.image_id.is_empty() {
            status.image_ref.clone()
        } else {
            status.image_id
        },
        image_ref: status.image_ref,
        log_path: status.log_path,
        mounts: status.mounts.into_iter().map(mount).collect(),
        user: status.user.and_then(|user| user.linux).map(user),
        resources: status
            .resources
            .and_then(|resources| resources.linux)
            .map(|linux| resources(&linux)),
        stop_signal,
        id: status.id.into(),
    }
}

fn state(status: &proto::ContainerStatus) -> ContainerState {
    match proto::ContainerState::try_from(status.state) {
        Ok(proto::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(proto::ContainerState::ContainerRunning) => {
            ContainerState::Running { started_at: moment_or_epoch(status.started_at) }
        }
        Ok(proto::ContainerState::ContainerExited) => ContainerState::Exited(Exit {
            started_at: moment(status.started_at),
            finished_at: moment_or_epoch(status.finished_at),
            code: status.exit_code,
            reason: status.reason.clone(),
            message: status.message.clone(),
        }),
        Ok(proto::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    }
}

/// A time that the state says must be there; upstream, too, reads a missing one as the epoch.
fn moment_or_epoch(nanos: i64) -> Timestamp {
    moment(nanos).unwrap_or(Timestamp::from_second(0))
}

fn number(annotations: &Labels, key: &str) -> Option<u32> {
    annotations.get(key)?.parse().ok()
}

/// `SIGNAL_SIGRTMINPLUS3` is `SIGRTMIN+3` in the API.
fn signal_name(signal: proto::Signal) -> String {
    signal.as_str_name().trim_start_matches("SIGNAL_").replace("PLUS", "+").replace("MINUS", "-")
}

fn mount(mount: proto::Mount) -> ObservedMount {
    ObservedMount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        is_read_only: mount.readonly,
    }
}

fn user(user: proto::LinuxContainerUser) -> ObservedUser {
    ObservedUser { uid: user.uid, gid: user.gid, supplemental_groups: user.supplemental_groups }
}

fn resources(resources: &proto::LinuxContainerResources) -> ObservedResources {
    ObservedResources {
        cpu_shares: resources.cpu_shares,
        cpu_quota: resources.cpu_quota,
        cpu_period: resources.cpu_period,
        memory_limit: resources.memory_limit_in_bytes,
    }
}

#[cfg(test)]
mod tests;
