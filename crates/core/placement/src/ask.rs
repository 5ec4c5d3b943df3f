//! What a pod asks for that has a place on the machine: whole processors, memory, huge pages.

use std::collections::BTreeMap;

use ferrolet_resources::{has_pod_level_resources, pod_qos};
use ferrolet_types::{
    Amounts, PodUid, Qos, Quantity, parse_amounts,
    pod::{ContainerKind, PodView, init_kind},
};
use k8s_openapi::api::core::v1::{Container, Pod};

/// A pod with what its containers ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAsk {
    /// Who it is.
    pub uid: PodUid,
    /// Init containers and sidecars in their order, then regular ones.
    pub containers: Vec<ContainerAsk>,
}

/// A container with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerAsk {
    /// Its name.
    pub name: String,
    /// Init containers run before the others, and what they had is used again.
    pub kind: ContainerKind,
    /// Processors of its own; zero when it shares.
    pub n_cpus: usize,
    /// Bytes of `memory` and `hugepages-…` of its own; nothing when it shares. An error when an
    /// amount is no whole number of bytes.
    pub memory: Result<BTreeMap<String, u64>, NotWhole>,
}

/// An amount of memory is no whole number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[memorymanager] failed to represent quantity as int64")]
pub struct NotWhole;

impl PodAsk {
    /// What the pod asks for. Only pods of the class Guaranteed get something of their own, and of
    /// those not the ones that ask as a whole, unless a gate says so, which is off.
    pub fn of(pod: &Pod) -> Self {
        let is_guaranteed = pod_qos(pod) == Qos::Guaranteed && !has_pod_level_resources(pod);
        let spec = pod.spec_ref();
        let init = spec.init_containers.iter().flatten().map(|it| (init_kind(it), it));
        let regular = spec.containers.iter().map(|it| (ContainerKind::Regular, it));
        let ask = |(kind, container): (ContainerKind, &Container)| {
            let requests = requests(container);
            let asks = |requests: &Amounts| (whole_cpus(requests), memory(requests));
            let (n_cpus, memory) = match is_guaranteed {
                true => asks(&requests),
                false => (0, Ok(BTreeMap::new())),
            };
            ContainerAsk { name: container.name.clone(), kind, n_cpus, memory }
        };
        Self { uid: pod.uid(), containers: init.chain(regular).map(ask).collect() }
    }

    /// How many processors of their own the containers need at one time.
    pub fn n_cpus(&self) -> usize {
        let mut at_once = AtOnce::default();
        self.containers.iter().for_each(|it| at_once.add(it.kind, it.n_cpus));
        at_once.most()
    }

    /// How many bytes of each kind the containers need at one time. Kinds that only init containers
    /// ask for do not count, as they do not upstream.
    pub fn memory(&self) -> Result<BTreeMap<String, u64>, NotWhole> {
        let mut at_once: BTreeMap<&str, AtOnce<u64>> = BTreeMap::new();
        let mut is_lasting: BTreeMap<&str, bool> = BTreeMap::new();
        for container in &self.containers {
            for (name, bytes) in container.memory.as_ref().map_err(|it| *it)? {
                at_once.entry(name).or_default().add(container.kind, *bytes);
                *is_lasting.entry(name).or_default() |= container.kind == ContainerKind::Regular;
            }
        }
        let lasting = at_once.into_iter().filter(|(name, _)| is_lasting[name]);
        Ok(lasting.map(|(name, it)| (name.to_owned(), it.most())).collect())
    }
}

/// The most that is needed at one time: init containers run one after another beside the sidecars
/// before them, then all others run at once.
#[derive(Clone, Copy, Debug, Default)]
struct AtOnce<T = usize> {
    most_of_init: T,
    sidecars: T,
    regular: T,
}

impl<T: Copy + Ord + std::ops::Add<Output = T>> AtOnce<T> {
    fn add(&mut self, kind: ContainerKind, amount: T) {
        match kind {
            ContainerKind::Init => {
                self.most_of_init = self.most_of_init.max(self.sidecars + amount);
            }
            ContainerKind::Sidecar => self.sidecars = self.sidecars + amount,
            ContainerKind::Regular | ContainerKind::Ephemeral => {
                self.regular = self.regular + amount;
            }
        }
    }

    fn most(&self) -> T {
        self.most_of_init.max(self.regular + self.sidecars)
    }
}

fn requests(container: &Container) -> Amounts {
    let requests = container.resources.as_ref().and_then(|it| it.requests.as_ref());
    parse_amounts(requests)
}

fn whole_cpus(requests: &Amounts) -> usize {
    let cpu = requests.get("cpu").copied().unwrap_or(Quantity::ZERO);
    let is_whole = cpu.value().checked_mul(1000) == Some(cpu.milli());
    usize::try_from(cpu.value()).ok().filter(|_| is_whole).unwrap_or(0)
}

fn memory(requests: &Amounts) -> Result<BTreeMap<String, u64>, NotWhole> {
    let of_memory = |name: &str| name == "memory" || name.starts_with("hugepages-");
    let mut bytes = BTreeMap::new();
    for (name, amount) in requests.iter().filter(|(name, _)| of_memory(name)) {
        let is_whole = amount.value().checked_mul(1000).is_none_or(|it| it == amount.milli());
        let whole = u64::try_from(amount.value()).ok().filter(|_| is_whole);
        bytes.insert(name.clone(), whole.ok_or(NotWhole)?);
    }
    Ok(bytes)
}
