//! Putting granted resources in force on a pod that runs: which containers, in which order, with
//! which numbers.
//!
//! ```text
//!  allocated, actuated ─► resize_needs ─► which containers are updated, which restart       (asked at every look)
//!                      └► plan_resize  ─► memory:  pod up ─► containers, lowered first ─► pod down
//!                                         cpu:     pod up ─► containers, lowered first ─► pod down
//! ```
//!
//! A pod's cgroup must hold the sum of its containers' bounds at every moment, so it grows before
//! them and shrinks after them; memory and CPU go their ways one after the other, because one may
//! grow while the other shrinks. Upstream: `computePodResizeAction`, `doPodResizeAction`. Refuses:
//! removing a limit, which the API refuses too.

use std::collections::BTreeMap;

use ferrolet_types::{
    ContainerId, Quantity,
    pod::{PodView as _, is_sidecar},
};
use k8s_openapi::{
    api::core::v1::{Container, Pod, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};

use crate::{
    CgroupLimits, LinuxResources, NodeResources, PodCgroup, PodResources, QuotaMode, amount,
    container_resources, milli_cpu_to_quota, milli_cpu_to_shares, parse_amounts, pod_cgroup,
    shares_to_milli_cpu, with_resources,
};

/// What a running container whose resources are not in force needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeNeed {
    /// New bounds, while it runs.
    Update,
    /// A restart, as its own policy asks.
    Restart,
}

/// Where the granted resources are not in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeNeeds {
    /// By container name; whether the container runs is for the caller to know.
    pub containers: BTreeMap<String, ResizeNeed>,
    /// The pod's own resources.
    pub is_pod_level: bool,
}

/// One write of a resize.
#[derive(Clone, Debug, PartialEq)]
pub enum ResizeStep {
    /// Bound the pod's cgroup anew.
    Pod {
        /// Which of its two resources.
        resource: &'static str,
        /// Only what changes.
        cgroup: PodCgroup,
        /// Everything that then holds, for the runtime to know, which counts the overhead apart.
        announced: LinuxResources,
    },
    /// Bound a container anew.
    Container {
        /// Its name.
        name: String,
        /// Which one.
        id: ContainerId,
        /// Its new bounds.
        resources: Box<LinuxResources>,
        /// What is in force then.
        actuated: ResourceRequirements,
    },
    /// The pod's own resources are in force this far.
    PodRecord(ResourceRequirements),
}

/// A whole resize.
#[derive(Clone, Debug, PartialEq)]
pub struct ResizePlan {
    /// In order; the first that fails ends it.
    pub steps: Vec<ResizeStep>,
    /// What the runtime knows of the pod before the first of them.
    pub announced_before: LinuxResources,
    /// Memory limits that shrink, which must not happen below what is in use: the pod's in bytes.
    pub pod_memory: Option<i64>,
    /// The same of containers: name, id, bytes.
    pub container_memory: Vec<(String, ContainerId, i64)>,
}

/// Compares what was granted with what is in force.
pub fn resize_needs(allocated: &Pod, actuated: &PodResources) -> ResizeNeeds {
    let spec = allocated.spec_ref();
    let mut needs = ResizeNeeds {
        is_pod_level: Bounds::of(spec.resources.as_ref()) != Bounds::of(actuated.pod.as_ref()),
        ..ResizeNeeds::default()
    };
    let init = spec.init_containers.iter().flatten();
    for container in init.chain(&spec.containers) {
        let (now, then) =
            (Bounds::in_force(container, actuated), Bounds::granted(allocated, container));
        if now == then {
            continue;
        }
        let need = if restarts_for(container, now, then) {
            ResizeNeed::Restart
        } else {
            ResizeNeed::Update
        };
        needs.containers.insert(container.name.clone(), need);
    }
    needs
}

/// True while a container that can be resized, and runs, or the pod itself, waits for what it was
/// granted.
pub fn is_resizing(
    allocated: &Pod,
    needs: &ResizeNeeds,
    is_running: impl Fn(&str) -> bool,
) -> bool {
    let spec = allocated.spec_ref();
    let sidecars = spec.init_containers.iter().flatten().filter(|it| is_sidecar(it));
    let mut resizable = sidecars.chain(&spec.containers);
    (needs.is_pod_level && spec.resources.is_some())
        || resizable.any(|it| needs.containers.contains_key(&it.name) && is_running(&it.name))
}

