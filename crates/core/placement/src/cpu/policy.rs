//! The static policy: whole processors for containers that ask for them, the rest for all others.
//!
//! In: what pods ask for, where the topology manager wants it. Out: who has which processors
//! ([`CpuAssignments`]), the same as upstream's for the same history. What a container of a pod that
//! runs before the others had is used again by those. Refuses: forgetting who had what while the pod
//! lives.

use std::collections::BTreeMap;

use ferrolet_node::MachineTopology;
use ferrolet_types::{PodUid, pod::ContainerKind};

use super::{
    CacheAlignment, CpuAssignments, CpuLayout, CpuOptions, CpuOrder, CpuSet, Distribution,
    TakeError, take_distributed, take_packed,
};
use crate::{
    ContainerAsk, PodAsk, Refusal,
    topology::{
        HintProvider, NumaMask, ProviderHints, TopologyHint, TopologyPolicy, for_each_mask,
    },
};

/// Why the static policy cannot work here, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuPolicyError {
    /// The machine does not tell its processors.
    #[error("could not detect number of cpus")]
    NoCpus,
    /// Nothing is reserved.
    #[error(
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
    )]
    NoReservation,
    /// The reserved processors are not as many as are to be reserved.
    #[error(
        "[cpumanager] unable to reserve the required amount of CPUs (size of {reserved} did not equal {wanted})"
    )]
    Reservation {
        /// Those that would be.
        reserved: CpuSet,
        /// How many it should be.
        wanted: usize,
    },
    /// A reserved processor is not there.
    #[error(
        "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: {0}"
    )]
    UnknownCpu(u32),
    /// Alignment by socket under a policy that knows nodes only.
    #[error(
        "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
    )]
    SocketUnderSingleNode,
    /// Alignment by socket where sockets are parts of nodes.
    #[error(
        "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
    )]
    SocketsInNodes,
}

/// The static policy on one machine, with who has what.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticCpus {
    layout: CpuLayout,
    reserved: CpuSet,
    /// All processors of the cores that reserved ones are in.
    reserved_cores: CpuSet,
    options: CpuOptions,
    /// Who has what.
    pub assignments: CpuAssignments,
    /// What init containers of the pod that was served last had.
    reusable: Option<(PodUid, CpuSet)>,
    counts: CpuCounts,
}

/// What happened since the start, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// Containers that asked for processors of their own.
    pub requests: u64,
    /// Those that did not get them.
    pub errors: u64,
    /// Containers that got whole cores, where only such are given.
    pub whole_cores: u64,
    /// Those that did not.
    pub whole_cores_failed: u64,
    /// Containers whose processors share one last cache.
    pub one_cache: u64,
}

impl StaticCpus {
    /// The policy on this machine, with nothing given yet. Without `reserved`, the lowest cores are
    /// reserved; `n_reserved` is the reservation in whole processors, rounded up.
    pub fn new(
        machine: &MachineTopology,
        n_reserved: usize,
        reserved: &CpuSet,
        options: CpuOptions,
        topology: TopologyPolicy,
    ) -> Result<Self, CpuPolicyError> {
        let layout = CpuLayout::of(machine);
        if layout.all.is_empty() {
            return Err(CpuPolicyError::NoCpus);
        }
        if n_reserved == 0 {
            return Err(CpuPolicyError::NoReservation);
        }
        if options.is_aligned_by_socket {
            if topology == TopologyPolicy::SingleNumaNode {
                return Err(CpuPolicyError::SocketUnderSingleNode);
            }
            if layout.sockets.len() > layout.nodes.len() {
                return Err(CpuPolicyError::SocketsInNodes);
            }
        }
        let mut policy = Self {
            layout,
            reserved: reserved.clone(),
            reserved_cores: CpuSet::EMPTY,
            options,
            assignments: CpuAssignments::default(),
            reusable: None,
            counts: CpuCounts::default(),
        };
        if policy.reserved.is_empty() {
            policy.reserved = policy.take(&policy.layout.all, n_reserved).unwrap_or_default();
        }
        if policy.reserved.len() != n_reserved {
            let reserved = policy.reserved;
            return Err(CpuPolicyError::Reservation { reserved, wanted: n_reserved });
        }
        for cpu in policy.reserved.iter() {
            let place = policy.layout.place(cpu).ok_or(CpuPolicyError::UnknownCpu(cpu))?;
            let core = policy.layout.cores.get(&place.core);
            policy.reserved_cores = policy.reserved_cores.union(core.unwrap_or(&CpuSet::EMPTY));
        }
        policy.assignments.shared = policy.pool();
        Ok(policy)
    }

    /// Processors of the machine by what they are in.
    pub fn layout(&self) -> &CpuLayout {
        &self.layout
    }

