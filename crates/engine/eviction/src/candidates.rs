//! The pods that run here, with what they asked for and what they use, for ranking. Pure.

use std::collections::{BTreeMap, HashMap};

use ferrolet_eviction::{Candidate, ContainerUse, FileUse, PodUse};
use ferrolet_pod::container_ids;
use ferrolet_ports::{DiskUsage, InUse, LayerUsage, UsageFigures, UsageSnapshot, Whose};
use ferrolet_resources::{
    amount, has_pod_level_resources, is_local_volume, parse_amounts, requests_for_ranking,
};
use ferrolet_types::{
    GracePeriod, Pod, PodUid, Quantity,
    pod::{Phase, PodView as _},
};
use k8s_openapi::{
    api::core::v1::{Container, Pod as PodObject, Volume},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};

/// What was measured of pods, as far as the shortage calls for it.
#[derive(Default)]
pub(crate) struct Measured {
    cgroups: BTreeMap<PodUid, CgroupsOfPod>,
    n_processes: BTreeMap<PodUid, u64>,
    written: HashMap<String, FileUse>,
    logs: BTreeMap<PodUid, BTreeMap<String, FileUse>>,
    volumes: BTreeMap<PodUid, BTreeMap<String, FileUse>>,
    has_disk: bool,
}

struct CgroupsOfPod {
    memory: Option<u64>,
    containers: HashMap<String, u64>,
}

impl Measured {
    /// Takes in what cgroups say of memory.
    pub(crate) fn with_memory(mut self, snapshot: &UsageSnapshot) -> Self {
        for pod in &snapshot.pods {
            let containers = pod.containers.iter().filter_map(|(id, usage)| {
                Some((id.as_str().to_owned(), usage.memory?.working_set))
            });
            let cgroups = CgroupsOfPod {
                memory: pod.total.memory.map(|it| it.working_set),
                containers: containers.collect(),
            };
            self.cgroups.insert(pod.uid.clone(), cgroups);
        }
        self
    }

    /// Takes in how many processes pods have.
    pub(crate) fn with_processes(mut self, figures: &UsageFigures) -> Self {
        for cgroup in &figures.cgroups {
            if let Whose::Pod(uid) | Whose::Container(uid, _) = &cgroup.whose {
                let own = self.n_processes.entry(uid.clone()).or_default();
                *own = own.saturating_add(cgroup.processes.n_processes);
            }
        }
        self
    }

    /// Takes in what containers wrote over their images.
    pub(crate) fn with_layers(mut self, layers: &[LayerUsage]) -> Self {
        let those = layers.iter().map(|it| (it.id.as_str().to_owned(), files(it.used)));
        self.written.extend(those);
        self.has_disk = true;
        self
    }

    /// Takes in logs and volumes.
    pub(crate) fn with_disk(mut self, disk: &DiskUsage) -> Self {
        for (uid, container, used) in &disk.container_logs {
            let of_pod = self.logs.entry(uid.clone()).or_default();
            add(of_pod.entry(container.clone()).or_default(), files(*used));
        }
        for volume in disk.volumes.iter().filter(|it| it.is_on_node) {
            let name = volume.volume.as_ref().unwrap_or(&volume.name).clone();
            let used = FileUse { bytes: volume.room.used, inodes: volume.room.inodes_used };
            self.volumes.entry(volume.uid.clone()).or_default().insert(name, used);
        }
        self.has_disk = true;
        self
    }

    /// What a pod uses; none when its cgroups were not seen, because then nothing is known of it.
    fn of(&self, pod: &PodObject) -> Option<PodUse> {
        let uid = pod.uid();
        let cgroups = self.cgroups.get(&uid)?;
        let ids: BTreeMap<&str, &str> = container_ids(pod).into_iter().collect();
        let logs = self.logs.get(&uid);
        let containers = containers(pod).map(|it| {
            let id = ids.get(it.name.as_str()).copied();
            let rootfs = id.and_then(|id| self.written.get(id)).copied();
            let requests = it.resources.as_ref().and_then(|it| it.requests.as_ref());
            let requests = parse_amounts(requests);
            ContainerUse {
                name: it.name.clone(),
                memory_request: amount(&requests, "memory"),
                storage_request: amount(&requests, "ephemeral-storage"),
                memory: id.and_then(|id| cgroups.containers.get(id)).copied(),
                rootfs: rootfs.filter(|_| self.has_disk),
                logs: logs.and_then(|logs| logs.get(&it.name)).copied(),
            }
        });
        Some(PodUse {
            memory: cgroups.memory.unwrap_or(0),
            n_processes: self.n_processes.get(&uid).copied().unwrap_or(0),
            containers: containers.collect(),
            local_volumes: self.local_volumes(pod, &uid),
        })
    }

    fn local_volumes(&self, pod: &PodObject, uid: &PodUid) -> FileUse {
        let mut sum = FileUse::default();
        let Some(measured) = self.volumes.get(uid) else {
            return sum;
        };
        let is_charged = |it: &&Volume| it.host_path.is_some() || is_local_volume(it);
        for volume in pod.spec_ref().volumes.iter().flatten().filter(is_charged) {
            add(&mut sum, measured.get(&volume.name).copied().unwrap_or_default());
        }
        sum
    }
}

/// True for a pod that has something to give: one that has ended has nothing any more.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !pod.api_phase().is_some_and(Phase::is_terminal)
}

/// The pod as ranking sees it.
pub(crate) fn candidate(pod: &PodObject, measured: &Measured) -> Candidate {
    let spec = pod.spec_ref();
    let requests = requests_for_ranking(pod);
    let own = spec.resources.as_ref().and_then(|it| it.requests.as_ref());
    let own_memory = own.filter(|_| has_pod_level_resources(pod)).and_then(|it| it.get("memory"));
    let grace = spec.termination_grace_period_seconds;
    Candidate {
        uid: pod.uid(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        priority: spec.priority.unwrap_or(0),
        is_critical: pod.is_critical(),
        memory_request: amount(&requests, "memory"),
        storage_request: amount(&requests, "ephemeral-storage"),
        own_memory_request: own_memory.and_then(parsed),
        grace: grace.map(GracePeriod::from_secs),
        used: measured.of(pod),
    }
}

/// Containers that are named in messages: ephemeral ones cannot ask for anything, and would always
/// be to blame.
fn containers(pod: &PodObject) -> impl Iterator<Item = &Container> {
    let spec = pod.spec_ref();
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

fn parsed(quantity: &ApiQuantity) -> Option<Quantity> {
    Quantity::parse(&quantity.0).ok()
}

fn files(used: InUse) -> FileUse {
    FileUse { bytes: used.bytes, inodes: used.inodes }
}

fn add(sum: &mut FileUse, more: FileUse) {
    sum.bytes = sum.bytes.saturating_add(more.bytes);
    sum.inodes = sum.inodes.saturating_add(more.inodes);
}
