//! `/stats/summary`: the node, its pods and their containers, as upstream's v1alpha1 summary. Pure.
//!
//! In: readings of cgroups and disks, the pods that lend names to them. Out: the JSON that autoscalers, metrics-server and people
//! know. What is not known is left out, as upstream does. Refuses: reading anything itself.

mod parts;

use std::collections::HashMap;

use ferrolet_ports::{
    CgroupFigures, DiskUsage, FileRoom, InUse, LayerUsage, UsageFigures, UsageSnapshot, Whose,
};
use ferrolet_types::{Pod, Timestamp};
use serde_json::{Value, json};

pub(crate) use self::parts::claims;
use self::parts::{add, add_pressure, file_system, network, time, volumes};
use crate::metrics::Figures;
use crate::target::running_names;

/// Everything a whole summary is made from.
pub(crate) struct Readings<'a> {
    /// Cgroups, networks, processes.
    pub(crate) figures: &'a UsageFigures,
    /// Logs, volumes, the node's file system; none when they could not be read.
    pub(crate) disk: Option<&'a DiskUsage>,
    /// What containers have written; empty when the runtime would not tell.
    pub(crate) layers: &'a [LayerUsage],
    /// The stores of images and of containers, with the room they are in.
    pub(crate) stores: Stores,
}

/// The runtime's stores: when they were looked at, and their room.
#[derive(Clone, Copy, Default)]
pub(crate) struct Stores {
    pub(crate) images: Option<(Timestamp, FileRoom)>,
    pub(crate) containers: Option<(Timestamp, FileRoom)>,
}

/// Processor, memory and swap only: what autoscalers ask for.
pub(crate) fn slim(figures: &Figures, snapshot: &UsageSnapshot, pods: &[Pod]) -> Value {
    let known = by_uid(pods);
    let began = time(figures.began);
    let mut node = json!({"nodeName": figures.node_name, "startTime": began});
    add(&mut node, &snapshot.node);
    if let Some(all_pods) = &snapshot.all_pods {
        let mut together = json!({"name": "pods", "startTime": began});
        add(&mut together, all_pods);
        node["systemContainers"] = json!([together]);
    }
    let pods = snapshot.pods.iter().filter_map(|usage| {
        let pod = known.get(usage.uid.as_str())?;
        let names = running_names(pod);
        let containers = usage.containers.iter().filter_map(|(id, usage)| {
            let container = names.iter().find(|it| it.id == id.as_str())?;
            let mut shown =
                json!({"name": container.name, "startTime": container.started.map(time)});
            add(&mut shown, usage);
            Some(shown)
        });
        let mut shown = reference(pod);
        shown["containers"] = containers.collect();
        add(&mut shown, &usage.total);
        Some(shown)
    });
    let pods: Vec<Value> = pods.collect();
    json!({"node": node, "pods": pods})
}

/// Everything.
pub(crate) fn whole(figures: &Figures, readings: &Readings<'_>, pods: &[Pod]) -> Value {
    let known = by_uid(pods);
    let layers: HashMap<&str, &LayerUsage> = readings
        .layers
        .iter()
        .map(|layer| (layer.id.as_str(), layer))
        .collect();
    let mut node = json!({"nodeName": figures.node_name, "startTime": time(figures.began)});
    let mut systems = Vec::new();
    let mut shown: Vec<PodInMaking<'_>> = Vec::new();
    for cgroup in &readings.figures.cgroups {
        match &cgroup.whose {
            Whose::Node => add_node(&mut node, cgroup, readings),
            Whose::AllPods => systems.push(system("pods", cgroup)),
            Whose::System(name) => systems.push(system(name, cgroup)),
            Whose::Class => {}
            Whose::Pod(uid) => {
                if let Some(pod) = known.get(uid.as_str()) {
                    shown.push(PodInMaking::new(pod, cgroup));
                }
            }
            Whose::Container(uid, id) => {
                if let Some(pod) = shown
                    .last_mut()
                    .filter(|it| it.pod.metadata.uid.as_deref() == Some(uid.as_str()))
                {
                    let layer = layers.get(id.as_str()).copied();
                    pod.take(cgroup, id.as_str(), layer, readings);
                }
            }
        }
    }
    node["systemContainers"] = Value::Array(systems);
    let pods: Vec<Value> = shown.into_iter().map(|pod| pod.finish(readings)).collect();
    json!({"node": node, "pods": pods})
}

fn by_uid(pods: &[Pod]) -> HashMap<&str, &Pod> {
    pods.iter()
        .filter_map(|pod| Some((pod.metadata.uid.as_deref()?, pod)))
        .collect()
}

