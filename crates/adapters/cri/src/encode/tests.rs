//! Encodings as values, and against the requests that upstream's kubelet was seen to send for the
//! same pod.

use std::collections::BTreeMap;

use ferrolet_types::{PodKey, PodUid};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::Value;

use super::*;

const UID: &str = "694f75d5-9d44-4bfd-8ebc-08a54c20f621";

/// Reads a recorded request through the schema, so that it can be compared message by message.
fn recorded<M: Message + Default>(name: &str, json: &str) -> M {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let mut value: Value = serde_json::from_str(json).unwrap();
    // The recorder wrote values of variables as text; protobuf's JSON wants bytes in base64.
    let envs = value.get_mut("envs").and_then(Value::as_array_mut);
    for env in envs.into_iter().flatten() {
        env["value"] = BASE64_STANDARD.encode(env["value"].as_str().unwrap()).into();
    }
    let files = protox::compile(
        [concat!(env!("CARGO_MANIFEST_DIR"), "/../../cri-proto/proto/runtime/v1/api.proto")],
        [concat!(env!("CARGO_MANIFEST_DIR"), "/../../cri-proto/proto")],
    )
    .unwrap();
    let pool = DescriptorPool::from_file_descriptor_set(files).unwrap();
    let descriptor = pool.get_message_by_name(name).unwrap();
    DynamicMessage::deserialize(descriptor, value).unwrap().transcode_to().unwrap()
}

fn text(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|item| (*item).to_owned()).collect()
}

fn rich_security() -> spec::SecuritySpec {
    spec::SecuritySpec {
        privileged: false,
        namespaces: spec::Namespaces {
            network: spec::NamespaceMode::Pod,
            pid: spec::NamespaceMode::Container,
            ipc: spec::NamespaceMode::Pod,
            target: String::new(),
            user_mappings: Vec::new(),
        },
        run_as_user: Some(1001),
        run_as_username: String::new(),
        run_as_group: None,
        supplemental_groups: vec![2000, 3000],
        supplemental_groups_policy: spec::SupplementalGroupsPolicy::Merge,
        read_only_root: false,
        no_new_privileges: false,
        add_capabilities: Vec::new(),
        drop_capabilities: Vec::new(),
        seccomp: spec::SeccompProfile::RuntimeDefault,
        apparmor: None,
        selinux: None,
        masked_paths: Vec::new(),
        readonly_paths: Vec::new(),
    }
}

pub(crate) fn rich_sandbox() -> spec::SandboxSpec {
    spec::SandboxSpec {
        uid: PodUid::from(UID),
        key: PodKey::new("default", "rich"),
        attempt: 0,
        hostname: "rich".to_owned(),
        log_directory: format!("/var/log/pods/default_rich_{UID}").into(),
        dns: spec::DnsSpec {
            servers: strings(&["10.96.0.10"]),
            searches: strings(&["default.svc.cluster.local", "svc.cluster.local", "cluster.local"]),
            options: strings(&["ndots:5"]),
        },
        port_mappings: vec![spec::PortMapping {
            protocol: "TCP",
            container_port: 8080,
            host_port: 18080,
            host_ip: String::new(),
        }],
        labels: text(&[
            ("app", "rich"),
            ("io.kubernetes.pod.name", "rich"),
            ("io.kubernetes.pod.namespace", "default"),
            ("io.kubernetes.pod.uid", UID),
        ]),
        annotations: text(&[
            ("kubernetes.io/config.seen", "2026-11-15T21:02:10.529800859Z"),
            ("kubernetes.io/config.source", "api"),
            ("note", "hello"),
        ]),
        cgroup_parent: format!("/kubepods/burstable/pod{UID}"),
        sysctls: BTreeMap::new(),
        security: rich_security(),
        resources: spec::LinuxResources {
            cpu_period: 100_000,
            cpu_quota: 50_000,
            cpu_shares: 102,
            memory_limit: 67_108_864,
            ..Default::default()
        },
        overhead: spec::LinuxResources::default(),
        runtime_handler: String::new(),
    }
}

