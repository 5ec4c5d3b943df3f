//! `/stats/summary`: the node, its pods and their containers, as upstream's v1alpha1 summary. Pure.
//!
//! In: readings of cgroups and disks, the pods that lend names to them. Out: the [`Summary`] that
//! autoscalers, metrics-server and people know as JSON ([`shape`]). What is not known is left out,
//! as upstream does. Refuses: reading anything itself.

mod shape;
mod volumes;

use std::collections::HashMap;

use ferrolet_ports::{
    CgroupFigures, DiskUsage, FileRoom, InUse, LayerUsage, UsageFigures, UsageSnapshot,
    VolumeUsage, Whose,
};
use ferrolet_types::{Pod, Timestamp};

pub(crate) use self::shape::Summary;
use self::shape::{
    ContainerStats, FileSystem, Moment, Network, NodeStats, PodReference, PodStats, ProcessLimit,
    ProcessStats, RuntimeStats, Used,
};
pub(crate) use self::volumes::claims;
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
pub(crate) fn slim<'a>(
    figures: &'a Figures,
    snapshot: &'a UsageSnapshot,
    pods: &'a [Pod],
) -> Summary<'a> {
    let known = by_uid(pods);
    let mut node = node(figures, Used::slim(&snapshot.node));
    let all_pods = snapshot.all_pods.as_ref().map(|usage| ContainerStats {
        name: "pods",
        start_time: Some(Moment(figures.began)),
        used: Used::slim(usage),
        rootfs: None,
        logs: None,
    });
    node.system_containers.extend(all_pods);
    let pods = snapshot.pods.iter().filter_map(|usage| {
        let pod = known.get(usage.uid.as_str())?;
        let names = running_names(pod);
        let mut shown = pod_stats(pod, Used::slim(&usage.total));
        let containers = usage.containers.iter().filter_map(|(id, usage)| {
            let container = names.iter().find(|it| it.id == id.as_str())?;
            Some(ContainerStats {
                name: container.name,
                start_time: container.started.map(Moment),
                used: Used::slim(usage),
                rootfs: None,
                logs: None,
            })
        });
        shown.containers = containers.collect();
        Some(shown)
    });
    let pods = pods.collect();
    Summary { node, pods }
}

/// Everything.
pub(crate) fn whole<'a>(
    figures: &'a Figures,
    readings: &Readings<'a>,
    pods: &'a [Pod],
) -> Summary<'a> {
    let known = by_uid(pods);
    let layers: HashMap<&str, &LayerUsage> =
        readings.layers.iter().map(|layer| (layer.id.as_str(), layer)).collect();
    let on_disk = readings.disk.map(OnDisk::by_uid).unwrap_or_default();
    let nothing = OnDisk::default();
    let mut of_node = None;
    let mut system_containers = Vec::new();
    let mut shown: Vec<PodInMaking<'_, '_>> = Vec::new();
    for cgroup in &readings.figures.cgroups {
        match &cgroup.whose {
            Whose::Node => of_node = Some(cgroup),
            Whose::AllPods => system_containers.push(system("pods", cgroup)),
            Whose::System(name) => system_containers.push(system(name, cgroup)),
            Whose::Class => {}
            Whose::Pod(uid) => {
                if let Some(pod) = known.get(uid.as_str()) {
                    let disk = on_disk.get(uid.as_str()).unwrap_or(&nothing);
                    shown.push(PodInMaking::new(pod, cgroup, disk));
                }
            }
            Whose::Container(uid, id) => {
                if let Some(pod) =
                    shown.last_mut().filter(|it| it.shown.pod_ref.uid == uid.as_str())
                {
                    let layer = layers.get(id.as_str()).copied();
                    pod.take(cgroup, id.as_str(), layer, readings);
                }
            }
        }
    }
    let node = NodeStats { system_containers, ..whole_node(figures, of_node, readings) };
    let pods = shown.into_iter().map(|pod| pod.finish(readings)).collect();
    Summary { node, pods }
}

fn by_uid(pods: &[Pod]) -> HashMap<&str, &Pod> {
    pods.iter().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, pod))).collect()
}

fn node(figures: &Figures, used: Used) -> NodeStats<'_> {
    NodeStats {
        node_name: &figures.node_name,
        system_containers: Vec::new(),
        start_time: Moment(figures.began),
        used,
        network: None,
        fs: None,
        runtime: None,
        rlimit: None,
    }
}

fn whole_node<'a>(
    figures: &'a Figures,
    cgroup: Option<&'a CgroupFigures>,
    readings: &Readings<'a>,
) -> NodeStats<'a> {
    let Some(cgroup) = cgroup else {
        return node(figures, Used::default());
    };
    let at = readings.figures.at;
    let room = |store: &(Timestamp, FileRoom)| FileSystem::of(store.0, &store.1);
    NodeStats {
        network: Some(Network::of(at, &cgroup.interfaces)),
        fs: readings.disk.map(|disk| FileSystem::of(disk.at, &disk.node)),
        runtime: Some(RuntimeStats {
            image_fs: readings.stores.images.as_ref().map(room),
            container_fs: readings.stores.containers.as_ref().map(room),
        }),
        rlimit: readings.figures.processes.map(|processes| ProcessLimit {
            time: Moment(at),
            maxpid: processes.max,
            curproc: processes.n,
        }),
        ..node(figures, Used::whole(&cgroup.usage, cgroup.pressure.as_ref()))
    }
}

