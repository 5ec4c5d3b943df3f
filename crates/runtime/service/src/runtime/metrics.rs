//! What containers and pods use, as metrics by the names that cAdvisor gave them.
//!
//! In: the statistics that [`super::stats`] gathers, and what was asked for. Out: CRI's descriptors and samples. One table
//! says what there is, so that a sample without a descriptor, or with other labels, cannot be written. CRI carries whole
//! numbers, so what counts seconds is cut to seconds.

use ferrolet_cri_proto as cri;

use super::{Runtime, error::RuntimeError, phase::Phase, table::Container};

/// The labels that every sample has; a pod's own have no container and no image.
const LABELS: [&str; 6] = ["id", "name", "image", "container", "pod", "namespace"];
const NANOSECONDS: u64 = 1_000_000_000;

/// Whose samples they are: a container, or a pod as a whole.
#[derive(Debug, Default)]
struct Subject<'a> {
    /// Values of [`LABELS`].
    labels: [String; 6],
    cpu: Option<&'a cri::CpuUsage>,
    memory: Option<&'a cri::MemoryUsage>,
    swap: Option<&'a cri::SwapUsage>,
    layer: Option<&'a cri::FilesystemUsage>,
    processes: Option<&'a cri::ProcessUsage>,
    network: Option<&'a cri::NetworkUsage>,
    limits: Option<cri::LinuxContainerResources>,
    /// In nanoseconds since 1970.
    started_at: Option<i64>,
}

/// Values of a row's own labels, and the sample's.
type Samples = Vec<(Vec<String>, Option<u64>)>;

/// A metric: its name, its own labels, and where it is found.
struct Row {
    name: &'static str,
    help: &'static str,
    kind: cri::MetricType,
    labels: &'static [&'static str],
    samples: fn(&Subject<'_>) -> Samples,
}

fn plain(value: Option<u64>) -> Samples {
    vec![(Vec::new(), value)]
}

fn value(counted: Option<&cri::UInt64Value>) -> Option<u64> {
    counted.map(|it| it.value)
}

fn memory(of: &Subject<'_>, field: fn(&cri::MemoryUsage) -> Option<&cri::UInt64Value>) -> Samples {
    plain(of.memory.and_then(|it| value(field(it))))
}

fn interfaces(
    of: &Subject<'_>,
    field: fn(&cri::NetworkInterfaceUsage) -> Option<&cri::UInt64Value>,
) -> Samples {
    let Some(network) = of.network else { return Vec::new() };
    let all = network.default_interface.iter().chain(&network.interfaces);
    all.map(|it| (vec![it.name.clone()], value(field(it)))).collect()
}

fn limit(of: &Subject<'_>, field: fn(&cri::LinuxContainerResources) -> i64) -> Samples {
    let number = of.limits.as_ref().and_then(|it| u64::try_from(field(it)).ok());
    plain(number.filter(|it| *it > 0))
}

