//! Answers as values.

use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn kubelet_labels() -> Labels {
    labels(&[
        (label::POD_UID, "u"),
        (label::POD_NAME, "web"),
        (label::POD_NAMESPACE, "default"),
        (label::CONTAINER_NAME, "main"),
    ])
}

#[test]
fn only_what_a_kubelet_made_is_listed() {
    let sandbox = |labels| proto::PodSandbox {
        id: "s".to_owned(),
        state: 1,
        created_at: 5_000_000_000,
        labels,
        ..Default::default()
    };
    assert_eq!(
        listed_sandbox(sandbox(kubelet_labels())),
        Some(ListedSandbox {
            id: "s".into(),
            uid: "u".into(),
            key: PodKey::new("default", "web"),
            is_ready: false,
            created_at: Some(Timestamp::from_second(5)),
        })
    );
    assert_eq!(listed_sandbox(sandbox(Labels::new())), None);
    let half = labels(&[(label::POD_UID, ""), (label::POD_NAME, "web")]);
    assert_eq!(listed_sandbox(sandbox(half)), None);
}

#[test]
fn listed_containers_tell_their_state() {
    let check = |state: i32, expected: ListedState| {
        let listed = listed_container(proto::Container {
            id: "c".to_owned(),
            pod_sandbox_id: "s".to_owned(),
            state,
            image_ref: "sha256:1".to_owned(),
            labels: kubelet_labels(),
            ..Default::default()
        });
        assert_eq!(
            listed,
            Some(ListedContainer {
                id: "c".into(),
                uid: "u".into(),
                name: "main".into(),
                sandbox: "s".into(),
                state: expected,
                image_ref: "sha256:1".to_owned(),
                created_at: Timestamp::from_nanos(0),
            })
        );
    };
    check(0, ListedState::Created);
    check(1, ListedState::Running);
    check(2, ListedState::Exited);
    check(3, ListedState::Unknown);
    check(77, ListedState::Unknown);
    assert_eq!(listed_container(proto::Container::default()), None);
}

#[test]
fn a_status_without_conditions_is_not_ready() {
    let status = status(proto::StatusResponse::default(), None);
    assert!(!status.runtime.is_ok && !status.network.is_ok);
    assert!(status.handlers.is_empty() && !status.has_supplemental_groups_policy);
}

#[test]
fn a_status_tells_conditions_and_sorted_handlers() {
    let handler = |name: &str, user_namespaces| proto::RuntimeHandler {
        name: name.to_owned(),
        features: Some(proto::RuntimeHandlerFeatures {
            recursive_read_only_mounts: true,
            user_namespaces,
        }),
    };
    let answer = proto::StatusResponse {
        status: Some(proto::RuntimeStatus {
            conditions: vec![
                proto::RuntimeCondition {
                    r#type: "RuntimeReady".to_owned(),
                    status: true,
                    ..Default::default()
                },
                proto::RuntimeCondition {
                    r#type: "NetworkReady".to_owned(),
                    status: false,
                    reason: "NetworkPluginNotReady".to_owned(),
                    message: "no config".to_owned(),
                },
            ],
        }),
        runtime_handlers: vec![handler("runc", false), handler("", true)],
        features: Some(proto::RuntimeFeatures {
            supplemental_groups_policy: true,
            ..Default::default()
        }),
        ..Default::default()
    };
    let status = status(answer, Some(CgroupDriver::Systemd));
    assert!(status.runtime.is_ok && status.has_supplemental_groups_policy);
    assert_eq!(status.network.reason, "NetworkPluginNotReady");
    assert_eq!(status.network.message, "no config");
    let names: Vec<_> = status
        .handlers
        .iter()
        .map(|handler| (handler.name.as_str(), handler.user_namespaces))
        .collect();
    assert_eq!(names, [("", true), ("runc", false)]);
    assert_eq!(status.cgroup_driver, Some(CgroupDriver::Systemd));
}

#[test]
fn the_cgroup_driver_is_unknown_until_told() {
    let answer = |driver: i32| proto::RuntimeConfigResponse {
        linux: Some(proto::LinuxRuntimeConfiguration { cgroup_driver: driver }),
    };
    assert_eq!(cgroup_driver(answer(0)), Some(CgroupDriver::Systemd));
    assert_eq!(cgroup_driver(answer(1)), Some(CgroupDriver::Cgroupfs));
    assert_eq!(cgroup_driver(proto::RuntimeConfigResponse::default()), None);
}

#[test]
fn events_find_their_pod_wherever_it_is_named() {
    let sandbox = |uid: &str, labels| proto::PodSandboxStatus {
        metadata: Some(proto::PodSandboxMetadata { uid: uid.to_owned(), ..Default::default() }),
        labels,
        ..Default::default()
    };
    let check = |sandbox, containers: Vec<Labels>, uid: Option<&str>| {
        let event = event(proto::ContainerEventResponse {
            container_id: "c".to_owned(),
            container_event_type: 2,
            pod_sandbox_status: sandbox,
            containers_statuses: containers
                .into_iter()
                .map(|labels| proto::ContainerStatus { labels, ..Default::default() })
                .collect(),
            ..Default::default()
        });
        let expected = uid.map(|uid| RuntimeEvent {
            uid: uid.into(),
            id: "c".to_owned(),
            kind: RuntimeEventKind::Stopped,
        });
        assert_eq!(event, expected);
    };
    check(Some(sandbox("m", kubelet_labels())), vec![], Some("m"));
    check(Some(sandbox("", kubelet_labels())), vec![], Some("u"));
    check(None, vec![Labels::new(), kubelet_labels()], Some("u"));
    check(None, vec![], None);
}

#[test]
fn no_time_is_never() {
    assert_eq!(moment(0), None);
    assert_eq!(moment(-6_795_364_578_871_345_152), None);
    assert_eq!(moment(1_000_000_000), Some(Timestamp::from_second(1)));
}

#[test]
fn an_image_keeps_user_and_pin() {
    let image = image(proto::Image {
        id: "sha256:1".to_owned(),
        size: 9,
        uid: Some(proto::Int64Value { value: 0 }),
        pinned: true,
        ..Default::default()
    });
    assert_eq!((image.size, image.user_id, image.is_pinned), (9, Some(0), true));
}
