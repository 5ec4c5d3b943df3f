//! Processors and memory together: who has what on this node, under the configured policies.
//!
//! One value that changes with every admission. What pods had that do not live any more is taken
//! back before anything is given, and only then: a container that has ended may be about to start
//! again. Refuses: deciding who lives.

use ferrolet_types::PodUid;

use crate::{
    PodAsk, Refusal,
    cpu::{CpuSet, StaticCpus},
    memory::StaticMemory,
    topology::{HintProvider, NumaMask, TopologyPolicy, TopologyRules, TopologyScope, align},
};

/// Who has what.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// How places are judged.
    pub rules: TopologyRules,
    /// Processors; `None` under the policy `none`.
    pub cpus: Option<StaticCpus>,
    /// Memory; `None` under the policy `None`.
    pub memory: Option<StaticMemory>,
    counts: PlacementCounts,
}

/// Where a container runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerPlace {
    /// Its processors, its own or the shared ones; empty for all.
    pub cpus: CpuSet,
    /// The NUMA nodes of its memory; empty for all.
    pub nodes: NumaMask,
    /// True when its processors are nobody else's.
    pub has_own_cpus: bool,
}

/// What happened since the start, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementCounts {
    /// Pods that were judged.
    pub requests: u64,
    /// Those that were refused, but for refusals under the policy `none`.
    pub errors: u64,
    /// Containers that got everything from one NUMA node, where that is guaranteed.
    pub aligned_containers: u64,
    /// Containers that could not.
    pub unaligned_containers: u64,
    /// Pods that got everything from one NUMA node, where that is guaranteed.
    pub aligned_pods: u64,
    /// Pods that could not.
    pub unaligned_pods: u64,
}

impl Placement {
    /// Nobody has anything yet.
    pub fn new(
        rules: TopologyRules,
        cpus: Option<StaticCpus>,
        memory: Option<StaticMemory>,
    ) -> Self {
        Self { rules, cpus, memory, counts: PlacementCounts::default() }
    }

    /// Gives a pod's containers what they ask for. What was given before a refusal is taken back
    /// with the next pod, as the refused one does not live.
    pub fn admit(&mut self, pod: &PodAsk) -> Result<(), Refusal> {
        let mut providers: Vec<&mut dyn HintProvider> = Vec::new();
        providers.extend(self.cpus.as_mut().map(|it| it as &mut dyn HintProvider));
        providers.extend(self.memory.as_mut().map(|it| it as &mut dyn HintProvider));
        let result = align(&self.rules, &mut providers, pod);
        self.count(pod, &result);
        result
    }

    /// Takes back what containers had that are not among the living.
    pub fn retain(&mut self, lives: impl Fn(&PodUid, &str) -> bool) {
        if let Some(cpus) = &mut self.cpus {
            let all = cpus.assignments.iter().filter(|(uid, name, _)| !lives(uid, name));
            let gone: Vec<_> = all.map(|(uid, name, _)| (uid.clone(), name.to_owned())).collect();
            gone.iter().for_each(|(uid, name)| cpus.release(uid, name));
        }
        if let Some(memory) = &mut self.memory {
            let all = memory.assignments.iter().filter(|(uid, name, _)| !lives(uid, name));
            let gone: Vec<_> = all.map(|(uid, name, _)| (uid.clone(), name.to_owned())).collect();
            gone.iter().for_each(|(uid, name)| memory.release(uid, name));
        }
    }

    /// A container starts: memory of init containers before it is free again.
    pub fn starts(&mut self, pod: &PodAsk, container: &str) {
        if let Some(memory) = &mut self.memory {
            memory.starts(pod, container);
        }
    }

    /// Where a container runs.
    pub fn place(&self, uid: &PodUid, container: &str) -> ContainerPlace {
        let own = self.cpus.as_ref().and_then(|it| it.assignments.get(uid, container));
        let shared = self.cpus.as_ref().map(|it| &it.assignments.shared);
        let blocks = self.memory.as_ref().and_then(|it| it.assignments.get(uid, container));
        let bits = blocks.into_iter().flatten().fold(0, |bits, it| bits | it.nodes.bits());
        ContainerPlace {
            cpus: own.or(shared).cloned().unwrap_or_default(),
            nodes: NumaMask::from_bits(bits),
            has_own_cpus: own.is_some(),
        }
    }

    /// True when a container of the pod has processors of its own.
    pub fn has_own_cpus(&self, uid: &PodUid) -> bool {
        let cpus = self.cpus.as_ref();
        cpus.is_some_and(|it| !it.assignments.of_pod(uid).is_empty())
    }

    /// What happened since the start.
    pub fn counts(&self) -> PlacementCounts {
        self.counts
    }

    fn count(&mut self, pod: &PodAsk, result: &Result<(), Refusal>) {
        let counts = &mut self.counts;
        counts.requests += 1;
        if self.rules.policy == TopologyPolicy::None {
            return;
        }
        counts.errors += u64::from(result.is_err());
        if self.rules.policy != TopologyPolicy::SingleNumaNode {
            return;
        }
        let is_unaligned = *result == Err(Refusal::TopologyAffinity);
        match self.rules.scope {
            TopologyScope::Pod => {
                counts.aligned_pods += u64::from(result.is_ok());
                counts.unaligned_pods += u64::from(is_unaligned);
            }
            TopologyScope::Container => {
                let n = u64::try_from(pod.containers.len()).unwrap_or(0);
                counts.aligned_containers += if result.is_ok() { n } else { 0 };
                counts.unaligned_containers += u64::from(is_unaligned);
            }
        }
    }
}
