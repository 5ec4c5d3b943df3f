//! `/metrics/resource`: what metrics-server asks for, from one usage snapshot.

use std::collections::HashMap;

use ferrolet_ports::{
    CgroupUsage, PodUsage, UsageSnapshot,
    metrics::{self, Family, Metric as _},
};
use ferrolet_types::{Pod, Timestamp};

use super::Hidden;
use super::text::Exposition;
use crate::target::running_names;

/// One row to be written, once per family.
struct Row<'a> {
    labels: Vec<String>,
    usage: &'a CgroupUsage,
    started: Option<f64>,
}

type Pick = fn(&Row<'_>) -> Option<f64>;

/// A family, and the figure of a row that it shows.
type Shown = (&'static Family, Pick);

/// Of containers, in the order of their names.
fn of_containers() -> [Shown; 5] {
    [
        (metrics::CONTAINER_CPU_USAGE_SECONDS_TOTAL.family(), cpu_seconds),
        (metrics::CONTAINER_MEMORY_WORKING_SET_BYTES.family(), working_set),
        (metrics::CONTAINER_START_TIME_SECONDS.family(), |row| row.started),
        (metrics::CONTAINER_SWAP_LIMIT_BYTES.family(), |row| number(row.usage.swap_limit_bytes)),
        (metrics::CONTAINER_SWAP_USAGE_BYTES.family(), swap),
    ]
}

/// Of the node.
fn of_node() -> [Shown; 3] {
    [
        (metrics::NODE_CPU_USAGE_SECONDS_TOTAL.family(), cpu_seconds),
        (metrics::NODE_MEMORY_WORKING_SET_BYTES.family(), working_set),
        (metrics::NODE_SWAP_USAGE_BYTES.family(), swap),
    ]
}

/// Of pods.
fn of_pods() -> [Shown; 3] {
    [
        (metrics::POD_CPU_USAGE_SECONDS_TOTAL.family(), cpu_seconds),
        (metrics::POD_MEMORY_WORKING_SET_BYTES.family(), working_set),
        (metrics::POD_SWAP_USAGE_BYTES.family(), swap),
    ]
}

pub(super) fn write(
    snapshot: Option<&UsageSnapshot>,
    pods: &[Pod],
    hidden: Hidden,
    out: &mut Exposition,
) {
    if let Some(snapshot) = snapshot {
        let known: HashMap<&str, &Pod> =
            pods.iter().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, pod))).collect();
        let (mut pod_rows, mut container_rows) = (Vec::new(), Vec::new());
        for usage in &snapshot.pods {
            if let Some(pod) = known.get(usage.uid.as_str()) {
                rows(pod, usage, &mut pod_rows, &mut container_rows);
            }
        }
        let node = Row { labels: Vec::new(), usage: &snapshot.node, started: None };
        families(&of_containers(), &container_rows, out);
        families(&of_node(), &[node], out);
        families(&of_pods(), &pod_rows, out);
    }
    let value = if snapshot.is_none() { 1.0 } else { 0.0 };
    let old_name = (hidden == Hidden::Shown).then(|| metrics::SCRAPE_ERROR.family());
    for error in std::iter::once(metrics::RESOURCE_SCRAPE_ERROR.family()).chain(old_name) {
        out.head(error);
        out.number(error, &[], value, None);
    }
}

fn rows<'a>(
    pod: &Pod,
    usage: &'a PodUsage,
    pod_rows: &mut Vec<Row<'a>>,
    container_rows: &mut Vec<Row<'a>>,
) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
    pod_rows.push(Row {
        labels: vec![namespace.clone(), name.clone()],
        usage: &usage.total,
        started: None,
    });
    let names = running_names(pod);
    for (id, usage) in &usage.containers {
        let Some(container) = names.iter().find(|it| it.id == id.as_str()) else {
            continue;
        };
        container_rows.push(Row {
            labels: vec![container.name.to_owned(), namespace.clone(), name.clone()],
            usage,
            started: container.started.map(seconds),
        });
    }
}

fn families(shown: &[Shown], rows: &[Row<'_>], out: &mut Exposition) {
    let started = metrics::CONTAINER_START_TIME_SECONDS.family();
    for (family, pick) in shown {
        let figures: Vec<(&Row<'_>, f64)> =
            rows.iter().filter_map(|row| Some((row, pick(row)?))).collect();
        if figures.is_empty() {
            continue;
        }
        out.head(family);
        for (row, figure) in figures {
            // A start does not move; everything else was read at that moment.
            let at = (**family != *started).then_some(row.usage.at);
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
