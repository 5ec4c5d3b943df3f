//! What CRI is told of sandboxes and containers. Pure.

use std::collections::BTreeMap;

use ferrolet_cri_proto as cri;

use super::{
    phase::Phase,
    record::{ContainerSpec, UserRecord},
    table::{Container, Sandbox, SandboxState},
};

/// A container's words for its end, as containerd's users know them.
const COMPLETED: &str = "Completed";
const ERROR: &str = "Error";
const OOM_KILLED: &str = "OOMKilled";

/// A sandbox in a list.
pub(crate) fn listed_sandbox(sandbox: &Sandbox) -> cri::PodSandbox {
    let record = &sandbox.record;
    let config = record.config();
    cri::PodSandbox {
        id: record.id.clone(),
        metadata: config.metadata,
        state: sandbox_state(sandbox).into(),
        created_at: record.created_at,
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: record.runtime_handler.clone(),
    }
}

/// A sandbox with everything about it.
pub(crate) fn sandbox_status(sandbox: &Sandbox) -> cri::PodSandboxStatus {
    let record = &sandbox.record;
    let config = record.config();
    let security = config.linux.as_ref().and_then(|it| it.security_context.clone());
    let options = security.and_then(|it| it.namespace_options);
    let mut addresses = sandbox.connection.addresses.iter().map(ToString::to_string);
    let network = cri::PodSandboxNetworkStatus {
        ip: addresses.next().unwrap_or_default(),
        additional_ips: addresses.map(|ip| cri::PodIp { ip }).collect(),
    };
    cri::PodSandboxStatus {
        id: record.id.clone(),
        metadata: config.metadata,
        state: sandbox_state(sandbox).into(),
        created_at: record.created_at,
        network: Some(network),
        linux: Some(cri::LinuxPodSandboxStatus { namespaces: Some(cri::Namespace { options }) }),
        labels: config.labels,
        annotations: config.annotations,
        runtime_handler: record.runtime_handler.clone(),
    }
}

fn sandbox_state(sandbox: &Sandbox) -> cri::PodSandboxState {
    match sandbox.state {
        SandboxState::Ready(_) => cri::PodSandboxState::SandboxReady,
        SandboxState::Starting | SandboxState::NotReady => cri::PodSandboxState::SandboxNotready,
    }
}

/// Whether a filter lets a sandbox through.
pub(crate) fn is_wanted_sandbox(
    sandbox: &cri::PodSandbox,
    filter: Option<&cri::PodSandboxFilter>,
) -> bool {
    let Some(filter) = filter else { return true };
    sandbox.id.starts_with(&filter.id)
        && filter.state.as_ref().is_none_or(|it| it.state == sandbox.state)
        && has_labels(&sandbox.labels, &filter.label_selector)
}

/// A container in a list.
pub(crate) fn listed_container(container: &Container) -> cri::Container {
    let spec = &container.spec;
    let config = spec.config();
    cri::Container {
        id: spec.id.clone(),
        pod_sandbox_id: spec.sandbox.clone(),
        metadata: config.metadata,
        image: config.image,
        image_ref: spec.image_id.clone(),
        state: container_state(&container.phase()).into(),
        created_at: spec.created_at,
        labels: config.labels,
        annotations: config.annotations,
        image_id: spec.image_id.clone(),
    }
}

/// Whether a filter lets a container through.
pub(crate) fn is_wanted_container(
    container: &cri::Container,
    filter: Option<&cri::ContainerFilter>,
) -> bool {
    let Some(filter) = filter else { return true };
    container.id.starts_with(&filter.id)
        && container.pod_sandbox_id.starts_with(&filter.pod_sandbox_id)
        && filter.state.as_ref().is_none_or(|it| it.state == container.state)
        && has_labels(&container.labels, &filter.label_selector)
}

/// Whether all of some labels are there, with those values.
pub(crate) fn has_labels(
    labels: &BTreeMap<String, String>,
    selector: &BTreeMap<String, String>,
) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn container_state(phase: &Phase) -> cri::ContainerState {
    match phase {
        Phase::Created | Phase::Starting => cri::ContainerState::ContainerCreated,
        Phase::Running(_) => cri::ContainerState::ContainerRunning,
        Phase::Exited { .. } => cri::ContainerState::ContainerExited,
        Phase::Unknown => cri::ContainerState::ContainerUnknown,
    }
}

/// A container with everything about it.
pub(crate) fn container_status(container: &Container) -> cri::ContainerStatus {
    status(&container.spec, &container.phase(), container.user.as_ref())
}

fn status(spec: &ContainerSpec, phase: &Phase, user: Option<&UserRecord>) -> cri::ContainerStatus {
    let config = spec.config();
    let asked = config.image.unwrap_or_default();
    let resources = config.linux.and_then(|it| it.resources);
    let mut status = cri::ContainerStatus {
        id: spec.id.clone(),
        metadata: config.metadata,
        state: container_state(phase).into(),
        created_at: spec.created_at,
        image: Some(cri::ImageSpec { image: spec.image_name.clone(), ..asked }),
        image_ref: spec.image_ref.clone(),
        labels: config.labels,
        annotations: config.annotations,
        mounts: config.mounts,
        log_path: spec.log_path.clone(),
        resources: resources.map(|linux| cri::ContainerResources { linux: Some(linux) }),
        image_id: spec.image_id.clone(),
        user: user.map(shown_user),
        stop_signal: config.stop_signal,
        ..Default::default()
    };
    match phase {
        Phase::Created | Phase::Starting | Phase::Unknown => {}
        Phase::Running(process) => status.started_at = process.started_at,
        Phase::Exited { started_at, exit } => {
            status.started_at = *started_at;
            status.finished_at = exit.finished_at;
            status.exit_code = exit.code;
            status.message.clone_from(&exit.message);
            status.reason = match (exit.reason.as_str(), exit.code) {
                ("", 0) => COMPLETED.to_owned(),
                ("", _) if exit.oom_killed => OOM_KILLED.to_owned(),
                ("", _) => ERROR.to_owned(),
                (reason, _) => reason.to_owned(),
            };
        }
    }
    status
}