/// Plans the writes for the pod and for these running containers.
pub fn plan_resize(
    allocated: &Pod,
    actuated: &PodResources,
    running: &[(String, ContainerId)],
    node: &NodeResources,
) -> ResizePlan {
    let before = with_resources(allocated, actuated);
    let mut before = pod_cgroup(before.as_ref().unwrap_or(allocated), &node.cgroups);
    let after = pod_cgroup(allocated, &node.cgroups);
    // Requests are not compared: protection is written together with a limit, and the runtime hears
    // of the new one from the start.
    before.limits = CgroupLimits {
        memory_min: after.limits.memory_min,
        memory_low: after.limits.memory_low,
        memory_high: after.limits.memory_high,
        ..before.limits
    };
    let changes: Vec<Change<'_>> = running
        .iter()
        .filter_map(|(name, id)| {
            let (_, container) = allocated.find_container(name)?;
            Some(Change {
                container,
                id,
                now: Bounds::in_force(container, actuated),
                then: Bounds::granted(allocated, container),
            })
        })
        .filter(|change| change.now != change.then)
        .collect();
    let mut plan = ResizePlan {
        steps: Vec::new(),
        announced_before: announced(allocated, &before.limits),
        pod_memory: after
            .limits
            .memory
            .filter(|bytes| *bytes < before.limits.memory.unwrap_or(i64::MAX)),
        container_memory: changes.iter().filter_map(Change::shrinking).collect(),
    };
    let mut current = Current { allocated, cgroup: before, pod: actuated.pod.clone(), node };
    memory_steps(&mut plan.steps, &mut current, &after, &changes);
    cpu_steps(&mut plan.steps, &mut current, &after, &changes);
    plan
}

/// A running container and its way.
struct Change<'a> {
    container: &'a Container,
    id: &'a ContainerId,
    now: Bounds,
    then: Bounds,
}

impl Change<'_> {
    fn shrinking(&self) -> Option<(String, ContainerId, i64)> {
        let (now, then) = (self.now.memory_limit, self.then.memory_limit);
        let shrinks = then != 0 && (now == 0 || then < now);
        shrinks.then(|| (self.container.name.clone(), self.id.clone(), then))
    }

    fn step(&self, bounds: Bounds, current: &Current<'_>) -> ResizeStep {
        let container = Container {
            resources: Some(bounds.written(self.container.resources.as_ref())),
            ..self.container.clone()
        };
        let resources =
            container_resources(current.allocated, &container, current.node, QuotaMode::Enforced);
        ResizeStep::Container {
            name: container.name.clone(),
            id: self.id.clone(),
            resources: Box::new(resources),
            actuated: container.resources.unwrap_or_default(),
        }
    }
}

/// The pod's cgroup as it stands after the steps so far.
struct Current<'a> {
    allocated: &'a Pod,
    cgroup: PodCgroup,
    pod: Option<ResourceRequirements>,
    node: &'a NodeResources,
}

impl Current<'_> {
    /// A step that writes some bounds of the pod's cgroup.
    fn bound(&mut self, resource: &'static str, limits: CgroupLimits) -> ResizeStep {
        let held = &mut self.cgroup.limits;
        held.cpu_shares = limits.cpu_shares.or(held.cpu_shares);
        held.cpu_quota = limits.cpu_quota.or(held.cpu_quota);
        held.cpu_period = limits.cpu_period.or(held.cpu_period);
        held.memory = limits.memory.or(held.memory);
        let announced = announced(self.allocated, held);
        let cgroup = PodCgroup { limits, ..self.cgroup.clone() };
        ResizeStep::Pod { resource, cgroup, announced }
    }

    /// Notes that one resource of the pod's own is in force.
    fn record(&mut self, name: &str) -> Option<ResizeStep> {
        let granted = self.allocated.spec_ref().resources.as_ref()?;
        let mut record = self.pod.clone().unwrap_or_default();
        let was = record.clone();
        put(&mut record.requests, granted.requests.as_ref(), name);
        put(&mut record.limits, granted.limits.as_ref(), name);
        self.pod = Some(record.clone());
        (record != was).then_some(ResizeStep::PodRecord(record))
    }
}

