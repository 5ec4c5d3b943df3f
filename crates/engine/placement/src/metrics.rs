//! Metrics of who has what. Counted by the policies, read when somebody asks; how long admissions
//! took is counted in the tally of the process.

use std::{sync::Arc, time::Duration};

use ferrolet_placement::topology::TopologyPolicy;
use ferrolet_ports::{
    Measured, Sample,
    metrics::{self, Counter, process},
};

use crate::Desk;

const ALIGNED: Counter<2> = metrics::KUBELET_CONTAINER_ALIGNED_COMPUTE_RESOURCES_COUNT;
const UNALIGNED: Counter<2> = metrics::KUBELET_CONTAINER_ALIGNED_COMPUTE_RESOURCES_FAILURE_COUNT;

/// An admission took this long. Upstream counts whole milliseconds.
pub(crate) fn admitted(took: Duration) {
    let milliseconds = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
    let histogram = metrics::KUBELET_TOPOLOGY_MANAGER_ADMISSION_DURATION_MS;
    process().observe(histogram, [], f64::from(milliseconds));
}

/// What is shown of the desk.
pub(crate) struct PlacementMetrics(pub(crate) Arc<Desk>);

impl Measured for PlacementMetrics {
    fn samples(&self) -> Vec<Sample> {
        let state = self.0.lock();
        let placement = &state.placement;
        let mut samples = Vec::new();
        let cpus = placement.cpus.as_ref();
        let counts = cpus.map(|it| it.counts()).unwrap_or_default();
        let exclusive = cpus.map(|it| it.assignments.exclusive()).unwrap_or_default();
        let n_shared = cpus.map_or(0, |it| it.available().len());
        let memory = placement.memory.as_ref().map(|it| it.counts()).unwrap_or_default();
        let all = placement.counts();
        for (counter, counted) in [
            (metrics::KUBELET_CPU_MANAGER_PINNING_REQUESTS_TOTAL, counts.requests),
            (metrics::KUBELET_CPU_MANAGER_PINNING_ERRORS_TOTAL, counts.errors),
            (metrics::KUBELET_MEMORY_MANAGER_PINNING_REQUESTS_TOTAL, memory.requests),
            (metrics::KUBELET_MEMORY_MANAGER_PINNING_ERRORS_TOTAL, memory.errors),
            (metrics::KUBELET_TOPOLOGY_MANAGER_ADMISSION_REQUESTS_TOTAL, all.requests),
            (metrics::KUBELET_TOPOLOGY_MANAGER_ADMISSION_ERRORS_TOTAL, all.errors),
        ] {
            samples.push(counter.sample([], number(counted)));
        }
        for (gauge, n_cpus) in [
            (metrics::KUBELET_CPU_MANAGER_SHARED_POOL_SIZE_MILLICORES, n_shared * 1000),
            (metrics::KUBELET_CPU_MANAGER_EXCLUSIVE_CPU_ALLOCATION_COUNT, exclusive.len()),
        ] {
            samples.push(gauge.sample([], number(n_cpus as u64)));
        }
        if let Some(cpus) = cpus {
            for (node, all) in &cpus.layout().nodes {
                let n = all.n_common(&exclusive);
                if n > 0 {
                    let gauge = metrics::KUBELET_CPU_MANAGER_ALLOCATION_PER_NUMA;
                    samples.push(gauge.sample([&node.to_string()], number(n as u64)));
                }
            }
            samples.extend([
                ALIGNED.sample(["physical_cpu", "container"], number(counts.whole_cores)),
                ALIGNED.sample(["uncore_cache", "container"], number(counts.one_cache)),
                UNALIGNED.sample(["physical_cpu", "container"], number(counts.whole_cores_failed)),
            ]);
        }
        if placement.rules.policy != TopologyPolicy::None {
            samples.extend([
                ALIGNED.sample(["numa_node", "container"], number(all.aligned_containers)),
                ALIGNED.sample(["numa_node", "pod"], number(all.aligned_pods)),
                UNALIGNED.sample(["numa_node", "container"], number(all.unaligned_containers)),
                UNALIGNED.sample(["numa_node", "pod"], number(all.unaligned_pods)),
            ]);
        }
        samples
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of pods and processors")]
fn number(counted: u64) -> f64 {
    counted as f64
}
