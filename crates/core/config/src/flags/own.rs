//! The flags that are not part of the configuration: where files are, and what this node is called.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde_json::Value;

use crate::{
    KUBERNETES_VERSION,
    config::{is_label_value, is_qualified_name},
    duration,
    flags::table::{FLAGS, Target},
};

/// Flags of the kubelet itself that can do nothing here, each with its reason.
pub const MEANINGLESS_FLAGS: &[(&str, &str)] = &[
    (
        "experimental-mounter-path",
        "file systems are mounted by the node's own mount program, never by one in a container",
    ),
    (
        "housekeeping-interval",
        "usage is read when somebody asks for it, not collected ahead at a pace",
    ),
];

/// What only the command line can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// The directory of drop-ins.
    pub config_dir: Option<PathBuf>,
    /// How to reach the API server; none means that the node stands alone.
    pub kubeconfig: Option<PathBuf>,
    /// How to ask for a first client certificate.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Whether pods are copied to disk, to start from there while the API server is away. Ours, not
    /// upstream's.
    pub offline_start: bool,
    /// The node's name instead of the host's.
    pub hostname_override: Option<String>,
    /// Where the node's page is served to this machine without asking who looks. Ours, not
    /// upstream's.
    pub page_address: Option<SocketAddr>,
    /// The node's addresses, one or one per family.
    pub node_ips: Vec<IpAddr>,
    /// Certificates we are given or make.
    pub cert_dir: PathBuf,
    /// `external`, or nothing.
    pub cloud_provider: Option<String>,
    /// State of pods and volumes.
    pub root_dir: PathBuf,
    /// Whether containers without a seccomp profile get the default one.
    pub seccomp_default: bool,
    /// Labels for registration.
    pub node_labels: BTreeMap<String, String>,
    /// How long pods are waited for by an agent that starts them once and leaves; none for one that
    /// stays. Ours, not upstream's.
    pub run_once_within: Option<Duration>,
    /// Whether SIGTERM says that the machine goes down, instead of logind. Ours, not upstream's.
    pub shutdown_on_sigterm: bool,
    /// The file that keeps a second kubelet out.
    pub lock_file: Option<PathBuf>,
    /// Whether we exit when somebody else wants that file.
    pub exit_on_lock_contention: bool,
    /// How long a dead container is kept at least.
    pub minimum_container_ttl: Duration,
    /// How many dead instances are kept per container; none means all.
    pub maximum_dead_containers_per_container: Option<u32>,
    /// How many dead containers are kept; none means all.
    pub maximum_dead_containers: Option<u32>,
    /// A program that mounts instead of `mount`.
    pub experimental_mounter_path: Option<PathBuf>,
    /// Whether hard thresholds are left out of allocatable amounts.
    pub experimental_allocatable_ignore_eviction: bool,
    /// The runtime's control group.
    pub runtime_cgroups: Option<String>,
    /// Configuration of credential provider plugins.
    pub image_credential_provider_config: Option<PathBuf>,
    /// Where those plugins are.
    pub image_credential_provider_bin_dir: Option<PathBuf>,
    /// The pace of container statistics.
    pub housekeeping_interval: Duration,
    /// The version to report: ours, or ours with a suffix of the operator's.
    pub kubelet_version: String,
    /// The values as given, for `/flagz`.
    given: BTreeMap<&'static str, String>,
}

impl Flags {
    /// One remark for each flag that was given and can do nothing here, with the reason.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let given = MEANINGLESS_FLAGS.iter().filter(|(name, _)| {
            let flag = FLAGS.iter().find(|flag| flag.name == *name);
            let is_default = |given: &str| {
                flag.is_some_and(|it| matches!(it.target, Target::Own(own) if own == given))
            };
            self.given.get(name).is_some_and(|given| !is_default(given))
        });
        given.map(|(name, why)| format!("--{name} has no effect: {why}")).collect()
    }

    /// Flags that were given, by name, as text.
    pub(super) fn values(&self) -> &BTreeMap<&'static str, String> {
        &self.given
    }
}

