//! A recorded pod comes out as upstream's own requests, field by field.
//!
//! The recording is protobuf as JSON, so zero values are absent and enums are numbers; the encoders
//! below write ours the same way. Environment is compared as a set, because upstream's order is a
//! Go map's.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its recording has failed")]

use std::{collections::BTreeMap, path::PathBuf};

use ferrolet_node::NodeState;
use ferrolet_resources::QuotaMode;
use ferrolet_spec::{
    ContainerInputs, ContainerSpec, EnvObjects, ImageUser, LinuxResources, Mount, NamespaceMode,
    NodeDns, PluginResources, ResolvConf, SandboxInputs, SandboxSpec, SeccompProfile, SecuritySpec,
    Services, SpecSettings, VolumeSource, container_spec, sandbox_spec,
};
use ferrolet_types::pod::PodView as _;
use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::{Map, Value, json};

const UID: &str = "694f75d5-9d44-4bfd-8ebc-08a54c20f621";
const IMAGE: &str = "sha256:b71f091e9cc35e1e2b72b64fa9bd34578c345da9e1509aff51d60dc4a9d0f09f";

fn recorded(name: &str) -> Value {
    let text = match name {
        "pod" => include_str!("golden/pod.json"),
        "sandbox" => include_str!("golden/sandbox.json"),
        "first" => include_str!("golden/container-first.json"),
        "side" => include_str!("golden/container-side.json"),
        "main" => include_str!("golden/container-main.json"),
        other => panic!("nothing recorded as {other}"),
    };
    serde_json::from_str(text).unwrap()
}

fn pod() -> Pod {
    serde_json::from_value(recorded("pod")).unwrap()
}

fn settings() -> SpecSettings {
    let mut settings = SpecSettings::example();
    settings.resources.memory_capacity = 24_682_416 * 1024;
    settings.resources.huge_page_sizes = vec!["2MB".to_owned(), "1GB".to_owned()];
    settings
}

#[test]
fn the_recorded_sandbox_comes_out_the_same() {
    let dns = NodeDns {
        cluster_dns: vec!["10.96.0.10".to_owned()],
        cluster_domain: "cluster.local".to_owned(),
        resolv_conf: Some(ResolvConf::default()),
        node_ips: vec!["10.87.0.1".to_owned()],
    };
    let inputs = SandboxInputs {
        settings: &settings(),
        dns: &dns,
        attempt: 0,
        cgroup_parent: format!("/kubepods/burstable/pod{UID}"),
        log_directory: PathBuf::from(format!("/var/log/pods/default_rich_{UID}")),
        runtime_handler: String::new(),
        user_mappings: Vec::new(),
        extra_groups: Vec::new(),
    };
    let spec = sandbox_spec(&pod(), &inputs).unwrap();
    assert_eq!(encode_sandbox(&spec), recorded("sandbox"));
}

#[test]
fn the_recorded_containers_come_out_the_same() {
    check("first", "97be1acb");
    check("side", "5de70e7d");
    check("main", "ae057d8e");
}

fn check(name: &str, termination_log: &str) {
    let directory = format!("/var/lib/kubelet/pods/{UID}");
    let volume = |kind: &str, name: &str, is_read_only: bool| {
        let source = VolumeSource {
            host_path: format!("{directory}/volumes/kubernetes.io~{kind}/{name}"),
            is_read_only,
            selinux_relabel: true,
            ..VolumeSource::default()
        };
        (name.to_owned(), source)
    };
    let mut volumes = BTreeMap::from([
        volume("configmap", "c", true),
        volume("empty-dir", "e", false),
        volume("host-path", "h", false),
        volume("projected", "kube-api-access-8rltk", true),
    ]);
    volumes.get_mut("h").unwrap().host_path = "/opt".to_owned();
    let sub_paths = BTreeMap::from([(2, format!("{directory}/volume-subpaths/e/main/2"))]);
    let kubernetes: Service = serde_json::from_value(json!({
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]}}))
    .unwrap();
    let objects =
        EnvObjects { services: Services::Read(vec![kubernetes.into()]), ..EnvObjects::default() };
    let hosts_file = PathBuf::from(format!("{directory}/etc-hosts"));
    let log = PathBuf::from(format!("{directory}/containers/{name}/{termination_log}"));
    let inputs = ContainerInputs {
        settings: &settings(),
        node: &NodeState::example(),
        objects: &objects,
        volumes: &volumes,
        sub_paths: &sub_paths,
        restart_count: 0,
        n_left_behind: 0,
        crash_streak: 0,
        image_ref: IMAGE.to_owned(),
        image_user: ImageUser::Id(0),
        pod_ips: &["10.88.2.135".to_owned()],
        hosts_file: Some(&hosts_file),
        termination_log: Some(&log),
        target: None,
        user_mappings: &[],
        extra_groups: &[],
        supports_recursive_read_only: true,
        plugins: PluginResources::default(),
        quota: QuotaMode::Enforced,
    };
    let pod = pod();
    let (kind, container) = pod.find_container(name).unwrap();
    let spec = container_spec(&pod, kind, container, &inputs).unwrap();
    let mut expected = recorded(name);
    sort_env(&mut expected);
    assert_eq!(encode_container(&spec), expected, "{name}");
}

fn sort_env(config: &mut Value) {
    let env = config["envs"].as_array_mut().unwrap();
    env.sort_by_key(|pair| pair["key"].as_str().unwrap().to_owned());
}

