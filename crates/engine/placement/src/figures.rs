//! Figures of who has what, in upstream's names. Counted by the policies, read when somebody asks;
//! how long admissions took is one set for the process (ADR 0018).

use std::{sync::Arc, time::Duration};

use ferrolet_placement::topology::TopologyPolicy;
use ferrolet_ports::{Measured, Sample, SampleValue, Tally};

use crate::Desk;

const DURATION: &str = "kubelet_topology_manager_admission_duration_ms";
const ALIGNED: &str = "kubelet_container_aligned_compute_resources_count";
const UNALIGNED: &str = "kubelet_container_aligned_compute_resources_failure_count";

static DURATIONS: Tally = Tally::new();

/// An admission took this long. Upstream counts whole milliseconds.
pub(crate) fn admitted(took: Duration) {
    let mut bounds = [0.05; 15];
    for at in 1..bounds.len() {
        bounds[at] = bounds[at - 1] * 2.0;
    }
    let milliseconds = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
    DURATIONS.observe(DURATION, &[], &bounds, f64::from(milliseconds));
}

/// What is shown of the desk.
pub(crate) struct Figures(pub(crate) Arc<Desk>);

impl Measured for Figures {
    #[expect(clippy::cast_precision_loss, reason = "counts of pods and processors")]
    fn samples(&self) -> Vec<Sample> {
        let state = self.0.lock();
        let placement = &state.placement;
        let mut samples = DURATIONS.samples();
        let mut show = |family: &'static str, labels: &[&str], n: u64| {
            let labels = labels.iter().map(|it| (*it).to_owned()).collect();
            samples.push(Sample { family, labels, value: SampleValue::Number(n as f64) });
        };
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let cpus = placement.cpus.as_ref();
        let counts = cpus.map(|it| it.counts()).unwrap_or_default();
        let exclusive = cpus.map(|it| it.assignments.exclusive()).unwrap_or_default();
        let n_shared = cpus.map_or(0, |it| it.available().len());
        show("kubelet_cpu_manager_pinning_requests_total", &[], counts.requests);
        show("kubelet_cpu_manager_pinning_errors_total", &[], counts.errors);
        show("kubelet_cpu_manager_shared_pool_size_millicores", &[], count(n_shared) * 1000);
        show("kubelet_cpu_manager_exclusive_cpu_allocation_count", &[], count(exclusive.len()));
        if let Some(cpus) = cpus {
            for (node, all) in &cpus.layout().nodes {
                let n = all.n_common(&exclusive);
                if n > 0 {
                    let family = "kubelet_cpu_manager_allocation_per_numa";
                    show(family, &[&node.to_string()], count(n));
                }
            }
            show(ALIGNED, &["physical_cpu", "container"], counts.whole_cores);
            show(ALIGNED, &["uncore_cache", "container"], counts.one_cache);
            show(UNALIGNED, &["physical_cpu", "container"], counts.whole_cores_failed);
        }
        let memory = placement.memory.as_ref().map(|it| it.counts()).unwrap_or_default();
        show("kubelet_memory_manager_pinning_requests_total", &[], memory.requests);
        show("kubelet_memory_manager_pinning_errors_total", &[], memory.errors);
        let all = placement.counts();
        show("kubelet_topology_manager_admission_requests_total", &[], all.requests);
        show("kubelet_topology_manager_admission_errors_total", &[], all.errors);
        if placement.rules.policy != TopologyPolicy::None {
            show(ALIGNED, &["numa_node", "container"], all.aligned_containers);
            show(ALIGNED, &["numa_node", "pod"], all.aligned_pods);
            show(UNALIGNED, &["numa_node", "container"], all.unaligned_containers);
            show(UNALIGNED, &["numa_node", "pod"], all.unaligned_pods);
        }
        samples
    }
}
