//! What is kept back from pods: for the system, for Kubernetes' own daemons, per NUMA node, and how
//! that is enforced.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_types::Quantity;
use serde_json::Value;

use super::{
    reader::{Reader, words},
    syntax::parse_cpu_list,
};

words! {
    /// On which groups of processes limits are enforced.
    Enforcement {
        /// All pods together.
        Pods = "pods",
        /// The system's daemons.
        SystemReserved = "system-reserved",
        /// The system's daemons, CPU only.
        SystemReservedCompressible = "system-reserved-compressible",
        /// Kubernetes' daemons.
        KubeReserved = "kube-reserved",
        /// Kubernetes' daemons, CPU only.
        KubeReservedCompressible = "kube-reserved-compressible",
    }
}

/// Memory kept back on one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReservation {
    /// The node's number.
    pub numa_node: i32,
    /// How much of `memory` and `hugepages-*`.
    pub limits: BTreeMap<String, Quantity>,
}

/// Everything kept back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservations {
    /// For the operating system.
    pub system: BTreeMap<String, Quantity>,
    /// For Kubernetes' daemons.
    pub kube: BTreeMap<String, Quantity>,
    /// CPUs that pods with CPUs of their own never get.
    pub cpus: BTreeSet<u32>,
    /// The control group of the system's daemons.
    pub system_cgroup: Option<String>,
    /// The control group of Kubernetes' daemons.
    pub kube_cgroup: Option<String>,
    /// Where limits are enforced; empty means nowhere.
    pub enforce: Vec<Enforcement>,
    /// Memory kept back per NUMA node.
    pub memory: Vec<MemoryReservation>,
}

/// What is kept back of each resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// For the operating system.
    pub system: BTreeMap<String, Quantity>,
    /// For Kubernetes' daemons.
    pub kube: BTreeMap<String, Quantity>,
}

impl Reservations {
    /// What is kept back in effect: CPUs that are named take the place of every amount of CPU.
    pub fn effective(&self) -> Reserved {
        let (mut system, mut kube) = (self.system.clone(), self.kube.clone());
        if !self.cpus.is_empty() {
            let n_cpus = i64::try_from(self.cpus.len()).unwrap_or(i64::MAX);
            system.insert("cpu".to_owned(), Quantity::from_value(n_cpus));
            kube.remove("cpu");
        }
        Reserved { system, kube }
    }
}

pub(super) fn read(r: &Reader<'_>) -> Reservations {
    let cpus = r.text("reservedSystemCPUs");
    if !cpus.is_empty()
        && (r.optional_text("systemReservedCgroup").or(r.optional_text("kubeReservedCgroup")))
            .is_some()
    {
        r.refuse(
            "reservedSystemCPUs",
            "cannot be used together with systemReservedCgroup or kubeReservedCgroup",
        );
    }
    Reservations {
        system: read_resources(r, "systemReserved"),
        kube: read_resources(r, "kubeReserved"),
        cpus: parse_cpu_list(&cpus).unwrap_or_else(|| {
            r.refuse("reservedSystemCPUs", "is not a CPU list such as 0-3,7");
            BTreeSet::new()
        }),
        system_cgroup: r.optional_text("systemReservedCgroup"),
        kube_cgroup: r.optional_text("kubeReservedCgroup"),
        enforce: read_enforcement(r),
        memory: read_memory(r),
    }
}

fn read_resources(r: &Reader<'_>, field: &str) -> BTreeMap<String, Quantity> {
    let entries = r.text_map(field).into_iter().map(|(resource, text)| {
        let path = format!("{field}.{resource}");
        if !["cpu", "memory", "ephemeral-storage", "pid"].contains(&resource.as_str()) {
            r.fault(&path, &text, "only cpu, memory, ephemeral-storage and pid can be reserved");
        }
        let quantity = r.quantity(&path, &text);
        if quantity.value() < 0 {
            r.fault(&path, &text, "must not be negative");
        }
        (resource, quantity)
    });
    entries.collect()
}

