//! Pods and runtime requests for tests, with the defaults that the API server gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrolet_spec::{
    ContainerSpec, DnsSpec, LinuxResources, NamespaceMode, Namespaces, SandboxSpec, SeccompProfile,
    SecuritySpec, SupplementalGroupsPolicy,
};
use ferrolet_types::hash::fnv1a_128;
use ferrolet_types::pod::{HASH_ANNOTATION, PodView as _, RestartPolicy, SEEN_ANNOTATION};
use ferrolet_types::pod::{PodSource, SOURCE_ANNOTATION};
use ferrolet_types::{ContainerName, Pod, Timestamp};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::files::log_directory;
use crate::observe::{
    CONTAINER_NAME_LABEL, POD_UID_LABEL, RESTART_COUNT, SPEC_HASH, TERMINATION_PATH,
    TERMINATION_POLICY,
};

/// A pod in the making: see [`pod`].
#[derive(Clone)]
pub struct PodBuilder {
    pod: api::Pod,
    source: PodSource,
}

/// Begins a pod of that name in namespace `default`, from the API, without containers.
pub fn pod(name: &str) -> PodBuilder {
    let spec = api::PodSpec {
        dns_policy: Some("ClusterFirst".to_owned()),
        enable_service_links: Some(true),
        node_name: Some("node".to_owned()),
        restart_policy: Some("Always".to_owned()),
        scheduler_name: Some("default-scheduler".to_owned()),
        security_context: Some(api::PodSecurityContext::default()),
        termination_grace_period_seconds: Some(30),
        ..Default::default()
    };
    let pod = api::Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            ..Default::default()
        },
        spec: Some(spec),
        status: Some(api::PodStatus { phase: Some("Pending".to_owned()), ..Default::default() }),
    };
    PodBuilder { pod, source: PodSource::Api }
}

impl PodBuilder {
    /// Puts it into another namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.pod.metadata.namespace = Some(namespace.to_owned());
        self
    }

    /// Gives it that identity instead of one derived from its name.
    pub fn uid(mut self, uid: &str) -> Self {
        self.pod.metadata.uid = Some(uid.to_owned());
        self
    }

    /// Adds a container.
    pub fn container(self, name: &str, image: &str) -> Self {
        self.edit_spec(|spec| spec.containers.push(container(name, image)))
    }

    /// Adds an init container.
    pub fn init(self, name: &str, image: &str) -> Self {
        self.edit_spec(|spec| {
            let list = spec.init_containers.get_or_insert_default();
            list.push(container(name, image));
        })
    }

    /// Adds an init container that keeps running.
    pub fn sidecar(self, name: &str, image: &str) -> Self {
        self.edit_spec(|spec| {
            let mut container = container(name, image);
            container.restart_policy = Some("Always".to_owned());
            spec.init_containers.get_or_insert_default().push(container);
        })
    }

    /// Changes a container that was added before, of whatever kind.
    pub fn edit_container(self, name: &str, edit: impl FnOnce(&mut api::Container)) -> Self {
        self.edit_spec(|spec| {
            let init = spec.init_containers.iter_mut().flatten();
            let mut all = init.chain(&mut spec.containers);
            edit(all.find(|it| it.name == name).expect("the container was added before"));
        })
    }

    /// Limits a container's CPU and memory, and requests the same.
    pub fn limits(self, name: &str, cpu: &str, memory: &str) -> Self {
        let list = BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu.to_owned())),
            ("memory".to_owned(), Quantity(memory.to_owned())),
        ]);
        self.edit_container(name, |container| {
            let resources = container.resources.get_or_insert_default();
            resources.limits = Some(list.clone());
            resources.requests = Some(list);
        })
    }

    /// Sets when its containers restart.
    pub fn restart_policy(self, policy: RestartPolicy) -> Self {
        let policy = match policy {
            RestartPolicy::Always => "Always",
            RestartPolicy::OnFailure => "OnFailure",
            RestartPolicy::Never => "Never",
        };
        self.edit_spec(|spec| spec.restart_policy = Some(policy.to_owned()))
    }

    /// Sets its grace period in seconds.
    pub fn grace(self, secs: i64) -> Self {
        self.edit_spec(|spec| spec.termination_grace_period_seconds = Some(secs))
    }

    /// Uses the node's network.
    pub fn host_network(self) -> Self {
        self.edit_spec(|spec| spec.host_network = Some(true))
    }

    /// Adds an empty directory as a volume.
    pub fn empty_dir(self, name: &str) -> Self {
        self.edit_spec(|spec| {
            spec.volumes.get_or_insert_default().push(api::Volume {
                name: name.to_owned(),
                empty_dir: Some(api::EmptyDirVolumeSource::default()),
                ..Default::default()
            });
        })
    }

    /// Makes it a static pod from a file: source annotations, the hash as UID, the toleration every
    /// static pod has.
    pub fn static_file(mut self) -> Self {
        self.source = PodSource::File;
        self
    }

    /// Makes it a static pod from a URL.
    pub fn static_http(mut self) -> Self {
        self.source = PodSource::Http;
        self
    }

    /// Adds a label.
    pub fn label(mut self, name: &str, value: &str) -> Self {
        let labels = self.pod.metadata.labels.get_or_insert_default();
        labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Adds an annotation.
    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        let annotations = self.pod.metadata.annotations.get_or_insert_default();
        annotations.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Marks it as being deleted since then, with that grace.
    pub fn deleting(mut self, since: Timestamp, grace_secs: i64) -> Self {
        self.pod.metadata.deletion_timestamp = Some(Time(since.0));
        self.pod.metadata.deletion_grace_period_seconds = Some(grace_secs);
        self
    }

    /// Changes whatever has no method of its own.
    pub fn edit(mut self, edit: impl FnOnce(&mut api::Pod)) -> Self {
        edit(&mut self.pod);
        self
    }

    /// Changes whatever of the specification has no method of its own.
    pub fn edit_spec(mut self, edit: impl FnOnce(&mut api::PodSpec)) -> Self {
        edit(self.pod.spec.get_or_insert_default());
        self
    }

    /// The pod.
    pub fn build(mut self) -> Pod {
        let key = self.pod.key().to_string();
        let hash = format!("{:032x}", fnv1a_128(key.as_bytes()));
        let is_static = self.source != PodSource::Api;
        let uid = self.pod.metadata.uid.get_or_insert_with(|| {
            if is_static {
                return hash.clone();
            }
            let parts = [&hash[..8], &hash[8..12], &hash[12..16], &hash[16..20], &hash[20..]];
            parts.join("-")
        });
        let uid = uid.clone();
        let source = self.source.as_str();
        let mut built = self
            .annotation(SOURCE_ANNOTATION, source)
            .annotation(SEEN_ANNOTATION, "2026-01-01T00:00:00.000000000Z");
        if is_static {
            built = built.annotation(HASH_ANNOTATION, &uid).edit_spec(|spec| {
                spec.tolerations.get_or_insert_default().push(api::Toleration {
                    effect: Some("NoExecute".to_owned()),
                    operator: Some("Exists".to_owned()),
                    ..Default::default()
                });
            });
        }
        Arc::new(built.pod)
    }
}

