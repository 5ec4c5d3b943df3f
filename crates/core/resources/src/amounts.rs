//! What a pod asks for as a whole: sums and maxima over its containers, pod-level resources and
//! overhead.
//!
//! The rules are part of the API (upstream: `component-helpers/resource`): regular containers and
//! sidecars add up, an init container needs its own amount besides the sidecars started before it,
//! and the larger of the two counts. Pod-level values replace the sums. A container's missing
//! request is its limit, as the API defaults it. Refuses: choosing between the copies of a pod that
//! is being resized; callers pass the one they mean. Only [`requests_in_use`] also looks at the
//! status.

use std::collections::BTreeMap;

use ferrolet_types::{
    Quantity,
    pod::{PodView as _, is_sidecar},
};
use k8s_openapi::{
    api::core::v1::{Container, Pod, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};

pub use ferrolet_types::{Amounts, amount, parse_amounts};

/// Whether the runtime class's declared cost counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overhead {
    /// It does.
    Included,
    /// It does not.
    Excluded,
}

/// A container's requests, with limits in place of missing ones.
pub fn container_requests(container: &Container) -> Amounts {
    let resources = container.resources.as_ref();
    let mut requests = container_limits(container);
    requests.extend(parse_amounts(resources.and_then(|r| r.requests.as_ref())));
    requests
}

/// A container's limits.
pub fn container_limits(container: &Container) -> Amounts {
    parse_amounts(container.resources.as_ref().and_then(|r| r.limits.as_ref()))
}

/// What the pod asks for.
pub fn pod_requests(pod: &Pod, overhead: Overhead) -> Amounts {
    let mut requests = containers_total(pod, container_requests);
    if has_pod_level_requests(pod) {
        let pod_level = pod_level(pod).and_then(|r| r.requests.as_ref());
        requests.extend(supported(parse_amounts(pod_level)));
    }
    if overhead == Overhead::Included {
        add(&mut requests, &pod_overhead(pod));
    }
    requests
}

/// What the pod asked for when somebody has to go: as a whole where it asks as a whole, and then
/// nothing of what cannot be asked for so; overhead counts only beside something asked for.
pub fn requests_for_ranking(pod: &Pod) -> Amounts {
    let mut requests = if has_pod_level_resources(pod) {
        supported(parse_amounts(pod_level(pod).and_then(|r| r.requests.as_ref()))).collect()
    } else {
        pod_requests(pod, Overhead::Excluded)
    };
    for (name, more) in pod_overhead(pod) {
        if let Some(own) = requests.get_mut(&name).filter(|own| !own.is_zero()) {
            *own = own.plus(more);
        }
    }
    requests
}

/// What the pod keeps from others: what it was granted, and what it still has in force while it
/// shrinks.
pub fn requests_in_use(pod: &Pod) -> Amounts {
    let granted = pod_requests(pod, Overhead::Included);
    let Some(status) = pod.status.as_ref() else {
        return granted;
    };
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let in_force = |container: &Container| {
        let mut own = container_requests(container);
        let mut all = lists.iter().flat_map(|list| list.iter().flatten());
        if let Some(seen) = all.find(|it| it.name == container.name) {
            let actual = seen.resources.as_ref().and_then(|it| it.requests.as_ref());
            raise(&mut own, &parse_amounts(actual));
            raise(&mut own, &parse_amounts(seen.allocated_resources.as_ref()));
        }
        own
    };
    // Pod-level requests stand for the sum, so the status of single containers says nothing there.
    let mut total =
        if has_pod_level_requests(pod) { Amounts::new() } else { containers_total(pod, in_force) };
    raise(&mut total, &granted);
    total
}

/// What bounds the pod. Overhead is added only to what is bounded at all.
pub fn pod_limits(pod: &Pod, overhead: Overhead) -> Amounts {
    let mut limits = containers_total(pod, container_limits);
    if has_pod_level_resources(pod) {
        let pod_level = pod_level(pod).and_then(|r| r.limits.as_ref());
        limits.extend(supported(parse_amounts(pod_level)));
    }
    if overhead == Overhead::Included {
        for (name, cost) in pod_overhead(pod) {
            if let Some(limit) = limits.get_mut(&name).filter(|limit| !limit.is_zero()) {
                *limit = limit.plus(cost);
            }
        }
    }
    limits
}

/// The sum over containers alone, as if the pod had no resources of its own.
pub(crate) fn containers_total(pod: &Pod, of: impl Fn(&Container) -> Amounts) -> Amounts {
    let spec = pod.spec_ref();
    let mut total = Amounts::new();
    for container in &spec.containers {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        if is_sidecar(container) {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut starting, &sidecars);
        } else {
            let mut needed = own;
            add(&mut needed, &sidecars);
            raise(&mut starting, &needed);
        }
    }
    raise(&mut total, &starting);
    total
}

/// The resources that the pod itself declares.
pub(crate) fn pod_level(pod: &Pod) -> Option<&ResourceRequirements> {
    pod.spec_ref().resources.as_ref()
}

/// The pod's own limit of one resource; nothing when it has none.
pub(crate) fn pod_level_limit(pod: &Pod, name: &str) -> Quantity {
    let limits = pod_level(pod).and_then(|r| r.limits.as_ref());
    amount(&parse_amounts(limits), name)
}

/// True when the pod itself declares requests or limits that count.
pub fn has_pod_level_resources(pod: &Pod) -> bool {
    has_pod_level_requests(pod) || has_pod_level_limits(pod)
}

/// True when the pod itself declares requests that count.
pub fn has_pod_level_requests(pod: &Pod) -> bool {
    names_supported(pod_level(pod).and_then(|r| r.requests.as_ref()))
}

/// True when the pod itself declares limits that count.
pub fn has_pod_level_limits(pod: &Pod) -> bool {
    names_supported(pod_level(pod).and_then(|r| r.limits.as_ref()))
}

fn names_supported(list: Option<&BTreeMap<String, ApiQuantity>>) -> bool {
    list.into_iter().flatten().any(|(name, _)| is_supported(name))
}

fn supported(amounts: Amounts) -> impl Iterator<Item = (String, Quantity)> {
    amounts.into_iter().filter(|(name, _)| is_supported(name))
}

fn is_supported(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn pod_overhead(pod: &Pod) -> Amounts {
    parse_amounts(pod.spec_ref().overhead.as_ref())
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, quantity) in more {
        total.entry(name.clone()).and_modify(|sum| *sum = sum.plus(*quantity)).or_insert(*quantity);
    }
}

fn raise(floor: &mut Amounts, other: &Amounts) {
    for (name, quantity) in other {
        floor
            .entry(name.clone())
            .and_modify(|most| *most = (*most).max(*quantity))
            .or_insert(*quantity);
    }
}

#[cfg(test)]
#[path = "amounts_tests.rs"]
mod tests;