/// Builds the flags from the values that were given; faults are appended.
pub(super) fn read(given: &BTreeMap<&'static str, Value>, faults: &mut Vec<String>) -> Flags {
    let text = |name: &str| {
        let default = FLAGS.iter().find(|flag| flag.name == name).map(|flag| flag.target);
        let Some(Target::Own(default)) = default else {
            return String::new();
        };
        given.get(name).and_then(Value::as_str).unwrap_or(default).to_owned()
    };
    let optional = |name: &str| Some(text(name)).filter(|text| !text.is_empty());
    let path = |name: &str| optional(name).map(PathBuf::from);
    let switch = |name: &str| given.get(name).and_then(Value::as_bool).unwrap_or(false);
    let count = |name: &str, default: i64| {
        u32::try_from(given.get(name).and_then(Value::as_i64).unwrap_or(default)).ok()
    };
    let mut period = |name: &str| {
        let nanos = duration::parse(&text(name)).and_then(|nanos| u64::try_from(nanos).ok());
        if nanos.is_none() {
            faults.push(format!("--{name}: must not be negative"));
        }
        Duration::from_nanos(nanos.unwrap_or(0))
    };
    let (minimum_container_ttl, housekeeping_interval) =
        (period("minimum-container-ttl-duration"), period("housekeeping-interval"));
    let run_once_within = Some(period("run-once-within")).filter(|it| !it.is_zero());
    if run_once_within.is_some() && optional("kubeconfig").is_some() {
        faults.push(
            "--run-once-within: a node that has a cluster (--kubeconfig) stays; take one of the two away"
                .to_owned(),
        );
    }
    let cloud_provider = optional("cloud-provider");
    let is_giving_way = switch("exit-on-lock-contention");
    faults.extend(cloud_fault(cloud_provider.as_deref()));
    faults.extend(lock_fault(is_giving_way, optional("lock-file").as_deref()));
    let labels = given.get("node-labels").and_then(Value::as_object).into_iter().flatten();
    let node_labels: BTreeMap<String, String> = labels
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    faults.extend(node_labels.iter().filter_map(|(key, value)| label_fault(key, value)));
    Flags {
        config: path("config"),
        config_dir: path("config-dir"),
        kubeconfig: path("kubeconfig"),
        bootstrap_kubeconfig: path("bootstrap-kubeconfig"),
        offline_start: switch("offline-start"),
        hostname_override: optional("hostname-override"),
        page_address: read_page_address(&text("page-address"), faults),
        node_ips: read_node_ips(&text("node-ip"), faults),
        cert_dir: text("cert-dir").into(),
        cloud_provider,
        root_dir: text("root-dir").into(),
        seccomp_default: switch("seccomp-default"),
        node_labels,
        run_once_within,
        shutdown_on_sigterm: switch("shutdown-on-sigterm"),
        lock_file: path("lock-file"),
        exit_on_lock_contention: is_giving_way,
        minimum_container_ttl,
        maximum_dead_containers_per_container: count("maximum-dead-containers-per-container", 1),
        maximum_dead_containers: count("maximum-dead-containers", -1),
        experimental_mounter_path: path("experimental-mounter-path"),
        experimental_allocatable_ignore_eviction: switch(
            "experimental-allocatable-ignore-eviction",
        ),
        runtime_cgroups: optional("runtime-cgroups"),
        image_credential_provider_config: path("image-credential-provider-config"),
        image_credential_provider_bin_dir: path("image-credential-provider-bin-dir"),
        housekeeping_interval,
        kubelet_version: Some(text("version"))
            .filter(|told| told.starts_with('v'))
            .unwrap_or_else(|| KUBERNETES_VERSION.to_owned()),
        given: given.iter().map(|(name, value)| (*name, shown(value))).collect(),
    }
}

/// Upstream has no cloud built in any more.
fn cloud_fault(name: Option<&str>) -> Option<String> {
    let name = name.filter(|name| *name != "external")?;
    Some(format!(
        "--cloud-provider: cloud provider {name:?} was specified, but built-in cloud providers are disabled; \
         set --cloud-provider=external and migrate to an external cloud provider"
    ))
}

fn lock_fault(is_giving_way: bool, lock_file: Option<&str>) -> Option<String> {
    let message = "--exit-on-lock-contention: cannot exit on lock file contention: no lock file specified (--lock-file)";
    (is_giving_way && lock_file.is_none()).then(|| message.to_owned())
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(entries) => {
            let pairs = entries
                .iter()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
            pairs.collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

fn read_page_address(text: &str, faults: &mut Vec<String>) -> Option<SocketAddr> {
    if text.is_empty() {
        return None;
    }
    let address: Option<SocketAddr> = text.parse().ok();
    match address {
        None => faults.push(format!(
            "--page-address: {text:?} is not an address with a port, such as 127.0.0.1:4194"
        )),
        Some(address) if !address.ip().is_loopback() => faults.push(format!(
            "--page-address: {text:?} is not on loopback; others see the page on the main port, with its authentication"
        )),
        Some(_) => {}
    }
    address
}

fn read_node_ips(text: &str, faults: &mut Vec<String>) -> Vec<IpAddr> {
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let addresses: Vec<IpAddr> = parts.iter().filter_map(|part| part.parse().ok()).collect();
    if addresses.len() != parts.len() {
        faults.push(format!("--node-ip: {text:?} is not an IP address, or two with a comma"));
    } else if addresses.len() > 2 || matches!(addresses[..], [a, b] if a.is_ipv4() == b.is_ipv4()) {
        faults.push(format!("--node-ip: {text:?} must be one address, or one of each family"));
    }
    addresses
}

/// Labels in Kubernetes' own namespaces that a node may give itself.
const OWN_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

fn label_fault(key: &str, value: &str) -> Option<String> {
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    let within = |suffix: &str| {
        namespace == suffix
            || namespace.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'))
    };
    let reserved = within("kubernetes.io") || within("k8s.io");
    let allowed = within("kubelet.kubernetes.io")
        || within("node.kubernetes.io")
        || OWN_LABELS.contains(&key);
    if reserved && !allowed {
        return Some(format!(
            "--node-labels: {key} is reserved; labels of kubernetes.io and k8s.io must begin with \
             kubelet.kubernetes.io/ or node.kubernetes.io/, or be one of {}",
            OWN_LABELS.join(", ")
        ));
    }
    if !is_qualified_name(key) {
        return Some(format!("--node-labels: {key:?} is not a label key"));
    }
    (!is_label_value(value))
        .then(|| format!("--node-labels: {value:?} is not a label value (of {key})"))
}