fn pod_stats(pod: &Pod, used: Used) -> PodStats<'_> {
    let status = pod.status.as_ref();
    let started = status.and_then(|status| status.start_time.as_ref());
    PodStats {
        pod_ref: PodReference {
            name: pod.metadata.name.as_deref().unwrap_or_default(),
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
            uid: pod.metadata.uid.as_deref().unwrap_or_default(),
        },
        start_time: started.map(|started| Moment(Timestamp(started.0))),
        containers: Vec::new(),
        used,
        network: None,
        volume: Vec::new(),
        ephemeral_storage: None,
        process_stats: None,
    }
}

fn system<'a>(name: &'a str, cgroup: &CgroupFigures) -> ContainerStats<'a> {
    ContainerStats {
        name,
        start_time: Some(Moment(cgroup.made)),
        used: Used::whole(&cgroup.usage, cgroup.pressure.as_ref()),
        rootfs: None,
        logs: None,
    }
}

/// What one pod has on disk.
#[derive(Default)]
struct OnDisk<'a> {
    /// Logs, by container.
    logs: Vec<(&'a str, InUse)>,
    files: InUse,
    volumes: Vec<&'a VolumeUsage>,
}

impl<'a> OnDisk<'a> {
    fn by_uid(disk: &'a DiskUsage) -> HashMap<&'a str, Self> {
        let mut all: HashMap<&str, Self> = HashMap::new();
        for (uid, container, used) in &disk.container_logs {
            let logs = &mut all.entry(uid.as_str()).or_default().logs;
            logs.push((container.as_str(), *used));
        }
        for (uid, used) in &disk.pod_files {
            all.entry(uid.as_str()).or_default().files = *used;
        }
        for volume in &disk.volumes {
            let volumes = &mut all.entry(volume.uid.as_str()).or_default().volumes;
            volumes.push(volume);
        }
        all
    }
}

/// A pod whose containers are still coming.
struct PodInMaking<'a, 'd> {
    pod: &'a Pod,
    shown: PodStats<'a>,
    disk: &'d OnDisk<'d>,
    /// Bytes and inodes on the node's disks so far.
    used: InUse,
    n_processes: u64,
}

impl<'a, 'd> PodInMaking<'a, 'd> {
    fn new(pod: &'a Pod, cgroup: &CgroupFigures, disk: &'d OnDisk<'d>) -> Self {
        let used = Used::whole(&cgroup.usage, cgroup.pressure.as_ref());
        Self {
            pod,
            shown: pod_stats(pod, used),
            disk,
            used: InUse::default(),
            n_processes: cgroup.processes.n_processes,
        }
    }

    fn take(
        &mut self,
        cgroup: &'a CgroupFigures,
        id: &str,
        layer: Option<&LayerUsage>,
        readings: &Readings<'_>,
    ) {
        self.n_processes += cgroup.processes.n_processes;
        // All containers of a pod share one network; the first that has one tells for all.
        if self.shown.network.is_none() && !cgroup.interfaces.is_empty() {
            let network = Network::of(readings.figures.at, &cgroup.interfaces);
            self.shown.network = Some(network);
        }
        let names = running_names(self.pod);
        let Some(container) = names.iter().find(|it| it.id == id) else {
            return;
        };
        let mut shown = ContainerStats {
            name: container.name,
            start_time: container.started.map(Moment),
            used: Used::whole(&cgroup.usage, cgroup.pressure.as_ref()),
            rootfs: None,
            logs: None,
        };
        if let (Some(layer), Some((at, room))) = (layer, &readings.stores.containers) {
            let of_layer =
                FileRoom { used: layer.used.bytes, inodes_used: layer.used.inodes, ..*room };
            shown.rootfs = Some(FileSystem::of(layer.at.unwrap_or(*at), &of_layer));
            self.count(layer.used);
        }
        let mut logs = self.disk.logs.iter();
        let log = logs.find(|(name, _)| *name == container.name);
        if let (Some((_, used)), Some(disk)) = (log, readings.disk) {
            let of_log = FileRoom { used: used.bytes, inodes_used: used.inodes, ..disk.logs };
            shown.logs = Some(FileSystem::of(disk.at, &of_log));
            self.count(*used);
        }
        self.shown.containers.push(shown);
    }

    fn count(&mut self, used: InUse) {
        self.used.bytes += used.bytes;
        self.used.inodes += used.inodes;
    }

    fn finish(mut self, readings: &Readings<'_>) -> PodStats<'a> {
        if let Some(disk) = readings.disk {
            self.count(self.disk.files);
            let (listed, ephemeral) = volumes::listed(self.pod, &self.disk.volumes);
            self.count(ephemeral);
            self.shown.volume = listed;
            let room =
                FileRoom { used: self.used.bytes, inodes_used: self.used.inodes, ..disk.node };
            self.shown.ephemeral_storage = Some(FileSystem::of(disk.at, &room));
        }
        self.shown.process_stats = Some(ProcessStats { process_count: self.n_processes });
        self.shown
    }
}
