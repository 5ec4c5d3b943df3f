//! The static policy: memory and huge pages of their own for containers of Guaranteed pods, from
//! NUMA nodes of their own.
//!
//! A node gives memory alone or together with the same others: what one container may use alone is
//! never shared with one that spans nodes. In: what pods ask for, where the topology manager wants
//! it. Out: [`MemoryAssignments`], the same as upstream's for the same history. Refuses: giving a
//! kind of memory that the machine does not have; upstream ends itself when it is asked for one.

use std::collections::BTreeMap;

use ferrolet_node::MachineTopology;
use ferrolet_types::{Amounts, PodUid, pod::ContainerKind};

use super::{
    MemoryAssignments, MemoryBlock, MemoryPolicyError, NodeMemory, NodeReservation,
    reserve::{reservations, untouched},
};
use crate::{
    ContainerAsk, PodAsk, Refusal,
    topology::{HintProvider, NumaMask, ProviderHints, TopologyHint, for_each_mask},
};

/// Bytes by kind.
type Bytes = BTreeMap<String, u64>;
/// Bytes by nodes and kind.
type Reusable = BTreeMap<(NumaMask, String), u64>;

/// The static policy on one machine, with who has what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticMemory {
    untouched: BTreeMap<u32, NodeMemory>,
    /// Who has what.
    pub assignments: MemoryAssignments,
    /// What init containers of the pod that was served last had, by nodes and kind.
    reusable: Option<(PodUid, Reusable)>,
    counts: MemoryCounts,
}

/// What happened since the start, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Containers that asked for memory of their own.
    pub requests: u64,
    /// Those that did not get it.
    pub errors: u64,
}

impl StaticMemory {
    /// The policy on this machine, with nothing given yet. `whole` is what the node keeps as a whole.
    pub fn new(
        machine: &MachineTopology,
        whole: &Amounts,
        given: &[NodeReservation],
    ) -> Result<Self, MemoryPolicyError> {
        let untouched = untouched(machine, &reservations(machine, whole, given)?);
        let assignments = MemoryAssignments::untouched(untouched.clone());
        Ok(Self { untouched, assignments, reusable: None, counts: MemoryCounts::default() })
    }

    /// The machine before anybody has any of its memory.
    pub fn untouched(&self) -> &BTreeMap<u32, NodeMemory> {
        &self.untouched
    }

    /// What happened since the start.
    pub fn counts(&self) -> MemoryCounts {
        self.counts
    }

    /// Takes back what a container had.
    pub fn release(&mut self, uid: &PodUid, container: &str) {
        for block in self.assignments.remove(uid, container).unwrap_or_default() {
            self.assignments.count_back(&block);
        }
    }

    /// A container starts: what init containers before it had is free again.
    pub fn starts(&mut self, pod: &PodAsk, container: &str) {
        let init = pod.containers.iter().filter(|it| it.kind != ContainerKind::Regular);
        for before in init.take_while(|it| it.name != container) {
            if before.kind == ContainerKind::Init {
                self.release(&pod.uid, &before.name);
            }
        }
    }

    fn reusable(&self, uid: &PodUid, nodes: NumaMask, kind: &str) -> u64 {
        let of_pod = self.reusable.as_ref().filter(|(pod, _)| pod == uid);
        let of_pod = of_pod.and_then(|(_, all)| all.get(&(nodes, kind.to_owned())));
        of_pod.copied().unwrap_or(0)
    }

    fn note_reusable(&mut self, pod: &PodAsk, container: &ContainerAsk, blocks: &[MemoryBlock]) {
        let before = self.reusable.take().filter(|(uid, _)| *uid == pod.uid);
        let (uid, mut all) = before.unwrap_or_else(|| (pod.uid.clone(), BTreeMap::new()));
        for block in blocks {
            let key = (block.nodes, block.kind.clone());
            if container.kind == ContainerKind::Init {
                let most = all.entry(key).or_insert(0);
                *most = block.size.max(*most);
            } else if let Some(rest) = all.get_mut(&key) {
                *rest = rest.saturating_sub(block.size);
            }
        }
        self.reusable = Some((uid, all));
    }