    /// Those that nobody gets for himself.
    pub fn reserved(&self) -> &CpuSet {
        &self.reserved
    }

    /// Those that can be given away.
    pub fn allocatable(&self) -> CpuSet {
        self.layout.all.difference(&self.reserved)
    }

    /// Those that can be given away now.
    pub fn available(&self) -> CpuSet {
        self.assignments.shared.difference(&self.reserved)
    }

    /// All that containers run on: everything, or everything that is not reserved.
    pub fn pool(&self) -> CpuSet {
        match self.options.is_reservation_strict {
            true => self.allocatable(),
            false => self.layout.all.clone(),
        }
    }

    /// What happened since the start.
    pub fn counts(&self) -> CpuCounts {
        self.counts
    }

    /// Takes back what a container had, but for what others of its pod use too.
    pub fn release(&mut self, uid: &PodUid, container: &str) {
        let Some(had) = self.assignments.remove(uid, container) else {
            return;
        };
        let still = self.assignments.of_pod(uid);
        self.assignments.shared = self.assignments.shared.union(&had.difference(&still));
    }

    fn give(&mut self, pod: &PodAsk, container: &ContainerAsk, cpus: CpuSet) {
        self.assignments.shared = self.assignments.shared.difference(&cpus);
        self.note_reusable(pod, container, &cpus);
        self.assignments.insert(&pod.uid, &container.name, cpus);
    }

    fn reusable(&self, uid: &PodUid) -> CpuSet {
        let of_pod = self.reusable.as_ref().filter(|(pod, _)| pod == uid);
        of_pod.map(|(_, cpus)| cpus.clone()).unwrap_or_default()
    }

    fn note_reusable(&mut self, pod: &PodAsk, container: &ContainerAsk, cpus: &CpuSet) {
        let before = self.reusable(&pod.uid);
        let now = match container.kind {
            ContainerKind::Init => before.union(cpus),
            ContainerKind::Sidecar | ContainerKind::Regular | ContainerKind::Ephemeral => {
                before.difference(cpus)
            }
        };
        self.reusable = Some((pod.uid.clone(), now));
    }

    fn take(&self, free: &CpuSet, n: usize) -> Result<CpuSet, TakeError> {
        let order = match self.options.is_across_cores {
            true => CpuOrder::Spread,
            false => CpuOrder::Packed,
        };
        if self.options.is_across_numa {
            let group = match self.options.has_full_cores_only {
                true => self.layout.cpus_per_core(),
                false => 1,
            };
            let is_aligned_by_socket = self.options.is_aligned_by_socket;
            let how = Distribution { group, order, is_aligned_by_socket };
            return take_distributed(&self.layout, free, n, how);
        }
        let caches = match self.options.is_aligned_by_cache {
            true => CacheAlignment::Preferred,
            false => CacheAlignment::Ignored,
        };
        take_packed(&self.layout, free, n, order, caches)
    }

    fn check_cores(&self, requested: usize) -> Result<(), Refusal> {
        if !self.options.has_full_cores_only {
            return Ok(());
        }
        let per_core = self.layout.cpus_per_core();
        if per_core == 0 || !requested.is_multiple_of(per_core) {
            return Err(Refusal::PartOfCore { requested, per_core });
        }
        let available = self.assignments.shared.difference(&self.reserved_cores).len();
        if requested > available {
            return Err(Refusal::TooFewCores { available, requested, per_core });
        }
        Ok(())
    }

    /// Chooses processors near the hint, then any.
    fn choose(
        &self,
        n: usize,
        near: Option<NumaMask>,
        reusable: &CpuSet,
    ) -> Result<CpuSet, TakeError> {
        let free = self.available().union(reusable);
        let mut chosen = CpuSet::EMPTY;
        if let Some(nodes) = near {
            let aligned = self.aligned(nodes).intersection(&free);
            chosen = self.take(&aligned, n.min(aligned.len()))?;
        }
        let rest = self.take(&free.difference(&chosen), n - chosen.len())?;
        Ok(chosen.union(&rest))
    }

    fn aligned(&self, nodes: NumaMask) -> CpuSet {
        let (ids, groups): (Vec<u32>, _) = match self.options.is_aligned_by_socket {
            true => {
                let sockets = self.layout.sockets_of_nodes(nodes.iter());
                (sockets.iter().collect(), &self.layout.sockets)
            }
            false => (nodes.iter().collect(), &self.layout.nodes),
        };
        let cpus = ids.iter().filter_map(|id| groups.get(id));
        cpus.fold(CpuSet::EMPTY, |all, more| all.union(more))
    }

