//! What others see: which processors and which memory a container has for itself.

use ferrolet_placement::{Placement, memory::MemoryBlock};
use ferrolet_ports::{Given, GivenMemory, GivenView};
use ferrolet_types::{Pod, pod::PodView as _};
use k8s_openapi::api::core::v1::Container;

use crate::Desk;

/// As upstream: under the policies `none` nothing can be had, and what is shared is nobody's.
impl GivenView for Desk {
    fn allocatable(&self) -> Given {
        allocatable(&self.lock().placement)
    }

    fn given_to(&self, pod: &Pod, container: &Container) -> Given {
        let (state, uid) = (self.lock(), pod.uid());
        let own = |it: &ferrolet_placement::cpu::StaticCpus| {
            it.assignments.get(&uid, &container.name).map(|cpus| numbers(cpus.iter()))
        };
        let blocks = state.placement.memory.as_ref();
        let blocks = blocks.and_then(|it| it.assignments.get(&uid, &container.name));
        Given {
            cpus: state.placement.cpus.as_ref().and_then(own).unwrap_or_default(),
            memory: blocks.into_iter().flatten().map(block).collect(),
            ..Given::default()
        }
    }
}

fn allocatable(placement: &Placement) -> Given {
    let cpus = placement.cpus.as_ref().map(|it| numbers(it.allocatable().iter()));
    let nodes = placement.memory.iter().flat_map(|it| it.untouched());
    let memory = nodes.flat_map(|(node, memory)| {
        memory.tables.iter().map(|(kind, table)| GivenMemory {
            kind: kind.clone(),
            bytes: table.allocatable,
            numa_nodes: vec![i64::from(*node)],
        })
    });
    Given { cpus: cpus.unwrap_or_default(), memory: memory.collect(), ..Given::default() }
}

fn block(block: &MemoryBlock) -> GivenMemory {
    GivenMemory {
        kind: block.kind.clone(),
        bytes: block.size,
        numa_nodes: numbers(block.nodes.iter()),
    }
}

fn numbers(of: impl Iterator<Item = u32>) -> Vec<i64> {
    of.map(i64::from).collect()
}
