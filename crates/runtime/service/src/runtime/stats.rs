//! What containers and pods use, as CRI shows it.

use std::os::fd::AsFd as _;

use ferrolet_cri_proto as cri;
use ferrolet_runtime_network::read_interfaces;
use ferrolet_runtime_plan::sandbox::cgroup_parent;

use super::{
    Runtime,
    answer::has_labels,
    error::RuntimeError,
    files::off_thread,
    table::{Container, Sandbox},
    usage::{GroupUsage, LayerUsage, Memory, interfaces, read_group},
};

impl Runtime {
    /// What one container uses.
    pub(crate) async fn container_stats(
        &self,
        id: &str,
    ) -> Result<cri::ContainerStats, RuntimeError> {
        self.stats_of(self.container(id)?).await
    }

    /// What all containers use that a filter lets through and that run.
    pub(crate) async fn list_container_stats(
        &self,
        filter: Option<cri::ContainerStatsFilter>,
    ) -> Result<Vec<cri::ContainerStats>, RuntimeError> {
        let filter = filter.unwrap_or_default();
        let wanted: Vec<Container> = {
            let table = self.table();
            let is_wanted = |it: &&Container| {
                let labels = it.spec.config().labels;
                it.phase().pid().is_some()
                    && it.spec.id.starts_with(&filter.id)
                    && it.spec.sandbox.starts_with(&filter.pod_sandbox_id)
                    && has_labels(&labels, &filter.label_selector)
            };
            table.containers.values().filter(is_wanted).cloned().collect()
        };
        let mut stats = Vec::with_capacity(wanted.len());
        for container in wanted {
            stats.push(self.stats_of(container).await?);
        }
        Ok(stats)
    }

    async fn stats_of(&self, container: Container) -> Result<cri::ContainerStats, RuntimeError> {
        let sandbox = self.sandbox(&container.spec.sandbox)?.record.config();
        let parent = cgroup_parent(&sandbox, &self.0.settings.cgroup_parent).to_owned();
        let (hierarchies, now) = (self.0.settings.hierarchies.clone(), self.now());
        let place = self.0.places.container(&container.spec.id);
        let is_running = container.phase().pid().is_some();
        off_thread(move || {
            let id = container.spec.id.as_str();
            let group = if is_running {
                read_group(&hierarchies, &parent, id)
            } else {
                GroupUsage::default()
            };
            let layer = measured(&container, &place.join("upper"), now);
            let config = container.spec.config();
            Ok(cri::ContainerStats {
                attributes: Some(cri::ContainerAttributes {
                    id: id.to_owned(),
                    metadata: config.metadata,
                    labels: config.labels,
                    annotations: config.annotations,
                }),
                cpu: cpu(&group, now),
                memory: group.memory.map(|it| memory(it, now)),
                swap: group.memory.map(|it| cri::SwapUsage {
                    timestamp: now,
                    swap_available_bytes: None,
                    swap_usage_bytes: counted(it.swap),
                }),
                writable_layer: Some(cri::FilesystemUsage {
                    timestamp: layer.at,
                    fs_id: Some(cri::FilesystemIdentifier {
                        mountpoint: place.display().to_string(),
                    }),
                    used_bytes: counted(layer.bytes),
                    inodes_used: counted(layer.inodes),
                }),
                io: None,
            })
        })
        .await
    }

    /// What all writable layers take together, each measured as rarely as it is expensive.
    pub(crate) async fn writable_layers(&self) -> Result<cri::FilesystemUsage, RuntimeError> {
        let all: Vec<Container> = self.table().containers.values().cloned().collect();
        let (places, now) = (self.0.places.clone(), self.now());
        off_thread(move || {
            let mut sum = LayerUsage::default();
            for container in &all {
                let upper = places.container(&container.spec.id).join("upper");
                let layer = measured(container, &upper, now);
                sum.bytes += layer.bytes;
                sum.inodes += layer.inodes;
            }
            Ok(cri::FilesystemUsage {
                timestamp: now,
                fs_id: Some(cri::FilesystemIdentifier {
                    mountpoint: places.root.display().to_string(),
                }),
                used_bytes: counted(sum.bytes),
                inodes_used: counted(sum.inodes),
            })
        })
        .await
    }

    /// What a pod uses.
    pub(crate) async fn sandbox_stats(
        &self,
        id: &str,
    ) -> Result<cri::PodSandboxStats, RuntimeError> {
        let sandbox = self.sandbox(id)?;
        self.stats_of_sandbox(&sandbox).await
    }

    /// What all pods use that a filter lets through and that are ready.
    pub(crate) async fn list_sandbox_stats(
        &self,
        filter: Option<cri::PodSandboxStatsFilter>,
    ) -> Result<Vec<cri::PodSandboxStats>, RuntimeError> {
        let filter = filter.unwrap_or_default();
        let wanted: Vec<Sandbox> = {
            let table = self.table();
            let is_wanted = |it: &&Sandbox| {
                it.link().is_some()
                    && it.record.id.starts_with(&filter.id)
                    && has_labels(&it.record.config().labels, &filter.label_selector)
            };
            table.sandboxes.values().filter(is_wanted).cloned().collect()
        };
        let mut stats = Vec::with_capacity(wanted.len());
        for sandbox in wanted {
            stats.push(self.stats_of_sandbox(&sandbox).await?);
        }
        Ok(stats)
    }

