//! Arithmetic on the API's resource lists: what a whole pod asks for.
//!
//! Owned by `resources`. Containers that run side by side add up, init containers that run alone
//! count by the largest, a request made for the whole pod replaces the sum, and the runtime class's
//! overhead comes on top.

use std::collections::BTreeMap;

use ferrolet_types::{Quantity, pod::is_sidecar};
use k8s_openapi::{
    api::core::v1::{Container, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};

/// A resource list as the API writes it.
pub(crate) type Amounts = BTreeMap<String, ApiQuantity>;

type Sums = BTreeMap<String, Quantity>;

/// Requests of the pod as a whole, overhead included.
pub(crate) fn pod_requests(spec: &PodSpec) -> Amounts {
    let mut sums = aggregate(spec, |resources| resources.requests.as_ref());
    replace(&mut sums, spec.resources.as_ref().and_then(|r| r.requests.as_ref()));
    add(&mut sums, &parsed(spec.overhead.as_ref()));
    written(sums)
}

/// Limits of the pod as a whole; overhead only widens a limit that exists.
pub(crate) fn pod_limits(spec: &PodSpec) -> Amounts {
    let mut sums = aggregate(spec, |resources| resources.limits.as_ref());
    replace(&mut sums, spec.resources.as_ref().and_then(|r| r.limits.as_ref()));
    for (name, extra) in parsed(spec.overhead.as_ref()) {
        if let Some(sum) = sums.get_mut(&name).filter(|sum| !sum.is_zero()) {
            *sum = sum.plus(extra);
        }
    }
    written(sums)
}

/// The thousandths of one entry; zero when absent or unreadable.
pub(crate) fn milli(list: &Amounts, name: &str) -> i64 {
    list.get(name).and_then(|text| Quantity::parse(&text.0).ok()).map_or(0, Quantity::milli)
}

/// A quantity in the API's type.
pub(crate) fn api(quantity: Quantity) -> ApiQuantity {
    ApiQuantity(quantity.to_string())
}

fn aggregate(spec: &PodSpec, list: fn(&ResourceRequirements) -> Option<&Amounts>) -> Sums {
    let of = |container: &Container| parsed(container.resources.as_ref().and_then(list));
    let mut together = Sums::new();
    for container in &spec.containers {
        add(&mut together, &of(container));
    }
    let mut sidecars = Sums::new();
    let mut alone = Sums::new();
    for container in spec.init_containers.iter().flatten() {
        let mut moment = of(container);
        if is_sidecar(container) {
            add(&mut together, &moment);
            add(&mut sidecars, &moment);
            moment = sidecars.clone();
        } else {
            add(&mut moment, &sidecars);
        }
        raise(&mut alone, &moment);
    }
    raise(&mut together, &alone);
    together
}

/// A pod-level entry stands for the sum of its containers; only these resources have one.
fn replace(sums: &mut Sums, pod_level: Option<&Amounts>) {
    for (name, quantity) in parsed(pod_level) {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            sums.insert(name, quantity);
        }
    }
}

fn add(sums: &mut Sums, more: &Sums) {
    for (name, quantity) in more {
        let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
        *sum = sum.plus(*quantity);
    }
}

fn raise(sums: &mut Sums, floor: &Sums) {
    for (name, quantity) in floor {
        let sum = sums.entry(name.clone()).or_insert(*quantity);
        *sum = (*sum).max(*quantity);
    }
}

fn parsed(list: Option<&Amounts>) -> Sums {
    let entries = list.into_iter().flatten();
    entries
        .filter_map(|(name, text)| Some((name.clone(), Quantity::parse(&text.0).ok()?)))
        .collect()
}

fn written(sums: Sums) -> Amounts {
    sums.into_iter().map(|(name, sum)| (name, api(sum))).collect()
}