/// What a runtime is told of a pod's bounds: those of its cgroup less the overhead, which it is
/// told beside them.
fn announced(pod: &Pod, held: &CgroupLimits) -> LinuxResources {
    let overhead = parse_amounts(pod.spec_ref().overhead.as_ref());
    let (cpu, memory) = (amount(&overhead, "cpu").milli(), amount(&overhead, "memory").value());
    let period = i64::try_from(held.cpu_period.unwrap_or(0)).unwrap_or(i64::MAX);
    let shares = held.cpu_shares.unwrap_or(0);
    let shares = match cpu {
        0 => shares,
        _ => milli_cpu_to_shares(shares_to_milli_cpu(shares) - cpu),
    };
    let less = |bound: i64, overhead: i64| if bound > 0 { bound - overhead } else { bound };
    LinuxResources {
        cpu_shares: i64::try_from(shares).unwrap_or(i64::MAX),
        cpu_quota: less(held.cpu_quota.unwrap_or(0), milli_cpu_to_quota(cpu, period)),
        cpu_period: period,
        memory_limit: less(held.memory.unwrap_or(0), memory),
        unified: held
            .protection()
            .map(|(file, bytes)| (file.to_owned(), bytes.to_string()))
            .collect(),
        ..LinuxResources::default()
    }
}