    /// What init containers had is the containers' now, so that the sum is what the pod has.
    fn shrink_init(&mut self, pod: &PodAsk, container: &ContainerAsk, blocks: &[MemoryBlock]) {
        for block in blocks {
            let mut size = block.size;
            let init = pod.containers.iter().filter(|it| it.kind != ContainerKind::Regular);
            for before in init.take_while(|it| it.name != container.name) {
                if before.kind != ContainerKind::Init {
                    continue;
                }
                let had = self.assignments.get_mut(&pod.uid, &before.name);
                for old in had.into_iter().flatten() {
                    if old.kind == block.kind && old.nodes == block.nodes {
                        let part = old.size.min(size);
                        old.size -= part;
                        size -= part;
                    }
                }
            }
        }
    }

    /// Every set of nodes that could give all of this, and which are the smallest.
    fn hints(&self, uid: &PodUid, wanted: &Bytes) -> Vec<TopologyHint> {
        let nodes = &self.assignments.nodes;
        let ids: Vec<u32> = nodes.keys().copied().collect();
        let mut fewest = ids.len();
        let mut hints = Vec::new();
        for_each_mask(&ids, &mut |mask| {
            let chosen = || mask.iter().filter_map(|id| nodes.get(&id));
            let sum = |kind: &str, of: fn(&NodeMemory, &str) -> u64| -> u64 {
                chosen().map(|node| of(node, kind)).fold(0, u64::saturating_add)
            };
            if wanted.iter().any(|(kind, size)| sum(kind, NodeMemory::allocatable) < *size) {
                return;
            }
            fewest = fewest.min(usize::try_from(mask.count()).unwrap_or(usize::MAX));
            if chosen().any(|node| !may_join(node, mask)) {
                return;
            }
            let is_there = |(kind, size): (&String, &u64)| {
                let again = self.reusable(uid, mask, kind);
                sum(kind, NodeMemory::free).saturating_add(again) >= *size
            };
            if wanted.iter().all(is_there) {
                hints.push(TopologyHint { nodes: Some(mask), is_preferred: false });
            }
        });
        for hint in &mut hints {
            let size = hint.nodes.map_or(0, NumaMask::count);
            hint.is_preferred = usize::try_from(size).is_ok_and(|it| it == fewest);
        }
        hints
    }

    /// Where to take this from: where the hint says, or as near to it as possible.
    fn choose(
        &self,
        uid: &PodUid,
        wanted: &Bytes,
        hint: TopologyHint,
    ) -> Result<NumaMask, &'static str> {
        let mut best = hint;
        let nodes = match hint.nodes {
            Some(nodes) => nodes,
            None => {
                let found = best_hint(self.hints(uid, wanted)).ok_or(
                    "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
                )?;
                if hint.is_preferred && !found.is_preferred {
                    return Err("[memorymanager] failed to find the default preferred hint");
                }
                best = found;
                found.nodes.unwrap_or_default()
            }
        };
        let free = |kind: &str| -> u64 {
            let chosen = nodes.iter().filter_map(|id| self.assignments.nodes.get(&id));
            chosen.map(|node| node.free(kind)).fold(0, u64::saturating_add)
        };
        let is_enough = wanted.iter().all(|(kind, size)| free(kind) >= *size);
        let chosen = match is_enough {
            true => nodes,
            false => {
                let wider = self.hints(uid, wanted).into_iter();
                let wider = wider.filter(|it| it.nodes.is_some_and(|it| nodes.is_subset(it)));
                let found = best_hint(wider.collect()).ok_or(
                    "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
                )?;
                if best.is_preferred && !found.is_preferred {
                    return Err("[memorymanager] failed to find the extended preferred hint");
                }
                found.nodes.unwrap_or_default()
            }
        };
        let mut given = chosen.iter().filter_map(|id| self.assignments.nodes.get(&id));
        let is_violated = |node: &NodeMemory| {
            let is_used = chosen.count() > 1 && node.n_assignments > 0;
            is_used && (node.cells.len() == 1 || node.group() != chosen)
        };
        if given.any(is_violated) {
            return Err("[memorymanager] preferred hint violates NUMA node allocation");
        }
        Ok(chosen)
    }
}

