//! What the system keeps of each NUMA node's memory, and the machine before anybody has any.

use std::collections::BTreeMap;

use ferrolet_node::MachineTopology;
use ferrolet_types::{Amounts, Quantity};

use super::{MemoryTable, NodeMemory};

/// Memory that one NUMA node keeps, by kind: one entry of `reservedMemory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReservation {
    /// Which node.
    pub node: u32,
    /// How much of which kind.
    pub limits: Amounts,
}

/// Why the static policy cannot work here, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryPolicyError {
    /// A node is not there.
    #[error(
        "the reserved memory configuration references a NUMA node {0} that does not exist on this machine"
    )]
    UnknownNode(u32),
    /// The nodes keep another amount together than the node keeps as a whole.
    #[error(
        "the total amount {given:?} of type {kind:?} is not equal to the value {wanted:?} determined by Node Allocatable feature"
    )]
    Sum {
        /// Of which kind.
        kind: String,
        /// What the nodes keep.
        given: String,
        /// What they should.
        wanted: String,
    },
    /// An amount is no whole number of bytes.
    #[error("could not covert a variable of type Quantity to int64")]
    NotWhole,
    /// Nothing is kept.
    #[error("[memorymanager] you should specify the system reserved memory")]
    NoReservation,
}

/// What each node keeps, checked against what the node keeps as a whole.
pub(super) fn reservations(
    machine: &MachineTopology,
    whole: &Amounts,
    given: &[NodeReservation],
) -> Result<BTreeMap<(u32, String), u64>, MemoryPolicyError> {
    let mut sums = Amounts::new();
    let mut by_node = BTreeMap::new();
    for reservation in given {
        if !machine.nodes.iter().any(|node| node.id == reservation.node) {
            return Err(MemoryPolicyError::UnknownNode(reservation.node));
        }
        for (kind, amount) in &reservation.limits {
            let sum = sums.entry(kind.clone()).or_insert(Quantity::ZERO);
            *sum = sum.plus(*amount);
            let bytes = u64::try_from(amount.value()).map_err(|_| MemoryPolicyError::NotWhole)?;
            by_node.insert((reservation.node, kind.clone()), bytes);
        }
    }
    let is_memory = |kind: &str| kind == "memory" || kind.starts_with("hugepages-");
    let kinds = whole.keys().filter(|kind| is_memory(kind)).chain(sums.keys());
    for kind in kinds {
        let of = |amounts: &Amounts| amounts.get(kind).copied().unwrap_or(Quantity::ZERO);
        let (given, wanted) = (of(&sums), of(whole));
        if !given.minus(wanted).is_zero() {
            let (kind, given, wanted) = (kind.clone(), given.to_string(), wanted.to_string());
            return Err(MemoryPolicyError::Sum { kind, given, wanted });
        }
    }
    let memory = by_node.iter().filter(|((_, kind), _)| kind == "memory");
    if memory.map(|(_, bytes)| *bytes).sum::<u64>() == 0 {
        return Err(MemoryPolicyError::NoReservation);
    }
    Ok(by_node)
}

/// The machine before anybody has any of its memory.
pub(super) fn untouched(
    machine: &MachineTopology,
    reserved: &BTreeMap<(u32, String), u64>,
) -> BTreeMap<u32, NodeMemory> {
    let mut nodes = BTreeMap::new();
    for node in &machine.nodes {
        let kept = |kind: &str| reserved.get(&(node.id, kind.to_owned())).copied().unwrap_or(0);
        let table = |kind: &str, total: u64, usable: u64| {
            let system_reserved = kept(kind);
            // Upstream's number wraps around where more is kept than there is.
            let allocatable = usable.saturating_sub(system_reserved);
            MemoryTable { total, system_reserved, allocatable, reserved: 0, free: allocatable }
        };
        let mut tables = BTreeMap::new();
        let mut in_pages = 0;
        for pages in &node.huge_pages {
            let total = pages.n_pages.saturating_mul(pages.page_bytes);
            let kind = huge_page_kind(pages.page_bytes);
            in_pages += total;
            tables.insert(kind.clone(), table(&kind, total, total));
        }
        let rest = node.memory_bytes.saturating_sub(in_pages);
        tables.insert("memory".to_owned(), table("memory", node.memory_bytes, rest));
        let cells = vec![node.id];
        nodes.insert(node.id, NodeMemory { n_assignments: 0, tables, cells });
    }
    nodes
}

/// The resource name of huge pages of a size: `hugepages-2Mi`.
fn huge_page_kind(bytes: u64) -> String {
    let size = Quantity::from_bytes(i64::try_from(bytes).unwrap_or(i64::MAX));
    format!("hugepages-{size}")
}
