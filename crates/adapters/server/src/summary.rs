//! `/stats/summary`: the node, its pods and their containers, as upstream's v1alpha1 summary. Pure.
//!
//! Processor, memory and swap; file systems, network, processes and pressure are not measured yet and so not shown.

use std::collections::HashMap;

use ferrolet_ports::{CgroupUsage, PodUsage, UsageSnapshot};
use ferrolet_types::{Pod, Timestamp};
use serde_json::{Map, Value, json};

use crate::metrics::Figures;
use crate::target::running_names;

pub(crate) fn summary(figures: &Figures, snapshot: &UsageSnapshot, pods: &[Pod]) -> Value {
    let known: HashMap<&str, &Pod> = pods
        .iter()
        .filter_map(|pod| Some((pod.metadata.uid.as_deref()?, pod)))
        .collect();
    let began = time(figures.began);
    let mut node = json!({"nodeName": figures.node_name, "startTime": began});
    add(&mut node, &snapshot.node);
    if let Some(all_pods) = &snapshot.all_pods {
        let mut together = json!({"name": "pods", "startTime": began});
        add(&mut together, all_pods);
        node["systemContainers"] = json!([together]);
    }
    let pods = snapshot.pods.iter();
    let pods: Vec<Value> = pods
        .filter_map(|usage| Some(pod_summary(known.get(usage.uid.as_str())?, usage)))
        .collect();
    json!({"node": node, "pods": pods})
}

fn pod_summary(pod: &Pod, usage: &PodUsage) -> Value {
    let started = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref());
    let started = started.map(|started| time(Timestamp(started.0)));
    let names = running_names(pod);
    let containers = usage.containers.iter().filter_map(|(id, usage)| {
        let container = names.iter().find(|it| it.id == id.as_str())?;
        let started = container.started.map(time);
        let mut shown = json!({"name": container.name, "startTime": started});
        add(&mut shown, usage);
        Some(shown)
    });
    let mut shown = json!({
        "podRef": {
            "name": pod.metadata.name,
            "namespace": pod.metadata.namespace,
            "uid": pod.metadata.uid,
        },
        "startTime": started,
        "containers": containers.collect::<Vec<Value>>(),
    });
    add(&mut shown, &usage.total);
    shown
}

/// Adds what is known; what is not known is left out.
fn add(to: &mut Value, usage: &CgroupUsage) {
    let at = time(usage.at);
    if let Some(nanos) = usage.cpu_nanos {
        let mut cpu = Map::from_iter([("time".to_owned(), json!(at))]);
        if let Some(rate) = usage.cpu_nano_cores {
            cpu.insert("usageNanoCores".to_owned(), json!(rate));
        }
        cpu.insert("usageCoreNanoSeconds".to_owned(), json!(nanos));
        to["cpu"] = Value::Object(cpu);
    }
    if let Some(memory) = usage.memory {
        let mut shown = json!({
            "time": at,
            "usageBytes": memory.usage,
            "workingSetBytes": memory.working_set,
            "rssBytes": memory.rss,
            "pageFaults": memory.page_faults,
            "majorPageFaults": memory.major_page_faults,
        });
        if let Some(limit) = memory.limit {
            shown["availableBytes"] = json!(limit.saturating_sub(memory.working_set));
        }
        to["memory"] = shown;
    }
    if let Some(swap) = usage.swap_bytes {
        let mut shown = json!({"time": at, "swapUsageBytes": swap});
        if let Some(limit) = usage.swap_limit_bytes {
            shown["swapAvailableBytes"] = json!(limit.saturating_sub(swap));
        }
        to["swap"] = shown;
    }
}

fn time(moment: Timestamp) -> String {
    moment.to_second_precision().to_string()
}
