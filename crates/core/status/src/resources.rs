//! The `resources` and `allocatedResources` of containers and of the pod: what is in force, told in
//! the API's units.
//!
//! Owned by `containers` and `compute`. In: the allocated specification, what runtime and cgroups
//! report, the previous status. Out: resource requirements. The kernel's units are coarser than the
//! API's, so a value that both round to the smallest one is shown as specified.

use ferrolet_types::{
    Quantity,
    observed::{ContainerState, ObservedContainer, ObservedResources},
    pod::{Phase, PodView},
};
use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, PodStatus, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};

use crate::{
    amounts::{self, Amounts, milli},
    inputs::{ContainerFact, StatusInputs},
};

/// The scheduler's smallest weight; a smaller request has no effect.
const MIN_SHARES: i64 = 2;
/// The smallest CPU limit, in thousandths, that the kernel enforces.
const MIN_CPU_LIMIT: i64 = 10;
const SHARES_PER_CPU: i64 = 1024;

/// What is in force, in the API's units; `None` where nobody tells.
#[derive(Default)]
struct InForce {
    cpu_request: Option<ApiQuantity>,
    memory_request: Option<ApiQuantity>,
    cpu_limit: Option<ApiQuantity>,
    memory_limit: Option<ApiQuantity>,
}

/// The `resources` of a container that exists in the runtime.
pub(crate) fn container_resources(
    allocated: &Container,
    seen: &ObservedContainer,
    fact: Option<&ContainerFact>,
    old: Option<&ContainerStatus>,
) -> ResourceRequirements {
    let mut shown = allocated.resources.clone().unwrap_or_default();
    if !matches!(seen.state, ContainerState::Running { .. }) {
        return shown;
    }
    let actual = in_force(
        seen.resources,
        fact.and_then(|fact| fact.actuated.as_ref()),
        shown.requests.as_ref(),
    );
    let old = old.and_then(|old| old.resources.as_ref());
    if let Some(limits) = &mut shown.limits {
        let old = old.and_then(|old| old.limits.as_ref());
        show(limits, "cpu", actual.cpu_limit, old, MIN_CPU_LIMIT);
        show(limits, "memory", actual.memory_limit, old, -1);
    }
    if let Some(requests) = &mut shown.requests {
        let old = old.and_then(|old| old.requests.as_ref());
        show(requests, "cpu", actual.cpu_request, old, MIN_SHARES);
        show(requests, "memory", actual.memory_request, old, -1);
    }
    shown
}

/// The pod's own `allocatedResources`; `None` when it asks for nothing.
pub(crate) fn pod_allocated(inputs: &StatusInputs<'_>) -> Option<Amounts> {
    Some(amounts::pod_requests(inputs.pod.spec_ref())).filter(|list| !list.is_empty())
}

/// The pod's own `resources`: as specified until it runs, then as its cgroup has them. Upstream
/// waits until the API server says that it runs, and then writes once more; here both are told
/// together.
pub(crate) fn pod_resources(inputs: &StatusInputs<'_>, phase: Phase) -> ResourceRequirements {
    let spec = inputs.pod.spec_ref();
    let mut shown = spec.resources.clone().unwrap_or_default();
    let is_running = phase == Phase::Running || is_running(inputs.pod.status.as_ref());
    let Some(cgroup) = inputs.pod_cgroup.filter(|_| is_running) else {
        shown.requests = Some(amounts::pod_requests(spec)).filter(|list| !list.is_empty());
        shown.limits = Some(amounts::pod_limits(spec)).filter(|list| !list.is_empty());
        return shown;
    };
    let actual = reported(cgroup);
    let old = inputs.old();
    let old = old.resources.as_ref().filter(|_| is_running_status(old));
    let mut requests = shown.requests.take().unwrap_or_default();
    let mut limits = shown.limits.take().unwrap_or_default();
    let old_requests = old.and_then(|old| old.requests.as_ref());
    show(&mut requests, "cpu", actual.cpu_request, old_requests, MIN_SHARES);
    // No cgroup holds a memory request, so the specification is all there is to show.
    if let Some(memory) = amounts::pod_requests(spec).remove("memory") {
        requests.entry("memory".to_owned()).or_insert(memory);
    }
    let old_limits = old.and_then(|old| old.limits.as_ref());
    show(&mut limits, "cpu", actual.cpu_limit, old_limits, MIN_CPU_LIMIT);
    show(&mut limits, "memory", actual.memory_limit, old_limits, -1);
    shown.requests = Some(requests).filter(|list| !list.is_empty());
    shown.limits = Some(limits).filter(|list| !list.is_empty());
    shown
}

fn is_running(status: Option<&PodStatus>) -> bool {
    status.is_some_and(is_running_status)
}

fn is_running_status(status: &PodStatus) -> bool {
    Phase::of(status) == Some(Phase::Running)
}

/// Puts what is in force into the list, or what was shown before, unless both values lie at or
/// below `floor` thousandths.
fn show(
    list: &mut Amounts,
    name: &str,
    actual: Option<ApiQuantity>,
    old: Option<&Amounts>,
    floor: i64,
) {
    let value = match actual {
        Some(value) => {
            let actual_milli = Quantity::parse(&value.0).map_or(0, Quantity::milli);
            (actual_milli > floor || milli(list, name) > floor).then_some(value)
        }
        None => old.and_then(|old| old.get(name)).cloned(),
    };
    if let Some(value) = value {
        list.insert(name.to_owned(), value);
    }
}

fn in_force(
    seen: Option<ObservedResources>,
    actuated: Option<&ResourceRequirements>,
    allocated_requests: Option<&Amounts>,
) -> InForce {
    let entry = |list: Option<&Amounts>, name: &str| list.and_then(|list| list.get(name)).cloned();
    let requests = actuated.map_or(allocated_requests, |actuated| actuated.requests.as_ref());
    let told = seen.map(reported).filter(|told| {
        told.cpu_request.is_some() || told.cpu_limit.is_some() || told.memory_limit.is_some()
    });
    let base = told.unwrap_or_else(|| {
        let limits = actuated.and_then(|actuated| actuated.limits.as_ref());
        InForce {
            cpu_request: entry(actuated.and_then(|a| a.requests.as_ref()), "cpu"),
            memory_request: None,
            cpu_limit: entry(limits, "cpu"),
            memory_limit: entry(limits, "memory"),
        }
    });
    InForce {
        // The runtime knows no memory request: our record of what was put in force is the only word
        // on it.
        memory_request: entry(requests, "memory"),
        ..base
    }
}

/// The kernel's units in the API's.
fn reported(seen: ObservedResources) -> InForce {
    let cpu_limit = match (seen.cpu_quota, seen.cpu_period) {
        (quota, period) if quota > 0 && period > 0 => quota.saturating_mul(1000) / period,
        _ => 0,
    };
    let cpu_request = if seen.cpu_shares >= MIN_SHARES {
        // Rounded up, so that a request survives its way through shares and back.
        (seen.cpu_shares.saturating_mul(1000) + SHARES_PER_CPU - 1) / SHARES_PER_CPU
    } else {
        0
    };
    let cpu = |milli: i64| (milli > 0).then(|| amounts::api(Quantity::from_milli(milli)));
    InForce {
        cpu_request: cpu(cpu_request),
        memory_request: None,
        cpu_limit: cpu(cpu_limit),
        memory_limit: (seen.memory_limit > 0)
            .then(|| amounts::api(Quantity::from_bytes(seen.memory_limit))),
    }
}