fn memory_steps(
    steps: &mut Vec<ResizeStep>,
    current: &mut Current<'_>,
    after: &PodCgroup,
    changes: &[Change<'_>],
) {
    let (now, then) = (current.cgroup.limits.memory, after.limits.memory);
    let only = CgroupLimits {
        memory: then,
        memory_min: after.limits.memory_min,
        memory_low: after.limits.memory_low,
        memory_high: after.limits.memory_high,
        ..CgroupLimits::NONE
    };
    let (is_raised, is_lowered) = direction(now, then);
    if is_raised {
        steps.push(current.bound("memory", only));
    }
    let mut ordered: Vec<(bool, &Change<'_>)> = changes
        .iter()
        .filter_map(|change| {
            let (now, then) = (&change.now, &change.then);
            let grows = match now.memory_limit != then.memory_limit {
                true => then.memory_limit > now.memory_limit,
                false if now.memory_request != then.memory_request => {
                    then.memory_request > now.memory_request
                }
                false => return None,
            };
            Some((grows, change))
        })
        .collect();
    ordered.sort_by_key(|(grows, _)| *grows);
    for (_, change) in ordered {
        let bounds = Bounds {
            memory_limit: change.then.memory_limit,
            memory_request: change.then.memory_request,
            ..change.now
        };
        steps.push(change.step(bounds, current));
    }
    if is_lowered {
        steps.push(current.bound("memory", only));
    }
    steps.extend(current.record("memory"));
}

fn cpu_steps(
    steps: &mut Vec<ResizeStep>,
    current: &mut Current<'_>,
    after: &PodCgroup,
    changes: &[Change<'_>],
) {
    let before = current.cgroup.limits;
    let quota = CgroupLimits {
        cpu_quota: after.limits.cpu_quota,
        cpu_period: after.limits.cpu_period,
        ..CgroupLimits::default()
    };
    let shares = CgroupLimits { cpu_shares: after.limits.cpu_shares, ..CgroupLimits::default() };
    let unlimited = |quota: Option<i64>| quota.filter(|micros| *micros > 0);
    let (quota_up, quota_down) =
        direction(unlimited(before.cpu_quota), unlimited(after.limits.cpu_quota));
    let (was, is) = (before.cpu_shares, after.limits.cpu_shares);
    // On the way up the limit goes first, on the way down the request: a request never stands above
    // its limit.
    if quota_up {
        steps.push(current.bound("cpu", quota));
    }
    if is > was {
        steps.push(current.bound("cpu", shares));
    }
    let mut ordered: Vec<(bool, &Change<'_>)> = changes
        .iter()
        .filter_map(|change| {
            let (now, then) = (&change.now, &change.then);
            let grows = match now.cpu_limit != then.cpu_limit {
                true => then.cpu_limit > now.cpu_limit,
                false if now.cpu_request != then.cpu_request => then.cpu_request > now.cpu_request,
                false => return None,
            };
            Some((grows, change))
        })
        .collect();
    ordered.sort_by_key(|(grows, _)| *grows);
    for (_, change) in ordered {
        // Memory went before, so everything is as granted now.
        steps.push(change.step(change.then, current));
    }
    if is < was {
        steps.push(current.bound("cpu", shares));
    }
    if quota_down {
        steps.push(current.bound("cpu", quota));
    }
    steps.extend(current.record("cpu"));
}

/// Whether a limit is raised or lowered; one that vanishes stays as it was.
fn direction(now: Option<i64>, then: Option<i64>) -> (bool, bool) {
    match (now, then) {
        (_, None) => (false, false),
        (None, Some(_)) => (false, true),
        (Some(now), Some(then)) => (then > now, then < now),
    }
}

fn put(
    list: &mut Option<BTreeMap<String, ApiQuantity>>,
    granted: Option<&BTreeMap<String, ApiQuantity>>,
    name: &str,
) {
    if let Some(value) = granted.and_then(|granted| granted.get(name)) {
        list.get_or_insert_default().insert(name.to_owned(), value.clone());
    }
}

/// Whether the container's own policy asks for a restart when this changes.
fn restarts_for(container: &Container, now: Bounds, then: Bounds) -> bool {
    let is_cpu = (now.cpu_limit, now.cpu_request) != (then.cpu_limit, then.cpu_request);
    let is_memory =
        (now.memory_limit, now.memory_request) != (then.memory_limit, then.memory_request);
    container.resize_policy.iter().flatten().any(|policy| {
        policy.restart_policy == "RestartContainer"
            && match policy.resource_name.as_str() {
                "cpu" => is_cpu,
                "memory" => is_memory,
                _ => false,
            }
    })
}

/// The four numbers that can be resized: bytes and thousandths of a CPU, zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bounds {
    memory_limit: i64,
    memory_request: i64,
    cpu_limit: i64,
    cpu_request: i64,
}

impl Bounds {
    fn of(resources: Option<&ResourceRequirements>) -> Self {
        let requests = parse_amounts(resources.and_then(|it| it.requests.as_ref()));
        let limits = parse_amounts(resources.and_then(|it| it.limits.as_ref()));
        Self {
            memory_limit: amount(&limits, "memory").value(),
            memory_request: amount(&requests, "memory").value(),
            cpu_limit: amount(&limits, "cpu").milli(),
            cpu_request: amount(&requests, "cpu").milli(),
        }
    }

    /// A container without a limit is bounded by its pod's.
    fn under(self, pod: Option<&ResourceRequirements>) -> Self {
        let pod = Self::of(pod);
        let or = |own: i64, pods: i64| if own == 0 { pods } else { own };
        Self {
            memory_limit: or(self.memory_limit, pod.memory_limit),
            cpu_limit: or(self.cpu_limit, pod.cpu_limit),
            ..self
        }
    }

    fn granted(pod: &Pod, container: &Container) -> Self {
        Self::of(container.resources.as_ref()).under(pod.spec_ref().resources.as_ref())
    }

    fn in_force(container: &Container, actuated: &PodResources) -> Self {
        Self::of(actuated.containers.get(&container.name)).under(actuated.pod.as_ref())
    }

    /// In the API's words; what `template` says of other resources is kept.
    fn written(self, template: Option<&ResourceRequirements>) -> ResourceRequirements {
        let mut result = template.cloned().unwrap_or_default();
        let set = |list: &mut Option<BTreeMap<String, ApiQuantity>>,
                   name: &str,
                   value: Option<Quantity>| {
            if let Some(list) = list.as_mut() {
                list.remove(name);
            }
            if let Some(value) = value {
                list.get_or_insert_default()
                    .insert(name.to_owned(), ApiQuantity(value.to_string()));
            }
        };
        let milli = |amount: i64| (amount != 0).then(|| Quantity::from_milli(amount));
        let bytes = |amount: i64| (amount != 0).then(|| Quantity::from_bytes(amount));
        set(&mut result.requests, "cpu", milli(self.cpu_request));
        set(&mut result.requests, "memory", bytes(self.memory_request));
        set(&mut result.limits, "cpu", milli(self.cpu_limit));
        set(&mut result.limits, "memory", bytes(self.memory_limit));
        result
    }
}

#[cfg(test)]
#[path = "resize_tests.rs"]
mod tests;