fn shown_user(user: &UserRecord) -> cri::ContainerUser {
    let groups = user.groups.iter().map(|it| i64::from(*it)).collect();
    cri::ContainerUser {
        linux: Some(cri::LinuxContainerUser {
            uid: user.uid.into(),
            gid: user.gid.into(),
            supplemental_groups: groups,
        }),
    }
}

/// For people: what `crictl inspect` shows beside the status.
pub(crate) fn container_info(container: &Container) -> BTreeMap<String, String> {
    let pid = container.phase().pid().unwrap_or(0);
    let spec = &container.spec;
    let root = spec.launch.as_ref().and_then(|it| it.root.clone()).unwrap_or_default();
    let process = spec.launch.as_ref().and_then(|it| it.process.clone()).unwrap_or_default();
    let info = serde_json::json!({
        "sandboxID": spec.sandbox,
        "pid": pid,
        "root": (pid > 0).then(|| format!("/proc/{pid}/root")),
        "layers": root.layers,
        "args": process.args,
        "stopSignal": spec.stop_signal,
    });
    BTreeMap::from([("info".to_owned(), info.to_string())])
}

/// For people: what `crictl inspectp` shows beside the status.
pub(crate) fn sandbox_info(sandbox: &Sandbox) -> BTreeMap<String, String> {
    let monitor = sandbox.link().map(|it| it.pid);
    let info = serde_json::json!({
        // Without a pause process the pod's monitor is what there is.
        "pid": monitor.unwrap_or(0),
        "hostname": sandbox.record.hostname,
        "runtimeHandler": sandbox.record.runtime_handler,
    });
    BTreeMap::from([("info".to_owned(), info.to_string())])
}

#[cfg(test)]
mod tests {
    use ferrolet_runtime_protocol::record::Exit;

    use super::*;
    use crate::runtime::{network::Connection, phase::Process, record::SandboxRecord};

    fn exited(exit: Exit) -> cri::ContainerStatus {
        status(&ContainerSpec::default(), &Phase::Exited { started_at: 3, exit }, None)
    }

    #[test]
    fn an_end_has_a_reason_and_its_times() {
        let cases = [
            (Exit { code: 0, ..Exit::default() }, "Completed"),
            (Exit { code: 1, ..Exit::default() }, "Error"),
            (Exit { code: 137, oom_killed: true, ..Exit::default() }, "OOMKilled"),
            (Exit { code: 128, reason: "StartError".to_owned(), ..Exit::default() }, "StartError"),
        ];
        for (exit, expected) in cases {
            let code = exit.code;
            let status = exited(Exit { finished_at: 9, ..exit });
            assert_eq!((status.exit_code, status.reason.as_str()), (code, expected));
            assert_eq!((status.started_at, status.finished_at), (3, 9));
            assert_eq!(status.state(), cri::ContainerState::ContainerExited);
        }
    }

    #[test]
    fn what_runs_has_begun_and_not_ended() {
        let phase = Phase::Running(Process { pid: 7, started_at: 5 });
        let user = UserRecord { uid: 7, gid: 8, groups: vec![8, 9] };
        let status = status(&ContainerSpec::default(), &phase, Some(&user));
        assert_eq!((status.started_at, status.finished_at, status.reason.as_str()), (5, 0, ""));
        let user = status.user.unwrap().linux.unwrap();
        assert_eq!((user.uid, user.gid, user.supplemental_groups), (7, 8, vec![8, 9]));
    }

    #[test]
    fn sandboxes_are_found_by_id_state_and_labels() {
        let labels = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let config = cri::PodSandboxConfig {
            labels: labels(&[("app", "web"), ("x", "y")]),
            ..Default::default()
        };
        let sandbox = Sandbox {
            record: SandboxRecord {
                id: "abc".to_owned(),
                config: Some(config),
                ..Default::default()
            }
            .into(),
            state: SandboxState::NotReady,
            connection: Connection {
                addresses: vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()],
                record: Vec::new(),
            },
            turn: Default::default(),
        };
        let listed = listed_sandbox(&sandbox);
        let not_ready =
            cri::PodSandboxStateValue { state: cri::PodSandboxState::SandboxNotready.into() };
        let ready = cri::PodSandboxStateValue { state: cri::PodSandboxState::SandboxReady.into() };
        let filter = cri::PodSandboxFilter::default;
        let cases = [
            (filter(), true),
            (cri::PodSandboxFilter { id: "ab".to_owned(), ..filter() }, true),
            (cri::PodSandboxFilter { id: "b".to_owned(), ..filter() }, false),
            (cri::PodSandboxFilter { state: Some(not_ready), ..filter() }, true),
            (cri::PodSandboxFilter { state: Some(ready), ..filter() }, false),
            (cri::PodSandboxFilter { label_selector: labels(&[("app", "web")]), ..filter() }, true),
            (cri::PodSandboxFilter { label_selector: labels(&[("app", "db")]), ..filter() }, false),
        ];
        for (filter, expected) in cases {
            assert_eq!(is_wanted_sandbox(&listed, Some(&filter)), expected, "{filter:?}");
        }
        let network = sandbox_status(&sandbox).network.unwrap();
        assert_eq!(
            (network.ip.as_str(), network.additional_ips[0].ip.as_str()),
            ("10.0.0.7", "fd00::7")
        );
    }
}
