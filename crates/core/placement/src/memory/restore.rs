//! What an earlier life wrote, fitted to the machine and the configuration of today, as for
//! processors.

use std::collections::BTreeMap;

use super::{MemoryAssignments, MemoryBlock, NodeMemory, StaticMemory};

impl StaticMemory {
    /// Takes over who had what. Answers with what could not be kept, and why, as sentences.
    pub fn restore(&mut self, policy: &str, written: &MemoryAssignments) -> Vec<String> {
        if policy != "Static" {
            return vec![format!(
                "it was written under the policy {policy:?} and says nothing of reserved memory"
            )];
        }
        if written.nodes.is_empty() && written.iter().next().is_none() {
            return Vec::new();
        }
        let mut kept = MemoryAssignments::untouched(self.untouched().clone());
        let mut notes = Vec::new();
        for (uid, container, blocks) in written.iter() {
            if let Some(why) = blocks.iter().find_map(|block| misfit(&kept.nodes, block)) {
                notes.push(format!(
                    "pod {uid}, container {container}: its memory cannot be kept: {why}"
                ));
                continue;
            }
            for block in blocks {
                kept.count_given(block.nodes, &block.kind, block.size);
            }
            kept.insert(uid, container, blocks.to_vec());
        }
        if notes.is_empty() && !is_same(&written.nodes, &kept.nodes) {
            notes
                .push("the NUMA nodes' memory or what is reserved of it is another now".to_owned());
        }
        // Nodes of one group may have given in another order; what was written is what was given.
        self.assignments = if notes.is_empty() { written.clone() } else { kept };
        notes
    }
}

fn misfit(nodes: &BTreeMap<u32, NodeMemory>, block: &MemoryBlock) -> Option<String> {
    if block.nodes.is_empty() {
        return Some("it comes from no NUMA node".to_owned());
    }
    let mut free = 0_u64;
    for id in block.nodes.iter() {
        let Some(node) = nodes.get(&id) else {
            return Some(format!("there is no NUMA node {id}"));
        };
        if !node.tables.contains_key(&block.kind) {
            return Some(format!("NUMA node {id} has no {}", block.kind));
        }
        free = free.saturating_add(node.free(&block.kind));
    }
    let (kind, size) = (&block.kind, block.size);
    (free < size).then(|| format!("{size} bytes of {kind} are not there any more"))
}

/// Whether two states are of the same machine with as much given away: which node of a group gave how
/// much, and with whom it was grouped last, depends on the order of the past.
fn is_same(one: &BTreeMap<u32, NodeMemory>, two: &BTreeMap<u32, NodeMemory>) -> bool {
    let free = |nodes: &BTreeMap<u32, NodeMemory>, kind: &str| {
        nodes.values().map(|node| node.free(kind)).fold(0, u64::saturating_add)
    };
    let is_same_node = |(id, one_node): (&u32, &NodeMemory)| {
        let Some(two_node) = two.get(id) else {
            return false;
        };
        one_node.n_assignments == two_node.n_assignments
            && one_node.tables.len() == two_node.tables.len()
            && one_node.tables.iter().all(|(kind, a)| {
                two_node.tables.get(kind).is_some_and(|b| {
                    (a.total, a.system_reserved, a.allocatable)
                        == (b.total, b.system_reserved, b.allocatable)
                }) && free(one, kind) == free(two, kind)
            })
    };
    one.len() == two.len() && one.iter().all(is_same_node)
}
