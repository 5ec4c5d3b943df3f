//! How much memory of which kind each NUMA node has, and who has it: what `memory_manager_state`
//! keeps.

use std::collections::BTreeMap;

use ferrolet_types::PodUid;

use crate::topology::NumaMask;

/// The memory of one kind on one node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryTable {
    /// All of it.
    pub total: u64,
    /// What the system keeps.
    pub system_reserved: u64,
    /// What containers can have.
    pub allocatable: u64,
    /// What containers have.
    pub reserved: u64,
    /// What is left.
    pub free: u64,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// How many pieces were given from it.
    pub n_assignments: u64,
    /// By kind: `memory`, `hugepages-2Mi`.
    pub tables: BTreeMap<String, MemoryTable>,
    /// The nodes that it gives memory together with; itself alone when it stands alone.
    pub cells: Vec<u32>,
}

impl NodeMemory {
    /// The nodes that it gives memory together with.
    pub fn group(&self) -> NumaMask {
        self.cells.iter().copied().collect()
    }

    /// What is left of one kind.
    pub fn free(&self, kind: &str) -> u64 {
        self.tables.get(kind).map_or(0, |it| it.free)
    }

    /// What containers can have of one kind.
    pub fn allocatable(&self, kind: &str) -> u64 {
        self.tables.get(kind).map_or(0, |it| it.allocatable)
    }
}

/// A piece of memory that a container has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBlock {
    /// The nodes it comes from.
    pub nodes: NumaMask,
    /// Its kind.
    pub kind: String,
    /// Bytes.
    pub size: u64,
}

/// The memory of the machine, and who has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryAssignments {
    /// By NUMA node.
    pub nodes: BTreeMap<u32, NodeMemory>,
    containers: BTreeMap<PodUid, BTreeMap<String, Vec<MemoryBlock>>>,
}

impl MemoryAssignments {
    /// Memory that nobody has any of.
    pub fn untouched(nodes: BTreeMap<u32, NodeMemory>) -> Self {
        Self { nodes, containers: BTreeMap::new() }
    }

    /// What a container has; `None` when it shares.
    pub fn get(&self, uid: &PodUid, container: &str) -> Option<&[MemoryBlock]> {
        self.containers.get(uid)?.get(container).map(Vec::as_slice)
    }

    pub(super) fn get_mut(&mut self, uid: &PodUid, name: &str) -> Option<&mut Vec<MemoryBlock>> {
        self.containers.get_mut(uid)?.get_mut(name)
    }

    /// Every container that has its own.
    pub fn iter(&self) -> impl Iterator<Item = (&PodUid, &str, &[MemoryBlock])> {
        let pods = self.containers.iter();
        pods.flat_map(|(uid, all)| {
            all.iter().map(move |(name, it)| (uid, name.as_str(), it.as_slice()))
        })
    }

    /// Notes what a container has.
    pub fn insert(&mut self, uid: &PodUid, container: &str, blocks: Vec<MemoryBlock>) {
        self.containers.entry(uid.clone()).or_default().insert(container.to_owned(), blocks);
    }

    pub(super) fn remove(&mut self, uid: &PodUid, container: &str) -> Option<Vec<MemoryBlock>> {
        let of_pod = self.containers.get_mut(uid)?;
        let had = of_pod.remove(container);
        if of_pod.is_empty() {
            self.containers.remove(uid);
        }
        had
    }

    /// Counts a piece as given, from the lower nodes first.
    pub fn count_given(&mut self, nodes: NumaMask, kind: &str, mut size: u64) {
        let cells: Vec<u32> = nodes.iter().collect();
        for id in &cells {
            let Some(node) = self.nodes.get_mut(id) else {
                continue;
            };
            node.n_assignments += 1;
            node.cells.clone_from(&cells);
            if let Some(table) = node.tables.get_mut(kind) {
                let part = size.min(table.free);
                table.free -= part;
                table.reserved += part;
                size -= part;
            }
        }
    }

    /// Counts a piece as given back, to the lower nodes first. A node that gives nothing any more
    /// stands alone again.
    pub fn count_back(&mut self, block: &MemoryBlock) {
        let mut size = block.size;
        for id in block.nodes.iter() {
            let Some(node) = self.nodes.get_mut(&id) else {
                continue;
            };
            node.n_assignments = node.n_assignments.saturating_sub(1);
            if node.n_assignments == 0 {
                node.cells = vec![id];
            }
            if let Some(table) = node.tables.get_mut(&block.kind) {
                let part = size.min(table.reserved);
                table.free += part;
                table.reserved -= part;
                size -= part;
            }
        }
    }
}
