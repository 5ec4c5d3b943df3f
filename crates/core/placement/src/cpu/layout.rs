//! The processors of a machine by what they hang together in, made ready for choosing among them.

use std::collections::BTreeMap;

use ferrolet_node::MachineTopology;

use super::CpuSet;

/// Processors by NUMA node, socket, last shared cache and core. Never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuLayout {
    /// Every processor.
    pub all: CpuSet,
    /// By NUMA node.
    pub nodes: Groups,
    /// By socket.
    pub sockets: Groups,
    /// By the last cache before memory.
    pub caches: Groups,
    /// By core, which is called by the lowest of its processors.
    pub cores: Groups,
    places: BTreeMap<u32, CpuPlace>,
    n_cores: usize,
}

/// Sets of processors by the number of what they are in.
pub type Groups = BTreeMap<u32, CpuSet>;

/// Where one processor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// Its NUMA node.
    pub node: u32,
    /// Its socket.
    pub socket: u32,
    /// Its last cache before memory.
    pub cache: u32,
    /// Its core.
    pub core: u32,
}

impl CpuLayout {
    /// The layout of a machine. A core without a cache of its kind counts with its socket, as it
    /// does upstream.
    pub fn of(machine: &MachineTopology) -> Self {
        let mut layout = Self { n_cores: machine.n_cores(), ..Self::default() };
        for node in &machine.nodes {
            for core in &node.cores {
                let Some(number) = core.threads.iter().min() else {
                    continue;
                };
                let place = CpuPlace {
                    node: node.id,
                    socket: core.socket,
                    cache: core.uncore_cache.unwrap_or(core.socket),
                    core: *number,
                };
                core.threads.iter().for_each(|cpu| layout.put(*cpu, place));
            }
        }
        layout
    }

    fn put(&mut self, cpu: u32, place: CpuPlace) {
        self.all.insert(cpu);
        self.nodes.entry(place.node).or_default().insert(cpu);
        self.sockets.entry(place.socket).or_default().insert(cpu);
        self.caches.entry(place.cache).or_default().insert(cpu);
        self.cores.entry(place.core).or_default().insert(cpu);
        self.places.insert(cpu, place);
    }

    /// Where a processor is; `None` for one that the machine does not have.
    pub fn place(&self, cpu: u32) -> Option<CpuPlace> {
        self.places.get(&cpu).copied()
    }

    /// How many processors a core has, on average: upstream's measure of a whole core.
    pub fn cpus_per_core(&self) -> usize {
        self.all.len().checked_div(self.n_cores).unwrap_or(0)
    }

    /// How many processors a socket has, on average.
    pub fn cpus_per_socket(&self) -> usize {
        self.all.len().checked_div(self.sockets.len()).unwrap_or(0)
    }

    /// How many processors share a last cache, on average.
    pub fn cpus_per_cache(&self) -> usize {
        self.all.len().checked_div(self.caches.len()).unwrap_or(0)
    }

    /// The sockets that these NUMA nodes have processors in.
    pub fn sockets_of_nodes(&self, nodes: impl IntoIterator<Item = u32>) -> CpuSet {
        let cpus = nodes.into_iter().filter_map(|node| self.nodes.get(&node));
        let cpus = cpus.fold(CpuSet::EMPTY, |all, more| all.union(more));
        self.sockets.iter().filter(|(_, it)| it.n_common(&cpus) > 0).map(|(id, _)| *id).collect()
    }

    /// True when all of these share their last cache.
    pub fn is_within_one_cache(&self, cpus: &CpuSet) -> bool {
        cpus.len() <= 1 || self.caches.values().any(|cache| cpus.is_subset(cache))
    }
}
