//! The families this agent can show. Names, types, labels and stability are upstream's; the help is our own.

/// Where a family is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Metrics,
    Resource,
    Probes,
    Slis,
}

/// A family's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Counter,
    Gauge,
    Histogram,
}

impl Type {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// How much a family may still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stability {
    Alpha,
    Beta,
    Stable,
}

impl Stability {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "STABLE",
        }
    }
}

/// One family.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) endpoint: Endpoint,
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) stability: Stability,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

/// The families of an endpoint, by name.
pub(super) fn shown_at(endpoint: Endpoint) -> impl Iterator<Item = &'static Family> {
    TABLE
        .iter()
        .filter(move |family| family.endpoint == endpoint)
}

/// How many families there are of each stability.
pub(super) fn n_by_stability() -> impl Iterator<Item = (&'static str, usize)> {
    [Stability::Alpha, Stability::Beta, Stability::Stable]
        .into_iter()
        .map(|stability| {
            let n = TABLE.iter().filter(|it| it.stability == stability);
            (stability.word(), n.count())
        })
}

/// One family by name.
pub(super) fn family(name: &str) -> &'static Family {
    let found = TABLE.iter().find(|family| family.name == name);
    found.expect("the table has every family this crate writes")
}

const fn row(
    endpoint: Endpoint,
    name: &'static str,
    (kind, stability): (Type, Stability),
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family {
        endpoint,
        name,
        kind,
        stability,
        labels,
        help,
    }
}

use Endpoint::{Metrics, Probes, Resource, Slis};
const ALPHA_GAUGE: (Type, Stability) = (Type::Gauge, Stability::Alpha);
const STABLE_GAUGE: (Type, Stability) = (Type::Gauge, Stability::Stable);
const STABLE_COUNTER: (Type, Stability) = (Type::Counter, Stability::Stable);
const ALPHA_COUNTER: (Type, Stability) = (Type::Counter, Stability::Alpha);
const ALPHA_HISTOGRAM: (Type, Stability) = (Type::Histogram, Stability::Alpha);
const CONTAINER: &[&str] = &["container", "namespace", "pod"];
const POD: &[&str] = &["namespace", "pod"];
const HTTP: &[&str] = &["long_running", "method", "path", "server_type"];