    async fn stats_of_sandbox(
        &self,
        sandbox: &Sandbox,
    ) -> Result<cri::PodSandboxStats, RuntimeError> {
        let id = sandbox.record.id.clone();
        let filter = cri::ContainerStatsFilter { pod_sandbox_id: id.clone(), ..Default::default() };
        let containers = self.list_container_stats(Some(filter)).await?;
        let config = sandbox.record.config();
        let parent = config.linux.as_ref().map(|it| it.cgroup_parent.clone()).unwrap_or_default();
        let (hierarchies, now) = (self.0.settings.hierarchies.clone(), self.now());
        let namespace = sandbox.link().and_then(|it| it.network.as_ref()?.try_clone().ok());
        let (group, found) = off_thread(move || {
            // Without a group of the pod's own there is only the sum of its containers.
            let group = if parent.is_empty() {
                GroupUsage::default()
            } else {
                read_group(&hierarchies, &parent, "")
            };
            let table = namespace.and_then(|it| read_interfaces(it.as_fd()).ok());
            Ok((group, table.map(|it| interfaces(&it)).unwrap_or_default()))
        })
        .await?;
        let mut found = found.into_iter();
        let network = cri::NetworkUsage {
            timestamp: now,
            default_interface: found.next(),
            interfaces: found.collect(),
        };
        Ok(cri::PodSandboxStats {
            attributes: Some(cri::PodSandboxAttributes {
                id,
                metadata: config.metadata,
                labels: config.labels,
                annotations: config.annotations,
            }),
            linux: Some(cri::LinuxPodSandboxStats {
                cpu: cpu(&group, now).or_else(|| summed_cpu(&containers, now)),
                memory: group
                    .memory
                    .map(|it| memory(it, now))
                    .or_else(|| summed_memory(&containers, now)),
                network: network.default_interface.is_some().then_some(network),
                process: group
                    .processes
                    .map(|n| cri::ProcessUsage { timestamp: now, process_count: counted(n) }),
                containers,
                io: None,
            }),
        })
    }
}

/// A writable layer's size, measured again when it is time to.
fn measured(container: &Container, upper: &std::path::Path, now: i64) -> LayerUsage {
    let lock = || container.layer_usage.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let known = *lock();
    if !known.is_due() {
        return known;
    }
    let measured = LayerUsage::measure(upper, now);
    *lock() = measured;
    measured
}

fn counted(value: u64) -> Option<cri::UInt64Value> {
    Some(cri::UInt64Value { value })
}

fn cpu(group: &GroupUsage, now: i64) -> Option<cri::CpuUsage> {
    group.cpu.map(|nanoseconds| cri::CpuUsage {
        timestamp: now,
        usage_core_nano_seconds: counted(nanoseconds),
        usage_nano_cores: None,
        psi: None,
    })
}

fn memory(memory: Memory, now: i64) -> cri::MemoryUsage {
    let available = memory.limit.checked_sub(memory.working_set).filter(|_| memory.limit > 0);
    cri::MemoryUsage {
        timestamp: now,
        working_set_bytes: counted(memory.working_set),
        available_bytes: available.and_then(counted),
        usage_bytes: counted(memory.usage),
        rss_bytes: counted(memory.rss),
        page_faults: counted(memory.page_faults),
        major_page_faults: counted(memory.major_page_faults),
        psi: None,
    }
}

fn summed_cpu(containers: &[cri::ContainerStats], now: i64) -> Option<cri::CpuUsage> {
    let all = containers.iter().filter_map(|it| it.cpu.as_ref()?.usage_core_nano_seconds);
    let sum: u64 = all.map(|it| it.value).sum();
    cpu(&GroupUsage { cpu: Some(sum), ..GroupUsage::default() }, now)
}

fn summed_memory(containers: &[cri::ContainerStats], now: i64) -> Option<cri::MemoryUsage> {
    let sum = |field: fn(&cri::MemoryUsage) -> Option<cri::UInt64Value>| -> u64 {
        containers.iter().filter_map(|it| field(it.memory.as_ref()?)).map(|it| it.value).sum()
    };
    Some(memory(
        Memory {
            usage: sum(|it| it.usage_bytes),
            working_set: sum(|it| it.working_set_bytes),
            rss: sum(|it| it.rss_bytes),
            page_faults: sum(|it| it.page_faults),
            major_page_faults: sum(|it| it.major_page_faults),
            ..Memory::default()
        },
        now,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_available_up_to_a_limit_and_nobody_knows_without_one() {
        let limited = Memory { limit: 100, working_set: 60, ..Memory::default() };
        assert_eq!(memory(limited, 7).available_bytes, counted(40));
        let unlimited = Memory { limit: 0, ..limited };
        assert_eq!(memory(unlimited, 7).available_bytes, None);
        let over = Memory { working_set: 110, ..limited };
        assert_eq!(memory(over, 7).available_bytes, None);
    }

    #[test]
    fn a_pod_without_a_group_uses_what_its_containers_use() {
        let container = |nanoseconds, bytes| cri::ContainerStats {
            cpu: cpu(&GroupUsage { cpu: Some(nanoseconds), ..GroupUsage::default() }, 7),
            memory: Some(memory(Memory { usage: bytes, ..Memory::default() }, 7)),
            ..Default::default()
        };
        let all = [container(1, 10), container(2, 20)];
        assert_eq!(summed_cpu(&all, 7).unwrap().usage_core_nano_seconds, counted(3));
        assert_eq!(summed_memory(&all, 7).unwrap().usage_bytes, counted(30));
    }
}
