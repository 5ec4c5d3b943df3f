//! How processors and memory of the machine hang together: sockets, cores, threads, the caches that
//! some cores share, and the NUMA nodes with their memory.
//!
//! Plain data, in the kernel's numbers. Whoever places containers on processors reads it; nothing
//! here decides. Refuses: reading the machine.

use std::collections::BTreeSet;

use crate::HugePages;

/// Processors and memory by NUMA node. Empty where the machine would not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineTopology {
    /// The NUMA nodes, in the order of their numbers.
    pub nodes: Vec<NumaNode>,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// The kernel's number.
    pub id: u32,
    /// Bytes of memory, huge pages included.
    pub memory_bytes: u64,
    /// Huge pages set aside on it, by size.
    pub huge_pages: Vec<HugePages>,
    /// How far the nodes are, in the order of [`MachineTopology::nodes`]; `None` when the kernel
    /// does not tell.
    pub distances: Option<Vec<u64>>,
    /// Its cores; none on a node that is memory only.
    pub cores: Vec<CpuCore>,
}

/// One core: the processors that share its units of execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCore {
    /// The firmware's number, which is unique in its socket only.
    pub id: u32,
    /// The socket it is in.
    pub socket: u32,
    /// Numbers of its processors that are online.
    pub threads: Vec<u32>,
    /// The last cache before memory, where only some cores of the node share it.
    pub uncore_cache: Option<u32>,
}

impl MachineTopology {
    /// How many processors it has.
    pub fn n_cpus(&self) -> usize {
        self.cores().map(|core| core.threads.len()).sum()
    }

    /// How many sockets those are in.
    pub fn n_sockets(&self) -> usize {
        self.cores().map(|core| core.socket).collect::<BTreeSet<_>>().len()
    }

    /// How many cores those are in.
    pub fn n_cores(&self) -> usize {
        self.cores().count()
    }

    /// Every core of every node.
    pub fn cores(&self) -> impl Iterator<Item = &CpuCore> {
        self.nodes.iter().flat_map(|node| &node.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_cores_and_sockets_are_counted_over_all_nodes() {
        let core = |socket, threads: &[u32]| CpuCore {
            socket,
            threads: threads.to_vec(),
            ..CpuCore::default()
        };
        let node = |id, cores| NumaNode { id, cores, ..NumaNode::default() };
        let nodes = vec![
            node(0, vec![core(0, &[0, 4]), core(0, &[1, 5])]),
            node(1, vec![core(1, &[2, 6]), core(1, &[3])]),
            node(2, vec![]),
        ];
        let topology = MachineTopology { nodes };
        assert_eq!((topology.n_cpus(), topology.n_cores(), topology.n_sockets()), (7, 4, 2));
        assert_eq!(MachineTopology::default().n_cpus(), 0);
    }
}