/// Whether a node may give memory together with exactly these.
fn may_join(node: &NodeMemory, mask: NumaMask) -> bool {
    if mask.count() == 1 {
        return node.cells.len() <= 1;
    }
    node.n_assignments == 0 || (node.cells.len() > 1 && node.group() == mask)
}

/// A preferred one, and the narrowest.
fn best_hint(hints: Vec<TopologyHint>) -> Option<TopologyHint> {
    let key = |it: &TopologyHint| {
        let nodes = it.nodes.unwrap_or_default();
        (!it.is_preferred, nodes.count(), nodes.bits())
    };
    hints.into_iter().min_by_key(key)
}

/// The hints that lead to what is given already; nothing to say when it is not what is asked for.
fn regenerate(blocks: &[MemoryBlock], wanted: &Bytes) -> ProviderHints {
    let fits = |block: &MemoryBlock| wanted.get(&block.kind) == Some(&block.size);
    if blocks.len() != wanted.len() || !blocks.iter().all(fits) {
        return ProviderHints::new();
    }
    let hint = |block: &MemoryBlock| TopologyHint { nodes: Some(block.nodes), is_preferred: true };
    blocks.iter().map(|block| (block.kind.clone(), Some(vec![hint(block)]))).collect()
}

fn for_all_kinds(wanted: &Bytes, hints: Vec<TopologyHint>) -> ProviderHints {
    // Where nothing fits, upstream says nothing, and the refusal comes when it is asked to give.
    if hints.is_empty() {
        return ProviderHints::new();
    }
    wanted.keys().map(|kind| (kind.clone(), Some(hints.clone()))).collect()
}

impl HintProvider for StaticMemory {
    fn container_hints(&self, pod: &PodAsk, container: &ContainerAsk) -> ProviderHints {
        let wanted = match &container.memory {
            Ok(wanted) if !wanted.is_empty() => wanted,
            _ => return ProviderHints::new(),
        };
        match self.assignments.get(&pod.uid, &container.name) {
            Some(has) => regenerate(has, wanted),
            None => for_all_kinds(wanted, self.hints(&pod.uid, wanted)),
        }
    }

    fn pod_hints(&self, pod: &PodAsk) -> ProviderHints {
        let wanted = match pod.memory() {
            Ok(wanted) if !wanted.is_empty() => wanted,
            _ => return ProviderHints::new(),
        };
        let mut given =
            pod.containers.iter().filter_map(|it| self.assignments.get(&pod.uid, &it.name));
        match given.next() {
            Some(has) => regenerate(has, &wanted),
            None => for_all_kinds(&wanted, self.hints(&pod.uid, &wanted)),
        }
    }

    fn allocate(
        &mut self,
        pod: &PodAsk,
        container: &ContainerAsk,
        hint: TopologyHint,
    ) -> Result<(), Refusal> {
        let unexpected = |error: &dyn std::fmt::Display| Refusal::Unexpected(error.to_string());
        let wanted = container.memory.as_ref().map_err(|error| unexpected(error))?;
        if wanted.is_empty() {
            return Ok(());
        }
        self.counts.requests += 1;
        if let Some(has) = self.assignments.get(&pod.uid, &container.name) {
            let has = has.to_vec();
            self.note_reusable(pod, container, &has);
            return Ok(());
        }
        let nodes = self.choose(&pod.uid, wanted, hint).map_err(|error| {
            self.counts.errors += 1;
            unexpected(&error)
        })?;
        let block =
            |(kind, size): (&String, &u64)| MemoryBlock { nodes, kind: kind.clone(), size: *size };
        let blocks: Vec<MemoryBlock> = wanted.iter().map(block).collect();
        for block in &blocks {
            let again = self.reusable(&pod.uid, nodes, &block.kind);
            self.assignments.count_given(nodes, &block.kind, block.size.saturating_sub(again));
        }
        self.note_reusable(pod, container, &blocks);
        self.assignments.insert(&pod.uid, &container.name, blocks.clone());
        self.shrink_init(pod, container, &blocks);
        Ok(())
    }
}