fn read_enforcement(r: &Reader<'_>) -> Vec<Enforcement> {
    const PATH: &str = "enforceNodeAllocatable";
    let given = r.texts(PATH);
    let has = |word: &str| given.iter().any(|given| given == word);
    for owner in ["system", "kube"] {
        let (whole, compressible) =
            (format!("{owner}-reserved"), format!("{owner}-reserved-compressible"));
        if has(&whole) && has(&compressible) {
            r.refuse(PATH, format!("{whole} and {compressible} exclude each other"));
        }
        if (has(&whole) || has(&compressible))
            && r.optional_text(&format!("{owner}ReservedCgroup")).is_none()
        {
            r.refuse(PATH, format!("{owner}-reserved needs {owner}ReservedCgroup to be set"));
        }
    }
    if has("none") {
        if given.len() > 1 {
            r.refuse(PATH, "none must stand alone");
        }
        return Vec::new();
    }
    if !given.is_empty() && !r.flag("cgroupsPerQOS") {
        r.refuse(PATH, "anything but none needs cgroupsPerQOS");
    }
    let mut enforce = Vec::new();
    for text in &given {
        match <Enforcement as super::reader::Word>::WORDS.iter().find(|(known, _)| known == text) {
            Some((_, word)) if enforce.contains(word) => r.fault(PATH, text, "is given twice"),
            Some((_, word)) => enforce.push(*word),
            None => r.fault(
                PATH,
                text,
                "must be none, pods, system-reserved, system-reserved-compressible, kube-reserved or kube-reserved-compressible",
            ),
        }
    }
    enforce
}

fn read_memory(r: &Reader<'_>) -> Vec<MemoryReservation> {
    let items = r.get("reservedMemory").and_then(Value::as_array).into_iter().flatten();
    let mut seen = BTreeSet::new();
    let reservations = items.enumerate().map(|(i, item)| {
        let node = item.get("numaNode").and_then(Value::as_i64).unwrap_or(0);
        let mut limits = BTreeMap::new();
        for (resource, value) in item.get("limits").and_then(Value::as_object).into_iter().flatten()
        {
            let path = format!("reservedMemory[{i}].limits.{resource}");
            let text = value.as_str().unwrap_or_default();
            let quantity = r.quantity(&path, text);
            if resource != "memory" && !resource.starts_with("hugepages-") {
                r.fault(&path, text, "only memory and hugepages-SIZE can be reserved");
            }
            if quantity.is_zero() {
                r.fault(&path, text, "must not be zero");
            }
            if !seen.insert((node, resource.clone())) {
                r.fault(&path, text, format!("is given twice for NUMA node {node}"));
            }
            limits.insert(resource.clone(), quantity);
        }
        MemoryReservation { numa_node: i32::try_from(node).unwrap_or(0), limits }
    });
    reservations.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_cpus_take_the_place_of_every_amount_of_cpu() {
        let of = |list: &[(&str, i64)]| -> BTreeMap<String, Quantity> {
            let list = list.iter();
            list.map(|(name, n)| ((*name).to_owned(), Quantity::from_value(*n))).collect()
        };
        let mut given = Reservations {
            system: of(&[("cpu", 1), ("memory", 5)]),
            kube: of(&[("cpu", 2), ("memory", 7)]),
            cpus: BTreeSet::new(),
            system_cgroup: None,
            kube_cgroup: None,
            enforce: Vec::new(),
            memory: Vec::new(),
        };
        let unchanged = Reserved { system: given.system.clone(), kube: given.kube.clone() };
        assert_eq!(given.effective(), unchanged);
        given.cpus = BTreeSet::from([0, 3, 5]);
        let system = of(&[("cpu", 3), ("memory", 5)]);
        assert_eq!(given.effective(), Reserved { system, kube: of(&[("memory", 7)]) });
    }
}