const fn counter(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    samples: fn(&Subject<'_>) -> Samples,
) -> Row {
    Row { name, help, kind: cri::MetricType::Counter, labels, samples }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    samples: fn(&Subject<'_>) -> Samples,
) -> Row {
    Row { name, help, kind: cri::MetricType::Gauge, labels, samples }
}

const ROWS: [Row; 19] = [
    counter(
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed in seconds.",
        &["cpu"],
        |it| {
            let used = it.cpu.and_then(|cpu| value(cpu.usage_core_nano_seconds.as_ref()));
            vec![(vec!["total".to_owned()], used.map(|it| it / NANOSECONDS))]
        },
    ),
    gauge(
        "container_memory_usage_bytes",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        &[],
        |it| memory(it, |usage| usage.usage_bytes.as_ref()),
    ),
    gauge("container_memory_working_set_bytes", "Current working set in bytes.", &[], |it| {
        memory(it, |usage| usage.working_set_bytes.as_ref())
    }),
    gauge("container_memory_rss", "Size of RSS in bytes.", &[], |it| {
        memory(it, |usage| usage.rss_bytes.as_ref())
    }),
    gauge("container_memory_swap", "Container swap usage in bytes.", &[], |it| {
        plain(it.swap.and_then(|swap| value(swap.swap_usage_bytes.as_ref())))
    }),
    counter(
        "container_memory_failures_total",
        "Cumulative count of memory allocation failures.",
        &["failure_type", "scope"],
        |it| {
            let Some(memory) = it.memory else { return Vec::new() };
            let row = |kind: &str, counted| {
                (vec![kind.to_owned(), "hierarchy".to_owned()], value(counted))
            };
            vec![
                row("pgfault", memory.page_faults.as_ref()),
                row("pgmajfault", memory.major_page_faults.as_ref()),
            ]
        },
    ),
    gauge(
        "container_fs_usage_bytes",
        "Number of bytes that are consumed by the container on this filesystem.",
        &["device"],
        |it| layer(it, |usage| usage.used_bytes.as_ref()),
    ),
    gauge("container_processes", "Number of processes running inside the container.", &[], |it| {
        plain(it.processes.and_then(|processes| value(processes.process_count.as_ref())))
    }),
    counter(
        "container_network_receive_bytes_total",
        "Cumulative count of bytes received",
        &["interface"],
        |it| interfaces(it, |usage| usage.rx_bytes.as_ref()),
    ),
    counter(
        "container_network_receive_errors_total",
        "Cumulative count of errors encountered while receiving",
        &["interface"],
        |it| interfaces(it, |usage| usage.rx_errors.as_ref()),
    ),
    counter(
        "container_network_transmit_bytes_total",
        "Cumulative count of bytes transmitted",
        &["interface"],
        |it| interfaces(it, |usage| usage.tx_bytes.as_ref()),
    ),
    counter(
        "container_network_transmit_errors_total",
        "Cumulative count of errors encountered while transmitting",
        &["interface"],
        |it| interfaces(it, |usage| usage.tx_errors.as_ref()),
    ),
    gauge("container_spec_cpu_period", "CPU period of the container.", &[], |it| {
        limit(it, |limits| limits.cpu_period)
    }),
    gauge("container_spec_cpu_quota", "CPU quota of the container.", &[], |it| {
        limit(it, |limits| limits.cpu_quota)
    }),
    gauge("container_spec_cpu_shares", "CPU share of the container.", &[], |it| {
        limit(it, |limits| limits.cpu_shares)
    }),
    gauge("container_spec_memory_limit_bytes", "Memory limit for the container.", &[], |it| {
        limit(it, |limits| limits.memory_limit_in_bytes)
    }),
    gauge(
        "container_spec_memory_swap_limit_bytes",
        "Memory swap limit for the container.",
        &[],
        |it| limit(it, |limits| limits.memory_swap_limit_in_bytes),
    ),
    gauge(
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds.",
        &[],
        |it| plain(it.started_at.and_then(|at| u64::try_from(at).ok()).map(|at| at / NANOSECONDS)),
    ),
    gauge("container_last_seen", "Last time a container was seen by the exporter", &[], |it| {
        let seen = it.cpu.and_then(|cpu| u64::try_from(cpu.timestamp).ok());
        plain(seen.map(|it| it / NANOSECONDS))
    }),
];

fn layer(
    of: &Subject<'_>,
    field: fn(&cri::FilesystemUsage) -> Option<&cri::UInt64Value>,
) -> Samples {
    let Some(layer) = of.layer else { return Vec::new() };
    let place = layer.fs_id.as_ref().map(|it| it.mountpoint.clone()).unwrap_or_default();
    vec![(vec![place], value(field(layer)))]
}

/// Every metric that samples may be of.
pub(crate) fn descriptors() -> Vec<cri::MetricDescriptor> {
    let describe = |row: &Row| cri::MetricDescriptor {
        name: row.name.to_owned(),
        help: row.help.to_owned(),
        label_keys: LABELS.iter().chain(row.labels).map(|it| (*it).to_owned()).collect(),
    };
    ROWS.iter().map(describe).collect()
}

fn samples(subject: &Subject<'_>, now: i64) -> Vec<cri::Metric> {
    let of_row = |row: &Row| -> Vec<cri::Metric> {
        let found = (row.samples)(subject).into_iter();
        let sample = |(own, value): (Vec<String>, Option<u64>)| {
            Some(cri::Metric {
                name: row.name.to_owned(),
                timestamp: now,
                metric_type: row.kind.into(),
                label_values: subject.labels.iter().cloned().chain(own).collect(),
                value: Some(cri::UInt64Value { value: value? }),
            })
        };
        found.filter_map(sample).collect()
    };
    ROWS.iter().flat_map(of_row).collect()
}

/// A pod's samples, from its statistics; `containers` are those that it has.
fn of_pod(
    stats: &cri::PodSandboxStats,
    containers: &[Container],
    now: i64,
) -> cri::PodSandboxMetrics {
    let about = stats.attributes.clone().unwrap_or_default();
    let metadata = about.metadata.unwrap_or_default();
    let labels = |id: &str, image: &str, container: &str| {
        let pod = (metadata.name.clone(), metadata.namespace.clone());
        [id.to_owned(), id.to_owned(), image.to_owned(), container.to_owned(), pod.0, pod.1]
    };
    let Some(linux) = &stats.linux else { return cri::PodSandboxMetrics::default() };
    let whole = Subject {
        labels: labels(&about.id, "", ""),
        cpu: linux.cpu.as_ref(),
        memory: linux.memory.as_ref(),
        processes: linux.process.as_ref(),
        network: linux.network.as_ref(),
        ..Subject::default()
    };
    let of_container = |stats: &cri::ContainerStats| {
        let about = stats.attributes.clone().unwrap_or_default();
        let found = containers.iter().find(|it| it.spec.id == about.id);
        let config = found.map(|it| it.spec.config()).unwrap_or_default();
        let image = found.map(|it| it.spec.image_name.clone()).unwrap_or_default();
        let name = about.metadata.map(|it| it.name).unwrap_or_default();
        let subject = Subject {
            labels: labels(&about.id, &image, &name),
            cpu: stats.cpu.as_ref(),
            memory: stats.memory.as_ref(),
            swap: stats.swap.as_ref(),
            layer: stats.writable_layer.as_ref(),
            limits: config.linux.and_then(|it| it.resources),
            started_at: found.and_then(|it| match it.phase() {
                Phase::Running(process) => Some(process.started_at),
                Phase::Created | Phase::Starting | Phase::Exited { .. } | Phase::Unknown => None,
            }),
            ..Subject::default()
        };
        cri::ContainerMetrics { metrics: samples(&subject, now), container_id: about.id }
    };
    cri::PodSandboxMetrics {
        metrics: samples(&whole, now),
        container_metrics: linux.containers.iter().map(of_container).collect(),
        pod_sandbox_id: about.id,
    }
}

impl Runtime {
    /// The samples of all pods that are ready.
    pub(crate) async fn list_sandbox_metrics(
        &self,
    ) -> Result<Vec<cri::PodSandboxMetrics>, RuntimeError> {
        let stats = self.list_sandbox_stats(None).await?;
        let now = self.now();
        let of_one = |stats: &cri::PodSandboxStats| {
            let id = stats.attributes.as_ref().map_or("", |it| it.id.as_str());
            of_pod(stats, &self.containers_of(id), now)
        };
        Ok(stats.iter().map(of_one).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::runtime::{phase::Process, record::ContainerSpec};

    fn counted(value: u64) -> Option<cri::UInt64Value> {
        Some(cri::UInt64Value { value })
    }

    fn stats() -> cri::PodSandboxStats {
        let cpu = |seconds: u64| cri::CpuUsage {
            timestamp: 9,
            usage_core_nano_seconds: counted(seconds * NANOSECONDS + 1),
            ..Default::default()
        };
        let container = cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes {
                id: "c1".to_owned(),
                metadata: Some(cri::ContainerMetadata { name: "app".to_owned(), attempt: 0 }),
                ..Default::default()
            }),
            cpu: Some(cpu(3)),
            memory: Some(cri::MemoryUsage { page_faults: counted(5), ..Default::default() }),
            ..Default::default()
        };
        let interface = cri::NetworkInterfaceUsage {
            name: "eth0".to_owned(),
            rx_bytes: counted(70),
            ..Default::default()
        };
        let metadata = cri::PodSandboxMetadata {
            name: "web".to_owned(),
            namespace: "default".to_owned(),
            ..Default::default()
        };
        cri::PodSandboxStats {
            attributes: Some(cri::PodSandboxAttributes {
                id: "s1".to_owned(),
                metadata: Some(metadata),
                ..Default::default()
            }),
            linux: Some(cri::LinuxPodSandboxStats {
                cpu: Some(cpu(4)),
                network: Some(cri::NetworkUsage {
                    default_interface: Some(interface),
                    ..Default::default()
                }),
                containers: vec![container],
                ..Default::default()
            }),
        }
    }

    #[test]
    fn every_sample_has_the_labels_that_its_descriptor_says() {
        let process = Process { pid: 7, started_at: 5_000_000_000 };
        let spec = ContainerSpec {
            id: "c1".to_owned(),
            image_name: "app:1".to_owned(),
            ..ContainerSpec::default()
        };
        let containers = [Container::new(spec, Phase::Running(process), None)];
        let pod = of_pod(&stats(), &containers, 42);
        let described: BTreeMap<_, _> =
            descriptors().into_iter().map(|it| (it.name, it.label_keys)).collect();
        assert_eq!(described.len(), ROWS.len());
        let container = &pod.container_metrics[0];
        for sample in pod.metrics.iter().chain(&container.metrics) {
            assert_eq!(sample.label_values.len(), described[&sample.name].len(), "{sample:?}");
            assert_eq!(sample.timestamp, 42);
        }
        let shown = |all: &[cri::Metric]| -> Vec<String> {
            let one = |it: &cri::Metric| {
                format!("{} {} {}", it.name, it.label_values.join(","), it.value.unwrap().value)
            };
            all.iter().map(one).collect()
        };
        assert_eq!(
            shown(&pod.metrics),
            [
                "container_cpu_usage_seconds_total s1,s1,,,web,default,total 4",
                "container_network_receive_bytes_total s1,s1,,,web,default,eth0 70",
                "container_last_seen s1,s1,,,web,default 0",
            ]
        );
        assert_eq!(
            shown(&container.metrics),
            [
                "container_cpu_usage_seconds_total c1,c1,app:1,app,web,default,total 3",
                "container_memory_failures_total c1,c1,app:1,app,web,default,pgfault,hierarchy 5",
                "container_start_time_seconds c1,c1,app:1,app,web,default 5",
                "container_last_seen c1,c1,app:1,app,web,default 0",
            ]
        );
    }
}