fn reference(pod: &Pod) -> Value {
    let status = pod.status.as_ref();
    let started = status.and_then(|status| status.start_time.as_ref());
    json!({
        "podRef": {
            "name": pod.metadata.name,
            "namespace": pod.metadata.namespace,
            "uid": pod.metadata.uid,
        },
        "startTime": started.map(|started| time(Timestamp(started.0))),
    })
}

fn system(name: &str, cgroup: &CgroupFigures) -> Value {
    let mut shown = json!({"name": name, "startTime": time(cgroup.made)});
    add(&mut shown, &cgroup.usage);
    add_pressure(&mut shown, cgroup);
    shown
}

fn add_node(node: &mut Value, cgroup: &CgroupFigures, readings: &Readings<'_>) {
    add(node, &cgroup.usage);
    add_pressure(node, cgroup);
    node["network"] = network(readings.figures.at, &cgroup.interfaces);
    if let Some(disk) = readings.disk {
        node["fs"] = file_system(disk.at, &disk.node);
    }
    let mut runtime = json!({});
    if let Some((at, room)) = &readings.stores.images {
        runtime["imageFs"] = file_system(*at, room);
    }
    if let Some((at, room)) = &readings.stores.containers {
        runtime["containerFs"] = file_system(*at, room);
    }
    node["runtime"] = runtime;
    if let Some(processes) = readings.figures.processes {
        node["rlimit"] = json!({
            "time": time(readings.figures.at),
            "maxpid": processes.max,
            "curproc": processes.n,
        });
    }
}

/// A pod whose containers are still coming.
struct PodInMaking<'a> {
    pod: &'a Pod,
    shown: Value,
    containers: Vec<Value>,
    /// Bytes and inodes on the node's disks so far.
    used: InUse,
    n_processes: u64,
}

impl<'a> PodInMaking<'a> {
    fn new(pod: &'a Pod, cgroup: &CgroupFigures) -> Self {
        let mut shown = reference(pod);
        add(&mut shown, &cgroup.usage);
        add_pressure(&mut shown, cgroup);
        Self {
            pod,
            shown,
            containers: Vec::new(),
            used: InUse::default(),
            n_processes: cgroup.processes.n_processes,
        }
    }

    fn take(
        &mut self,
        cgroup: &CgroupFigures,
        id: &str,
        layer: Option<&LayerUsage>,
        readings: &Readings<'_>,
    ) {
        self.n_processes += cgroup.processes.n_processes;
        // All containers of a pod share one network; the first that has one tells for all.
        if self.shown.get("network").is_none() && !cgroup.interfaces.is_empty() {
            self.shown["network"] = network(readings.figures.at, &cgroup.interfaces);
        }
        let names = running_names(self.pod);
        let Some(container) = names.iter().find(|it| it.id == id) else {
            return;
        };
        let mut shown = json!({"name": container.name, "startTime": container.started.map(time)});
        add(&mut shown, &cgroup.usage);
        add_pressure(&mut shown, cgroup);
        if let (Some(layer), Some((at, room))) = (layer, &readings.stores.containers) {
            let of_layer = FileRoom {
                used: layer.used.bytes,
                inodes_used: layer.used.inodes,
                ..*room
            };
            shown["rootfs"] = file_system(layer.at.unwrap_or(*at), &of_layer);
            self.count(layer.used);
        }
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        let log = readings.disk.and_then(|disk| {
            let mut logs = disk.container_logs.iter();
            let found = logs.find(|(pod, name, _)| pod.as_str() == uid && name == container.name);
            found.map(|(_, _, used)| (disk, *used))
        });
        if let Some((disk, used)) = log {
            let of_log = FileRoom {
                used: used.bytes,
                inodes_used: used.inodes,
                ..disk.logs
            };
            shown["logs"] = file_system(disk.at, &of_log);
            self.count(used);
        }
        self.containers.push(shown);
    }

    fn count(&mut self, used: InUse) {
        self.used.bytes += used.bytes;
        self.used.inodes += used.inodes;
    }

    fn finish(mut self, readings: &Readings<'_>) -> Value {
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(disk) = readings.disk {
            let own = disk.pod_files.iter().find(|(pod, _)| pod.as_str() == uid);
            if let Some((_, used)) = own {
                self.count(*used);
            }
            let (listed, ephemeral) = volumes(self.pod, disk);
            self.count(ephemeral);
            if !listed.is_empty() {
                self.shown["volume"] = Value::Array(listed);
            }
            let room = FileRoom {
                used: self.used.bytes,
                inodes_used: self.used.inodes,
                ..disk.node
            };
            self.shown["ephemeral-storage"] = file_system(disk.at, &room);
        }
        self.shown["process_stats"] = json!({"process_count": self.n_processes});
        self.shown["containers"] = Value::Array(self.containers);
        self.shown
    }
}
