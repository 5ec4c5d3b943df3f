//! The families this agent can show. Names, types, labels and stability are upstream's; the help is our own.

/// Where a family is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Metrics,
    Resource,
    Probes,
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

use Endpoint::{Metrics, Probes, Resource};
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
        "kubelet_node_name",
        ALPHA_GAUGE,
        &["node"],
        "Always 1; the label is the node's name.",
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
        for endpoint in [Metrics, Resource, Probes] {
            let names: Vec<&str> = shown_at(endpoint).map(|family| family.name).collect();
            let mut sorted = names.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(names, sorted, "in order, once each");
        }
    }
}