    fn hints(&self, available: &CpuSet, reusable: &CpuSet, requested: usize) -> ProviderHints {
        let nodes: Vec<u32> = self.layout.nodes.keys().copied().collect();
        let count = |cpus: &CpuSet| -> BTreeMap<u32, usize> {
            self.layout.nodes.iter().map(|(id, all)| (*id, all.n_common(cpus))).collect()
        };
        let (all, free) = (count(&self.layout.all), count(available));
        // What is used again has to be near.
        let used: NumaMask =
            count(reusable).iter().filter(|(_, n)| **n > 0).map(|(id, _)| *id).collect();
        let sum = |on: &BTreeMap<u32, usize>, mask: NumaMask| -> usize {
            mask.iter().filter_map(|id| on.get(&id)).sum()
        };
        let mut fewest = nodes.len();
        let mut hints = Vec::new();
        for_each_mask(&nodes, &mut |mask| {
            let size = usize::try_from(mask.count()).unwrap_or(usize::MAX);
            if sum(&all, mask) >= requested && size < fewest {
                fewest = size;
            }
            if used.is_subset(mask) && reusable.len() + sum(&free, mask) >= requested {
                hints.push(TopologyHint { nodes: Some(mask), is_preferred: false });
            }
        });
        for hint in &mut hints {
            let mask = hint.nodes.unwrap_or_default();
            let is_narrowest = usize::try_from(mask.count()).is_ok_and(|size| size == fewest);
            hint.is_preferred = is_narrowest || self.is_within_fewest_sockets(mask, fewest);
        }
        BTreeMap::from([("cpu".to_owned(), Some(hints))])
    }

    fn is_within_fewest_sockets(&self, mask: NumaMask, fewest_nodes: usize) -> bool {
        let nodes_per_socket = self.layout.nodes.len() / self.layout.sockets.len().max(1);
        if !self.options.is_aligned_by_socket || nodes_per_socket == 0 {
            return false;
        }
        let n_sockets = self.layout.sockets_of_nodes(mask.iter()).len();
        n_sockets == fewest_nodes.div_ceil(nodes_per_socket)
    }
}

/// A way that does not exist.
fn impossible() -> ProviderHints {
    BTreeMap::from([("cpu".to_owned(), Some(Vec::new()))])
}

impl HintProvider for StaticCpus {
    fn container_hints(&self, pod: &PodAsk, container: &ContainerAsk) -> ProviderHints {
        let requested = container.n_cpus;
        if requested == 0 {
            return ProviderHints::new();
        }
        match self.assignments.get(&pod.uid, &container.name) {
            Some(has) if has.len() != requested => impossible(),
            Some(has) => self.hints(has, &CpuSet::EMPTY, requested),
            None => self.hints(&self.available(), &self.reusable(&pod.uid), requested),
        }
    }

    fn pod_hints(&self, pod: &PodAsk) -> ProviderHints {
        let requested = pod.n_cpus();
        if requested == 0 {
            return ProviderHints::new();
        }
        let mut assigned = CpuSet::EMPTY;
        for container in &pod.containers {
            match self.assignments.get(&pod.uid, &container.name) {
                Some(has) if has.len() != container.n_cpus => return impossible(),
                Some(has) => assigned = assigned.union(has),
                None => {}
            }
        }
        if assigned.len() == requested {
            return self.hints(&assigned, &CpuSet::EMPTY, requested);
        }
        let reusable = self.reusable(&pod.uid).union(&assigned);
        self.hints(&self.available(), &reusable, requested)
    }

    fn allocate(
        &mut self,
        pod: &PodAsk,
        container: &ContainerAsk,
        hint: TopologyHint,
    ) -> Result<(), Refusal> {
        let requested = container.n_cpus;
        if requested == 0 {
            return Ok(());
        }
        self.counts.requests += 1;
        let given = self.try_allocate(pod, container, hint);
        if self.options.has_full_cores_only {
            match given.is_ok() {
                true => self.counts.whole_cores += 1,
                false => self.counts.whole_cores_failed += 1,
            }
        }
        self.counts.errors += u64::from(given.is_err());
        given
    }
}

impl StaticCpus {
    fn try_allocate(
        &mut self,
        pod: &PodAsk,
        container: &ContainerAsk,
        hint: TopologyHint,
    ) -> Result<(), Refusal> {
        // What a container has it keeps, even if today's options would not give it that.
        if let Some(has) = self.assignments.get(&pod.uid, &container.name).cloned() {
            self.note_reusable(pod, container, &has);
            return Ok(());
        }
        self.check_cores(container.n_cpus)?;
        let reusable = self.reusable(&pod.uid);
        let cpus = self
            .choose(container.n_cpus, hint.nodes, &reusable)
            .map_err(|error| Refusal::Unexpected(error.to_string()))?;
        self.counts.one_cache += u64::from(self.layout.is_within_one_cache(&cpus));
        self.give(pod, container, cpus);
        Ok(())
    }
}