fn encode_sandbox(spec: &SandboxSpec) -> Value {
    let ports = spec.port_mappings.iter().map(|port| {
        json!({"container_port": port.container_port, "host_port": port.host_port, "host_ip": port.host_ip})
    });
    let mut value = json!({
        "metadata": {
            "name": &*spec.key.name, "namespace": &*spec.key.namespace, "uid": spec.uid.as_str(), "attempt": spec.attempt},
        "hostname": spec.hostname,
        "log_directory": spec.log_directory,
        "dns_config": {"servers": spec.dns.servers, "searches": spec.dns.searches, "options": spec.dns.options},
        "port_mappings": ports.collect::<Vec<_>>(),
        "labels": spec.labels,
        "annotations": spec.annotations,
        "linux": {
            "cgroup_parent": spec.cgroup_parent,
            "sysctls": spec.sysctls,
            "security_context": encode_security(&spec.security),
            "resources": encode_resources(&spec.resources)},
    });
    prune(&mut value);
    value["linux"]["overhead"] = encode_resources(&spec.overhead);
    prune(&mut value["linux"]["overhead"]);
    value["linux"]["security_context"]["seccomp"] = encode_profile(&spec.security.seccomp);
    value
}

fn encode_container(spec: &ContainerSpec) -> Value {
    let env = spec.env.iter();
    let env = env.map(|(key, value)| json!({"key": key, "value": value}));
    let pages = spec.resources.hugepage_limits.iter();
    let pages = pages.map(|(size, limit)| json!({"page_size": size, "limit": limit}));
    let mut resources = encode_resources(&spec.resources);
    resources["hugepage_limits"] = pages.collect();
    let mut value = json!({
        "metadata": {"name": spec.name.as_str(), "attempt": spec.attempt},
        "image": {"image": spec.image_ref, "user_specified_image": spec.image},
        "command": spec.command,
        "args": spec.args,
        "working_dir": spec.working_dir,
        "envs": env.collect::<Vec<_>>(),
        "mounts": spec.mounts.iter().map(encode_mount).collect::<Vec<_>>(),
        "labels": spec.labels,
        "annotations": spec.annotations,
        "log_path": spec.log_path,
        "stdin": spec.stdin,
        "tty": spec.tty,
        "linux": {"resources": resources, "security_context": encode_security(&spec.security)},
    });
    prune(&mut value);
    sort_env(&mut value);
    value["linux"]["security_context"]["seccomp"] = encode_profile(&spec.security.seccomp);
    value
}

fn encode_mount(mount: &Mount) -> Value {
    assert!(mount.image.is_none() && mount.uid_mappings.is_empty());
    json!({
        "container_path": mount.container_path,
        "host_path": mount.host_path,
        "readonly": mount.read_only,
        "recursive_read_only": mount.recursive_read_only,
        "selinux_relabel": mount.selinux_relabel})
}

fn encode_resources(resources: &LinuxResources) -> Value {
    json!({
        "cpu_period": resources.cpu_period,
        "cpu_quota": resources.cpu_quota,
        "cpu_shares": resources.cpu_shares,
        "memory_limit_in_bytes": resources.memory_limit,
        "memory_swap_limit_in_bytes": resources.memory_swap_limit,
        "oom_score_adj": resources.oom_score_adj,
        "cpuset_cpus": resources.cpuset_cpus,
        "cpuset_mems": resources.cpuset_mems,
        "unified": resources.unified})
}

fn encode_security(security: &SecuritySpec) -> Value {
    let mode = |mode: NamespaceMode| match mode {
        NamespaceMode::Pod => 0,
        NamespaceMode::Container => 1,
        NamespaceMode::Node => 2,
        NamespaceMode::Target => 3,
    };
    let namespaces = &security.namespaces;
    assert!(namespaces.user_mappings.is_empty() && security.selinux.is_none());
    json!({
        "privileged": security.privileged,
        "namespace_options": {
            "network": mode(namespaces.network), "pid": mode(namespaces.pid), "ipc": mode(namespaces.ipc),
            "target_id": namespaces.target, "userns_options": {"mode": 2}},
        "run_as_user": security.run_as_user.map(|id| json!({"value": id})),
        "run_as_username": security.run_as_username,
        "run_as_group": security.run_as_group.map(|id| json!({"value": id})),
        "supplemental_groups": security.supplemental_groups,
        "readonly_rootfs": security.read_only_root,
        "no_new_privs": security.no_new_privileges,
        "capabilities": {
            "add_capabilities": security.add_capabilities, "drop_capabilities": security.drop_capabilities},
        "masked_paths": security.masked_paths,
        "readonly_paths": security.readonly_paths})
}

/// `RuntimeDefault` is the zero of its enum, so a message with nothing in it.
fn encode_profile(profile: &SeccompProfile) -> Value {
    match profile {
        SeccompProfile::RuntimeDefault => json!({}),
        SeccompProfile::Unconfined => json!({"profile_type": 1}),
        SeccompProfile::Localhost(path) => json!({"profile_type": 2, "localhost_ref": path}),
    }
}

/// Drops what protobuf's JSON leaves out.
fn prune(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(prune);
            let kept: Map<String, Value> =
                std::mem::take(members).into_iter().filter(|(_, value)| !is_zero(value)).collect();
            *members = kept;
        }
        Value::Array(elements) => elements.iter_mut().for_each(prune),
        _ => {}
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}