fn container(name: &str, image: &str) -> api::Container {
    let last = image.rsplit('/').next().unwrap_or_default();
    let is_latest = last.ends_with(":latest") || !last.contains([':', '@']);
    let pull_policy = if is_latest { "Always" } else { "IfNotPresent" };
    api::Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some(pull_policy.to_owned()),
        resources: Some(api::ResourceRequirements::default()),
        termination_message_path: Some("/dev/termination-log".to_owned()),
        termination_message_policy: Some("File".to_owned()),
        ..Default::default()
    }
}

/// A plain request for a pod's sandbox, as `ferrolet-spec` would make it for a simple pod.
pub fn sandbox_spec(pod: &api::Pod, attempt: u32) -> SandboxSpec {
    let (uid, key) = (pod.uid(), pod.key());
    let network = if pod.is_host_network() { NamespaceMode::Node } else { NamespaceMode::Pod };
    SandboxSpec {
        attempt,
        hostname: key.name.to_string(),
        log_directory: log_directory(&key, &uid),
        dns: DnsSpec::default(),
        port_mappings: Vec::new(),
        labels: labels(pod),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        cgroup_parent: format!("/kubepods/besteffort/pod{uid}"),
        sysctls: BTreeMap::new(),
        security: security(network),
        resources: LinuxResources::default(),
        overhead: LinuxResources::default(),
        runtime_handler: String::new(),
        uid,
        key,
    }
}

/// A plain request for one of a pod's containers; the image is named as the pod names it.
pub fn container_spec(pod: &api::Pod, name: &str, attempt: u32) -> ContainerSpec {
    let (_, container) = pod.find_container(name).expect("the pod has a container of that name");
    let image = container.image.clone().unwrap_or_default();
    let network = if pod.is_host_network() { NamespaceMode::Node } else { NamespaceMode::Pod };
    let mut labels = labels(pod);
    labels.insert(CONTAINER_NAME_LABEL.to_owned(), name.to_owned());
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let annotations = BTreeMap::from([
        (SPEC_HASH.to_owned(), "85580d84".to_owned()),
        (RESTART_COUNT.to_owned(), attempt.to_string()),
        (TERMINATION_PATH.to_owned(), text(&container.termination_message_path)),
        (TERMINATION_POLICY.to_owned(), text(&container.termination_message_policy)),
    ]);
    ContainerSpec {
        name: ContainerName::new(name),
        attempt,
        image_ref: image.clone(),
        image,
        command: container.command.clone().unwrap_or_default(),
        args: container.args.clone().unwrap_or_default(),
        working_dir: String::new(),
        env: Vec::new(),
        mounts: Vec::new(),
        devices: Vec::new(),
        cdi_devices: Vec::new(),
        labels,
        annotations,
        log_path: format!("{name}/{attempt}.log"),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: LinuxResources::default(),
        security: security(network),
        stop_signal: None,
    }
}

fn labels(pod: &api::Pod) -> BTreeMap<String, String> {
    let key = pod.key();
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    let own = [
        ("io.kubernetes.pod.name", key.name.to_string()),
        ("io.kubernetes.pod.namespace", key.namespace.to_string()),
        (POD_UID_LABEL, pod.uid().to_string()),
    ];
    labels.extend(own.map(|(name, value)| (name.to_owned(), value)));
    labels
}

fn security(network: NamespaceMode) -> SecuritySpec {
    SecuritySpec {
        privileged: false,
        namespaces: Namespaces {
            network,
            pid: NamespaceMode::Container,
            ipc: NamespaceMode::Pod,
            target: String::new(),
            user_mappings: Vec::new(),
        },
        run_as_user: None,
        run_as_username: String::new(),
        run_as_group: None,
        supplemental_groups: Vec::new(),
        supplemental_groups_policy: SupplementalGroupsPolicy::Merge,
        read_only_root: false,
        no_new_privileges: false,
        add_capabilities: Vec::new(),
        drop_capabilities: Vec::new(),
        seccomp: SeccompProfile::Unconfined,
        apparmor: None,
        selinux: None,
        masked_paths: Vec::new(),
        readonly_paths: Vec::new(),
    }
}
