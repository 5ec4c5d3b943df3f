//! Whether what a pod asks for is still free.

use ferrolet_node::NodeState;
use ferrolet_types::{Quantity, is_native_resource};
use k8s_openapi::api::core::v1::Pod;

use super::Rejection;
use crate::{Amounts, Overhead, amount, pod_requests, requests_in_use};

/// What every node counts, in the order in which it is looked at.
const FIRST: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// A resource of which too little is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsufficientResource {
    /// Which: `cpu` in thousandths, everything else in units, `pods` by number.
    pub name: String,
    /// What the pod asks for.
    pub requested: i64,
    /// What others have.
    pub used: i64,
    /// What there is.
    pub capacity: i64,
}

impl InsufficientResource {
    /// How much has to become free.
    pub fn missing(&self) -> i64 {
        self.requested.saturating_sub(self.capacity.saturating_sub(self.used))
    }

    /// The refusal that follows.
    pub fn rejection(&self) -> Rejection {
        let Self { name, requested, used, capacity } = self;
        Rejection {
            reason: format!("OutOf{name}"),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        }
    }
}

/// What is missing: the number of pods, then every resource the pod asks for; amounts the node does
/// not know are somebody else's. Upstream's order: processors, memory, local storage, and the rest,
/// there in no order and here by name.
pub(super) fn insufficient(
    pod: &Pod,
    node: &NodeState,
    others: &[&Pod],
) -> Vec<InsufficientResource> {
    let mut found = Vec::new();
    let n_others = i64::try_from(others.len()).unwrap_or(i64::MAX);
    let most = amount(&node.allocatable, "pods").value();
    if n_others >= most {
        found.push(InsufficientResource {
            name: "pods".to_owned(),
            requested: 1,
            used: n_others,
            capacity: most,
        });
    }
    let wanted = pod_requests(pod, Overhead::Included);
    let mut wanted: Vec<(&String, &Quantity)> = wanted.iter().collect();
    wanted.sort_by_key(|(name, _)| {
        let place = FIRST.iter().position(|first| first == name);
        (place.unwrap_or(FIRST.len()), *name)
    });
    let taken: Vec<Amounts> = others.iter().map(|other| requests_in_use(other)).collect();
    for (name, asked) in wanted {
        if asked.is_zero() || !is_counted(name, node) {
            continue;
        }
        let in_units = |quantity: Quantity| {
            if name == "cpu" { quantity.milli() } else { quantity.value() }
        };
        let used: i64 = taken
            .iter()
            .map(|amounts| in_units(amount(amounts, name)))
            .fold(0, i64::saturating_add);
        let (requested, capacity) = (in_units(*asked), in_units(capacity(name, node)));
        if requested > capacity.saturating_sub(used) {
            found.push(InsufficientResource { name: name.clone(), requested, used, capacity });
        }
    }
    found
}

/// What belongs to the node always counts; extended resources only where the node has them, and not
/// while their plugin has yet to come back: then the pod waits for it.
fn is_counted(name: &str, node: &NodeState) -> bool {
    let devices = &node.facts.devices;
    let is_known = node.allocatable.contains_key(name) || devices.allocatable.contains_key(name);
    is_native_resource(name) || is_known && !devices.awaited.iter().any(|it| it == name)
}

/// How much of a resource there is. What plugins offer is known here before the API hears of it.
fn capacity(name: &str, node: &NodeState) -> Quantity {
    let devices = &node.facts.devices.allocatable;
    devices.get(name).copied().unwrap_or_else(|| amount(&node.allocatable, name))
}