const TABLE: &[Family] = &[
    row(
        Metrics,
        "disabled_metrics_total",
        (Type::Counter, Stability::Beta),
        &[],
        "Families that were switched off.",
    ),
    row(
        Metrics,
        "hidden_metrics_total",
        (Type::Counter, Stability::Beta),
        &[],
        "Families that are hidden.",
    ),
    row(
        Metrics,
        "kubelet_active_pods",
        ALPHA_GAUGE,
        &["static"],
        "Pods that are not over.",
    ),
    row(
        Metrics,
        "kubelet_cgroup_version",
        ALPHA_GAUGE,
        &[],
        "Version of the cgroup hierarchy.",
    ),
    row(
        Metrics,
        "kubelet_container_log_filesystem_used_bytes",
        ALPHA_GAUGE,
        &["container", "namespace", "pod", "uid"],
        "What logs of a container take on disk, in bytes.",
    ),
    row(
        Metrics,
        "kubelet_desired_pods",
        ALPHA_GAUGE,
        &["static"],
        "Pods that should be here.",
    ),
    row(
        Metrics,
        "kubelet_evictions",
        ALPHA_COUNTER,
        &["eviction_signal"],
        "Pods that were evicted, by what they or the node ran out of.",
    ),
    row(
        Metrics,
        "kubelet_http_inflight_requests",
        ALPHA_GAUGE,
        HTTP,
        "HTTP requests being answered.",
    ),
    row(
        Metrics,
        "kubelet_http_requests_duration_seconds",
        ALPHA_HISTOGRAM,
        HTTP,
        "Time taken to answer HTTP requests.",
    ),
    row(
        Metrics,
        "kubelet_http_requests_total",
        ALPHA_COUNTER,
        HTTP,
        "HTTP requests received.",
    ),
    row(
        Metrics,
        "kubelet_image_volume_mounted_errors_total",
        (Type::Counter, Stability::Beta),
        &[],
        "Image volumes that could not be mounted.",
    ),
    row(
        Metrics,
        "kubelet_image_volume_mounted_succeed_total",
        (Type::Counter, Stability::Beta),
        &[],
        "Image volumes that were mounted.",
    ),
    row(
        Metrics,
        "kubelet_image_volume_requested_total",
        (Type::Counter, Stability::Beta),
        &[],
        "Image volumes that were asked for.",
    ),
    row(
        Metrics,
        "kubelet_managed_ephemeral_containers",
        ALPHA_GAUGE,
        &[],
        "Ephemeral containers in pods here.",
    ),
    row(
        Metrics,
        "kubelet_metrics_provider",
        ALPHA_GAUGE,
        &["provider"],
        "Always 1; the label says where figures of containers come from.",
    ),
    row(
        Metrics,
        "kubelet_mirror_pods",
        ALPHA_GAUGE,
        &[],
        "Static pods that the API server shows.",
    ),
    row(
        Metrics,
        "kubelet_node_name",
        ALPHA_GAUGE,
        &["node"],
        "Always 1; the label is the node's name.",
    ),
    row(
        Metrics,
        "kubelet_running_containers",
        ALPHA_GAUGE,
        &["container_state"],
        "Containers by state.",
    ),
    row(
        Metrics,
        "kubelet_running_pods",
        ALPHA_GAUGE,
        &[],
        "Pods with a container that runs.",
    ),
    row(
        Metrics,
        "kubelet_runtime_operations_duration_seconds",
        ALPHA_HISTOGRAM,
        &["operation_type"],
        "Time calls to the runtime took, in seconds.",
    ),
    row(
        Metrics,
        "kubelet_runtime_operations_errors_total",
        ALPHA_COUNTER,
        &["operation_type"],
        "Calls to the runtime that failed.",
    ),
    row(
        Metrics,
        "kubelet_runtime_operations_total",
        ALPHA_COUNTER,
        &["operation_type"],
        "Calls to the runtime.",
    ),
    row(
        Metrics,
        "kubelet_started_pods_errors_total",
        ALPHA_COUNTER,
        &[],
        "Sandboxes that could not be started.",
    ),
    row(
        Metrics,
        "kubelet_started_pods_total",
        ALPHA_COUNTER,
        &[],
        "Sandboxes that were started.",
    ),
    row(
        Metrics,
        "kubelet_volume_stats_available_bytes",
        ALPHA_GAUGE,
        &["namespace", "persistentvolumeclaim"],
        "Bytes left on a volume.",
    ),
    row(
        Metrics,
        "kubelet_volume_stats_capacity_bytes",
        ALPHA_GAUGE,
        &["namespace", "persistentvolumeclaim"],
        "Size of a volume, in bytes.",
    ),
    row(
        Metrics,
        "kubelet_volume_stats_inodes",
        ALPHA_GAUGE,
        &["namespace", "persistentvolumeclaim"],
        "Inodes of a volume.",
    ),
    row(
        Metrics,
        "kubelet_volume_stats_inodes_free",
        ALPHA_GAUGE,
        &["namespace", "persistentvolumeclaim"],
        "Inodes left on a volume.",
    ),
    row(
        Metrics,
        "kubelet_volume_stats_inodes_used",
        ALPHA_GAUGE,
        &["namespace", "persistentvolumeclaim"],
        "Inodes in use on a volume.",
    ),
    row(
        Metrics,
        "kubelet_volume_stats_used_bytes",
        ALPHA_GAUGE,
        &["namespace", "persistentvolumeclaim"],
        "Bytes in use on a volume.",
    ),
    row(
        Metrics,
        "kubernetes_build_info",
        (Type::Gauge, Stability::Beta),
        &[
            "build_date",
            "compiler",
            "git_commit",
            "git_tree_state",
            "git_version",
            "go_version",
            "major",
            "minor",
            "platform",
        ],
        "Always 1; the labels tell the version.",
    ),
    row(
        Metrics,
        "kubernetes_feature_enabled",
        (Type::Gauge, Stability::Beta),
        &["name", "stage"],
        "1 for each feature that is on, 0 for each that is off.",
    ),
    row(
        Metrics,
        "process_cpu_seconds_total",
        ALPHA_COUNTER,
        &[],
        "Processor time of this process, in seconds.",
    ),
    row(
        Metrics,
        "process_max_fds",
        ALPHA_GAUGE,
        &[],
        "File descriptors this process may have.",
    ),
    row(
        Metrics,
        "process_network_receive_bytes_total",
        ALPHA_COUNTER,
        &[],
        "Bytes received in the network of this process.",
    ),
    row(
        Metrics,
        "process_network_transmit_bytes_total",
        ALPHA_COUNTER,
        &[],
        "Bytes sent in the network of this process.",
    ),
    row(
        Metrics,
        "process_open_fds",
        ALPHA_GAUGE,
        &[],
        "File descriptors this process has.",
    ),
    row(
        Metrics,
        "process_resident_memory_bytes",
        ALPHA_GAUGE,
        &[],
        "Memory of this process, in bytes.",
    ),
    row(
        Metrics,
        "process_start_time_seconds",
        ALPHA_GAUGE,
        &[],
        "When this process started, in seconds since the epoch.",
    ),
    row(
        Metrics,
        "process_virtual_memory_bytes",
        ALPHA_GAUGE,
        &[],
        "Address space of this process, in bytes.",
    ),
    row(
        Metrics,
        "process_virtual_memory_max_bytes",
        ALPHA_GAUGE,
        &[],
        "Address space this process may have, in bytes.",
    ),
    row(
        Metrics,
        "registered_metrics_total",
        (Type::Counter, Stability::Beta),
        &["deprecated_version", "stability_level"],
        "Families this agent knows, by stability.",
    ),
    row(
        Metrics,
        "storage_operation_duration_seconds",
        (Type::Histogram, Stability::Beta),
        &["migrated", "operation_name", "status", "volume_plugin"],
        "Time operations on volumes took, in seconds.",
    ),
    row(
        Metrics,
        "volume_operation_total_seconds",
        (Type::Histogram, Stability::Beta),
        &["operation_name", "plugin_name"],
        "Time operations on volumes took from end to end, in seconds.",
    ),
    row(
        Resource,
        "container_cpu_usage_seconds_total",
        STABLE_COUNTER,
        CONTAINER,
        "Processor time a container has used, in core seconds.",
    ),
    row(
        Resource,
        "container_memory_working_set_bytes",
        STABLE_GAUGE,
        CONTAINER,
        "Working set of a container, in bytes.",
    ),
    row(
        Resource,
        "container_start_time_seconds",
        STABLE_GAUGE,
        CONTAINER,
        "When a container started, in seconds since the epoch.",
    ),
    row(
        Resource,
        "container_swap_limit_bytes",
        ALPHA_GAUGE,
        CONTAINER,
        "Swap a container may use, in bytes.",
    ),
    row(
        Resource,
        "container_swap_usage_bytes",
        ALPHA_GAUGE,
        CONTAINER,
        "Swap a container uses, in bytes.",
    ),
    row(
        Resource,
        "node_cpu_usage_seconds_total",
        STABLE_COUNTER,
        &[],
        "Processor time the node has used, in core seconds.",
    ),
    row(
        Resource,
        "node_memory_working_set_bytes",
        STABLE_GAUGE,
        &[],
        "Working set of the node, in bytes.",
    ),
    row(
        Resource,
        "node_swap_usage_bytes",
        ALPHA_GAUGE,
        &[],
        "Swap the node uses, in bytes.",
    ),
    row(
        Resource,
        "pod_cpu_usage_seconds_total",
        STABLE_COUNTER,
        POD,
        "Processor time a pod has used, in core seconds.",
    ),
    row(
        Resource,
        "pod_memory_working_set_bytes",
        STABLE_GAUGE,
        POD,
        "Working set of a pod, in bytes.",
    ),
    row(
        Resource,
        "pod_swap_usage_bytes",
        ALPHA_GAUGE,
        POD,
        "Swap a pod uses, in bytes.",
    ),
    row(
        Resource,
        "resource_scrape_error",
        STABLE_GAUGE,
        &[],
        "1 when the figures could not be read, else 0.",
    ),
    row(
        Probes,
        "prober_probe_duration_seconds",
        ALPHA_HISTOGRAM,
        &["container", "namespace", "pod", "probe_type"],
        "Time a probe took, in seconds.",
    ),
    row(
        Probes,
        "prober_probe_total",
        (Type::Counter, Stability::Beta),
        &[
            "container",
            "namespace",
            "pod",
            "pod_uid",
            "probe_type",
            "result",
        ],
        "Probes of containers, by result.",
    ),
    row(
        Probes,
        "process_start_time_seconds",
        ALPHA_GAUGE,
        &[],
        "When this process started, in seconds since the epoch.",
    ),
    row(
        Slis,
        "kubernetes_healthcheck",
        STABLE_GAUGE,
        &["name", "type"],
        "1 while a check passes, else 0.",
    ),
    row(
        Slis,
        "kubernetes_healthchecks_total",
        STABLE_COUNTER,
        &["name", "status", "type"],
        "Checks that were made, by outcome.",
    ),
    row(
        Slis,
        "process_start_time_seconds",
        ALPHA_GAUGE,
        &[],
        "When this process started, in seconds since the epoch.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_upstreams_and_none_is_there_twice() {
        let upstream = include_str!("upstream.txt");
        for family in TABLE {
            let endpoint = match family.endpoint {
                Metrics => "metrics",
                Resource => "resource",
                Probes => "probes",
                Slis => "slis",
            };
            let start = format!("{endpoint} {} ", family.name);
            let line = upstream.lines().find(|line| line.starts_with(&start));
            let words: Vec<&str> = line
                .unwrap_or_else(|| panic!("{start}"))
                .split(' ')
                .collect();
            assert_eq!(words[2], family.kind.word(), "{start}");
            assert_eq!(words[3], family.stability.word().to_lowercase(), "{start}");
            let mut labels: Vec<&str> = words[4].split(',').filter(|it| *it != "-").collect();
            labels.sort_unstable();
            assert_eq!(labels, family.labels, "{start}");
            assert!(family.help.ends_with('.') && !family.help.contains('\n'));
        }
        // What upstream promises to keep is all here; where nobody measures it yet, nothing is shown.
        for line in upstream.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let is_promised = ["stable", "beta"].contains(&words[3]);
            let is_here = TABLE.iter().any(|family| family.name == words[1]);
            assert!(is_here || !is_promised, "{line}");
        }
        for endpoint in [Metrics, Resource, Probes, Slis] {
            let names: Vec<&str> = shown_at(endpoint).map(|family| family.name).collect();
            let mut sorted = names.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(names, sorted, "in order, once each");
        }
    }
}
