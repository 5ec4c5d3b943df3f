//! `/metrics/resource`: what metrics-server asks for, from one usage snapshot.

use std::collections::HashMap;

use ferrolet_ports::{CgroupUsage, PodUsage, UsageSnapshot};
use ferrolet_types::{Pod, Timestamp};

use super::table::family;
use super::text::Exposition;
use crate::target::running_names;

/// One row to be written, once per family.
struct Row<'a> {
    labels: Vec<String>,
    usage: &'a CgroupUsage,
    started: Option<f64>,
}

type Pick = fn(&Row<'_>) -> Option<f64>;

/// Families with the figure each shows, in the order of their names.
const CONTAINER: [(&str, Pick); 5] = [
    ("container_cpu_usage_seconds_total", cpu_seconds),
    ("container_memory_working_set_bytes", working_set),
    ("container_start_time_seconds", |row| row.started),
    ("container_swap_limit_bytes", |row| number(row.usage.swap_limit_bytes)),
    ("container_swap_usage_bytes", swap),
];
const NODE: [(&str, Pick); 3] = [
    ("node_cpu_usage_seconds_total", cpu_seconds),
    ("node_memory_working_set_bytes", working_set),
    ("node_swap_usage_bytes", swap),
];
const POD: [(&str, Pick); 3] = [
    ("pod_cpu_usage_seconds_total", cpu_seconds),
    ("pod_memory_working_set_bytes", working_set),
    ("pod_swap_usage_bytes", swap),
];

pub(super) fn write(snapshot: Option<&UsageSnapshot>, pods: &[Pod], out: &mut Exposition) {
    if let Some(snapshot) = snapshot {
        let known: HashMap<&str, &Pod> =
            pods.iter().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, pod))).collect();
        let (mut of_pods, mut of_containers) = (Vec::new(), Vec::new());
        for usage in &snapshot.pods {
            if let Some(pod) = known.get(usage.uid.as_str()) {
                rows(pod, usage, &mut of_pods, &mut of_containers);
            }
        }
        let node = Row { labels: Vec::new(), usage: &snapshot.node, started: None };
        families(&CONTAINER, &of_containers, out);
        families(&NODE, &[node], out);
        families(&POD, &of_pods, out);
    }
    let error = family("resource_scrape_error");
    out.head(error);
    let value = if snapshot.is_none() { 1.0 } else { 0.0 };
    out.number(error, &[], value, None);
}

fn rows<'a>(
    pod: &Pod,
    usage: &'a PodUsage,
    of_pods: &mut Vec<Row<'a>>,
    of_containers: &mut Vec<Row<'a>>,
) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
    of_pods.push(Row {
        labels: vec![namespace.clone(), name.clone()],
        usage: &usage.total,
        started: None,
    });
    let names = running_names(pod);
    for (id, usage) in &usage.containers {
        let Some(container) = names.iter().find(|it| it.id == id.as_str()) else {
            continue;
        };
        of_containers.push(Row {
            labels: vec![container.name.to_owned(), namespace.clone(), name.clone()],
            usage,
            started: container.started.map(seconds),
        });
    }
}

fn families(picks: &[(&str, Pick)], rows: &[Row<'_>], out: &mut Exposition) {
    for (name, pick) in picks {
        let family = family(name);
        let figures: Vec<(&Row<'_>, f64)> =
            rows.iter().filter_map(|row| Some((row, pick(row)?))).collect();
        if figures.is_empty() {
            continue;
        }
        out.head(family);
        for (row, figure) in figures {
            // A start does not move; everything else was read at that moment.
            let at = (*name != "container_start_time_seconds").then_some(row.usage.at);
            out.number(family, &row.labels, figure, at);
        }
    }
}

fn cpu_seconds(row: &Row<'_>) -> Option<f64> {
    number(row.usage.cpu_nanos).map(|nanos| nanos / 1e9)
}

fn working_set(row: &Row<'_>) -> Option<f64> {
    number(row.usage.memory.map(|memory| memory.working_set))
}

fn swap(row: &Row<'_>) -> Option<f64> {
    number(row.usage.swap_bytes)
}

/// Prometheus knows floating point only; what gets lost is below a millionth of a percent.
fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn seconds(moment: Timestamp) -> f64 {
    moment.0.as_second() as f64
}