pub(crate) fn rich_container() -> spec::ContainerSpec {
    let volumes = format!("/var/lib/kubelet/pods/{UID}");
    let mount = |container_path: &str, host_path: String, read_only| spec::Mount {
        container_path: container_path.to_owned(),
        host_path,
        read_only,
        ..Default::default()
    };
    let env = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    spec::ContainerSpec {
        name: "main".into(),
        attempt: 0,
        image_ref: "sha256:b71f091e9cc35e1e2b72b64fa9bd34578c345da9e1509aff51d60dc4a9d0f09f"
            .to_owned(),
        image: "docker.io/library/busybox:latest".to_owned(),
        command: strings(&["sh", "-c", "while true; do echo tick; sleep 1; done"]),
        args: Vec::new(),
        working_dir: String::new(),
        env: env(&[
            ("POD", "rich"),
            ("A", "b"),
            ("KUBERNETES_SERVICE_PORT", "443"),
            ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
            ("KUBERNETES_PORT", "tcp://10.96.0.1:443"),
            ("KUBERNETES_PORT_443_TCP", "tcp://10.96.0.1:443"),
            ("KUBERNETES_PORT_443_TCP_PROTO", "tcp"),
            ("KUBERNETES_PORT_443_TCP_PORT", "443"),
            ("KUBERNETES_PORT_443_TCP_ADDR", "10.96.0.1"),
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
        ]),
        mounts: vec![
            mount("/c", format!("{volumes}/volumes/kubernetes.io~configmap/c"), true),
            mount("/e", format!("{volumes}/volumes/kubernetes.io~empty-dir/e"), false),
            mount("/s", format!("{volumes}/volume-subpaths/e/main/2"), false),
            mount("/h", "/opt".to_owned(), true),
            mount(
                "/var/run/secrets/kubernetes.io/serviceaccount",
                format!("{volumes}/volumes/kubernetes.io~projected/kube-api-access-8rltk"),
                true,
            ),
            mount("/etc/hosts", format!("{volumes}/etc-hosts"), false),
            mount("/dev/termination-log", format!("{volumes}/containers/main/ae057d8e"), false),
        ],
        devices: Vec::new(),
        cdi_devices: Vec::new(),
        labels: text(&[
            ("io.kubernetes.container.name", "main"),
            ("io.kubernetes.pod.name", "rich"),
            ("io.kubernetes.pod.namespace", "default"),
            ("io.kubernetes.pod.uid", UID),
        ]),
        annotations: text(&[
            ("io.kubernetes.container.hash", "85580d84"),
            (
                "io.kubernetes.container.ports",
                r#"[{"name":"web","hostPort":18080,"containerPort":8080,"protocol":"TCP"}]"#,
            ),
            ("io.kubernetes.container.preStopHandler", r#"{"sleep":{"seconds":1}}"#),
            ("io.kubernetes.container.restartCount", "0"),
            ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
            ("io.kubernetes.container.terminationMessagePolicy", "File"),
            ("io.kubernetes.pod.terminationGracePeriod", "7"),
        ]),
        log_path: "main/0.log".to_owned(),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: spec::LinuxResources {
            cpu_period: 100_000,
            cpu_quota: 50_000,
            cpu_shares: 102,
            memory_limit: 67_108_864,
            memory_swap_limit: 67_108_864,
            oom_score_adj: 999,
            hugepage_limits: vec![("2MB".to_owned(), 0), ("1GB".to_owned(), 0)],
            ..Default::default()
        },
        security: spec::SecuritySpec {
            read_only_root: true,
            no_new_privileges: true,
            add_capabilities: strings(&["NET_BIND_SERVICE"]),
            drop_capabilities: strings(&["ALL"]),
            masked_paths: strings(&[
                "/proc/asound",
                "/proc/acpi",
                "/proc/interrupts",
                "/proc/kcore",
                "/proc/keys",
                "/proc/latency_stats",
                "/proc/timer_list",
                "/proc/timer_stats",
                "/proc/sched_debug",
                "/proc/scsi",
                "/sys/firmware",
                "/sys/devices/virtual/powercap",
            ]),
            readonly_paths: strings(&[
                "/proc/bus",
                "/proc/fs",
                "/proc/irq",
                "/proc/sys",
                "/proc/sysrq-trigger",
            ]),
            ..rich_security()
        },
        stop_signal: None,
    }
}

#[test]
fn a_sandbox_is_asked_for_as_upstream_asks() {
    let upstream: proto::PodSandboxConfig =
        recorded("runtime.v1.PodSandboxConfig", include_str!("../../tests/recorded/sandbox.json"));
    assert_eq!(sandbox_config(&rich_sandbox()), upstream);
}

#[test]
fn a_container_is_asked_for_as_upstream_asks() {
    let upstream: proto::ContainerConfig =
        recorded("runtime.v1.ContainerConfig", include_str!("../../tests/recorded/container.json"));
    let ours = container_config(&rich_container());
    // `Debug` hides the values of variables, so a difference there would be hard to see in the next
    // comparison.
    for (ours, theirs) in ours.envs.iter().zip(&upstream.envs) {
        assert_eq!(ours.value, theirs.value, "{}", ours.key);
    }
    assert_eq!(ours, upstream);
}

#[test]
fn profiles_keep_their_kind_and_name() {
    let check = |ours: spec::SeccompProfile, kind: i32, reference: &str, old: &str| {
        assert_eq!(
            profile(&ours),
            proto::SecurityProfile { profile_type: kind, localhost_ref: reference.to_owned() }
        );
        assert_eq!(old_apparmor(&ours), old);
    };
    check(spec::SeccompProfile::RuntimeDefault, 0, "", "runtime/default");
    check(spec::SeccompProfile::Unconfined, 1, "", "unconfined");
    let local = spec::SeccompProfile::Localhost("mine".to_owned());
    check(local, 2, "mine", "localhost/mine");
}

#[test]
fn namespaces_are_the_nodes_only_when_asked_for() {
    let check = |ours: &spec::Namespaces, numbers: [i32; 4], n_mappings: usize| {
        let encoded = namespaces(ours);
        let user = encoded.userns_options.unwrap();
        let got = [encoded.network, encoded.pid, encoded.ipc, user.mode];
        assert_eq!(got, numbers, "{ours:?}");
        assert_eq!(user.uids.len(), n_mappings);
        assert_eq!(user.gids, user.uids);
    };
    let pod = rich_security().namespaces;
    check(&pod, [0, 1, 0, 2], 0);
    let node = spec::Namespaces {
        network: spec::NamespaceMode::Node,
        pid: spec::NamespaceMode::Node,
        ipc: spec::NamespaceMode::Node,
        ..pod.clone()
    };
    check(&node, [2, 2, 2, 2], 0);
    let own_users = spec::Namespaces {
        pid: spec::NamespaceMode::Target,
        user_mappings: vec![spec::IdMapping { host_id: 65536, container_id: 0, length: 65536 }],
        ..pod
    };
    check(&own_users, [0, 3, 0, 0], 1);
}

#[test]
fn signals_are_known_by_their_api_names() {
    let check = |name: &str, number: i32| assert_eq!(signal(name) as i32, number, "{name}");
    check("SIGABRT", 1);
    check("SIGTERM", 23);
    check("SIGUSR2", 30);
    check("SIGRTMIN", 35);
    check("SIGRTMIN+15", 50);
    check("SIGRTMAX-14", 51);
    check("SIGRTMAX", 65);
    check("SIGNONSENSE", 0);
}

#[test]
fn ports_mounts_and_labels_keep_their_kind() {
    let port = |protocol| {
        port_mapping(&spec::PortMapping {
            protocol,
            container_port: 1,
            host_port: 2,
            host_ip: "127.0.0.1".to_owned(),
        })
        .protocol
    };
    assert_eq!([port("TCP"), port("UDP"), port("SCTP")], [0, 1, 2]);
    let propagation =
        |propagation| mount(&spec::Mount { propagation, ..Default::default() }).propagation;
    assert_eq!(propagation(spec::Propagation::Private), 0);
    assert_eq!(propagation(spec::Propagation::HostToContainer), 1);
    assert_eq!(propagation(spec::Propagation::Bidirectional), 2);
    let label =
        selinux(&spec::SelinuxLabel { kind: "container_t".to_owned(), ..Default::default() });
    assert_eq!(label.r#type, "container_t");
    let image = mount(&spec::Mount {
        image: Some(spec::MountedImage {
            id: "sha256:1".to_owned(),
            named: "registry.example/data:1".to_owned(),
            runtime_handler: "kata".to_owned(),
            annotations: text(&[("a", "b")]),
        }),
        ..Default::default()
    })
    .image;
    let expected = proto::ImageSpec {
        image: "sha256:1".to_owned(),
        user_specified_image: "registry.example/data:1".to_owned(),
        runtime_handler: "kata".to_owned(),
        annotations: text(&[("a", "b")]),
        ..Default::default()
    };
    assert_eq!(image, Some(expected));
}

#[test]
fn debug_output_shows_no_secret() {
    let mut container = rich_container();
    container.env = vec![("PASSWORD".to_owned(), "hunter2".to_owned())];
    let credentials = RegistryAuth {
        username: "hunter2".to_owned(),
        password: "hunter2".to_owned(),
        auth: "hunter2".to_owned(),
        identity_token: "hunter2".to_owned(),
        registry_token: "hunter2".to_owned(),
        server_address: "registry.example".to_owned(),
    };
    let shown = format!("{:?} {:?}", container_config(&container), auth(&credentials));
    assert!(shown.contains("PASSWORD") && shown.contains("registry.example"));
    assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
}
