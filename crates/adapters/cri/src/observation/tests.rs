//! Observations as values; the numbers are those of a pod that upstream's kubelet was seen to run.

use ferrolet_types::PodKey;

use super::*;

const SECOND: i64 = 1_000_000_000;

fn text(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn pod_labels() -> Labels {
    text(&[(label::POD_UID, "u"), (label::POD_NAME, "rich"), (label::POD_NAMESPACE, "default")])
}

fn container_status(state: proto::ContainerState) -> proto::ContainerStatus {
    let mut labels = pod_labels();
    labels.insert(label::CONTAINER_NAME.to_owned(), "main".to_owned());
    proto::ContainerStatus {
        id: "c93f".to_owned(),
        metadata: Some(proto::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        state: state.into(),
        created_at: 11 * SECOND,
        started_at: 12 * SECOND,
        finished_at: 13 * SECOND,
        exit_code: 137,
        image: Some(proto::ImageSpec {
            image: "docker.io/library/busybox:latest".to_owned(),
            ..Default::default()
        }),
        image_ref: "sha256:b7".to_owned(),
        image_id: "sha256:b7".to_owned(),
        reason: "OOMKilled".to_owned(),
        message: "killed".to_owned(),
        labels,
        annotations: text(&[
            (HASH, "85580d84"),
            (RESTART_COUNT, "3"),
            (MESSAGE_PATH, "/dev/termination-log"),
            (MESSAGE_POLICY, "FallbackToLogsOnError"),
            (CRASH_STREAK, "2"),
        ]),
        mounts: vec![proto::Mount {
            container_path: "/h".to_owned(),
            host_path: "/opt".to_owned(),
            readonly: true,
            ..Default::default()
        }],
        log_path: "/var/log/pods/x/main/0.log".to_owned(),
        resources: Some(proto::ContainerResources {
            linux: Some(proto::LinuxContainerResources {
                cpu_period: 100_000,
                cpu_quota: 50_000,
                cpu_shares: 102,
                memory_limit_in_bytes: 67_108_864,
                ..Default::default()
            }),
        }),
        user: Some(proto::ContainerUser {
            linux: Some(proto::LinuxContainerUser {
                uid: 1001,
                gid: 0,
                supplemental_groups: vec![0, 2000, 3000],
            }),
        }),
        stop_signal: proto::Signal::Sigterm.into(),
    }
}

#[test]
fn a_container_is_observed_with_all_it_was_made_with() {
    let observed = container("s".into(), container_status(proto::ContainerState::ContainerRunning));
    assert_eq!(
        observed,
        ObservedContainer {
            id: "c93f".into(),
            name: "main".into(),
            sandbox: "s".into(),
            state: ContainerState::Running { started_at: Timestamp::from_second(12) },
            created_at: Timestamp::from_second(11),
            restart_count: 3,
            spec_hash: Some("85580d84".to_owned()),
            crash_streak: Some(2),
            termination_message: TerminationMessageSource {
                path: "/dev/termination-log".to_owned(),
                falls_back_to_logs: true,
            },
            image: "docker.io/library/busybox:latest".to_owned(),
            image_ref: "sha256:b7".to_owned(),
            image_id: "sha256:b7".to_owned(),
            log_path: "/var/log/pods/x/main/0.log".to_owned(),
            mounts: vec![ObservedMount {
                container_path: "/h".to_owned(),
                host_path: "/opt".to_owned(),
                is_read_only: true,
            }],
            user: Some(ObservedUser {
                uid: 1001,
                gid: 0,
                supplemental_groups: vec![0, 2000, 3000],
            }),
            resources: Some(ObservedResources {
                cpu_shares: 102,
                cpu_quota: 50_000,
                cpu_period: 100_000,
                memory_limit: 67_108_864,
            }),
            stop_signal: Some("SIGTERM".to_owned()),
        }
    );
}

#[test]
fn a_bare_container_is_observed_with_nothing_made_up() {
    let observed = container(
        "s".into(),
        proto::ContainerStatus {
            id: "c".to_owned(),
            metadata: Some(proto::ContainerMetadata { name: "main".to_owned(), attempt: 4 }),
            image_ref: "sha256:old".to_owned(),
            ..Default::default()
        },
    );
    assert_eq!(observed.name.as_str(), "main");
    assert_eq!(observed.restart_count, 4);
    assert_eq!(observed.image_id, "sha256:old");
    assert_eq!(observed.spec_hash, None);
    assert_eq!(observed.crash_streak, None);
    assert_eq!(observed.stop_signal, None);
    assert_eq!((observed.user, observed.resources), (None, None));
    assert_eq!(observed.termination_message, TerminationMessageSource::default());
}

#[test]
fn each_state_holds_the_times_that_it_proves() {
    use proto::ContainerState as Wire;
    let check = |wire: Wire, expected: ContainerState| {
        assert_eq!(state(&container_status(wire)), expected);
    };
    check(Wire::ContainerCreated, ContainerState::Created);
    check(Wire::ContainerUnknown, ContainerState::Unknown);
    check(
        Wire::ContainerExited,
        ContainerState::Exited(Exit {
            started_at: Some(Timestamp::from_second(12)),
            finished_at: Timestamp::from_second(13),
            code: 137,
            reason: "OOMKilled".to_owned(),
            message: "killed".to_owned(),
        }),
    );
    let mut never_started = container_status(Wire::ContainerExited);
    never_started.started_at = 0;
    let exit = state(&never_started);
    assert_eq!(exit.exit().unwrap().started_at, None);
}

#[test]
fn pieces_of_a_pod_come_newest_first() {
    let sandbox = |id: &str, created_at: i64, attempt| proto::PodSandboxStatus {
        id: id.to_owned(),
        created_at,
        metadata: Some(proto::PodSandboxMetadata { attempt, ..Default::default() }),
        labels: pod_labels(),
        ..Default::default()
    };
    let container = |id: &str, created_at: i64, restarts: &str| {
        let mut status = container_status(proto::ContainerState::ContainerExited);
        status.id = id.to_owned();
        status.created_at = created_at;
        let restarts = restarts.to_owned();
        status.annotations.insert(RESTART_COUNT.to_owned(), restarts);
        (SandboxId::from("s"), status)
    };
    let at = Timestamp::from_second(99);
    let observed = pod(
        "u".into(),
        at,
        vec![sandbox("a", 5, 0), sandbox("b", 7, 1), sandbox("c", 7, 2)],
        vec![container("x", 5, "0"), container("y", 6, "1"), container("z", 6, "2")],
    );
    let sandboxes: Vec<_> = observed.sandboxes.iter().map(|it| it.id.as_str()).collect();
    let containers: Vec<_> = observed.containers.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(sandboxes, ["c", "b", "a"]);
    assert_eq!(containers, ["z", "y", "x"]);
    assert_eq!(observed.key, Some(PodKey::new("default", "rich")));
    assert_eq!(observed.at, at);
    let nothing = pod("u".into(), at, vec![], vec![]);
    assert_eq!(nothing, PodObservation::nothing("u".into(), at));
}

#[test]
fn a_sandbox_tells_its_network() {
    let check = |network: proto::NamespaceMode, ips: [&str; 2], expected: &[&str]| {
        let observed = sandbox(proto::PodSandboxStatus {
            network: Some(proto::PodSandboxNetworkStatus {
                ip: ips[0].to_owned(),
                additional_ips: vec![proto::PodIp { ip: ips[1].to_owned() }],
            }),
            linux: Some(proto::LinuxPodSandboxStatus {
                namespaces: Some(proto::Namespace {
                    options: Some(proto::NamespaceOption {
                        network: network.into(),
                        ..Default::default()
                    }),
                }),
            }),
            ..Default::default()
        });
        assert_eq!(observed.ips, expected);
        observed.network
    };
    let pod = proto::NamespaceMode::Pod;
    assert_eq!(
        check(pod, ["10.88.2.135", "fd00::1"], &["10.88.2.135", "fd00::1"]),
        NetworkMode::Pod
    );
    check(pod, ["10.88.2.135", "nonsense"], &[]);
    let node = proto::NamespaceMode::Node;
    assert_eq!(check(node, ["", "fd00::1"], &["fd00::1"]), NetworkMode::Node);
}

#[test]
fn signals_go_by_their_api_names() {
    assert_eq!(signal_name(proto::Signal::Sigkill), "SIGKILL");
    assert_eq!(signal_name(proto::Signal::Sigrtminplus3), "SIGRTMIN+3");
    assert_eq!(signal_name(proto::Signal::Sigrtmaxminus14), "SIGRTMAX-14");
}
