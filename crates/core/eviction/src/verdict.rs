//! What an evicted pod is told: message, annotations and grace, in upstream's words.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolet_config::config::Threshold;
use ferrolet_types::{GracePeriod, Quantity};

use crate::{
    Candidate, ContainerUse, Observations, StarvedResource, resource_of, threshold_quantity,
};

/// How a pod goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// For its status, its `DisruptionTarget` condition and its event.
    pub message: String,
    /// For its event.
    pub annotations: BTreeMap<&'static str, String>,
    /// The most that its containers get.
    pub grace: GracePeriod,
}

/// Grace at a soft threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceLimits {
    /// `evictionMaxPodGracePeriod`.
    pub max_pod: Option<Duration>,
}

/// At a hard threshold the node cannot wait.
const AT_ONCE: GracePeriod = GracePeriod(Duration::from_secs(1));

/// The verdict on a pod, for the threshold that is reclaimed. `due` are all thresholds that are
/// due: the message names the first of the same resource.
pub fn verdict(
    candidate: &Candidate,
    threshold: &Threshold,
    due: &[Threshold],
    observations: &Observations,
    limits: GraceLimits,
) -> Verdict {
    let resource = resource_of(threshold.signal);
    let mut message = format!("The node was low on resource: {resource}. ");
    if let Some((line, available)) = met_line(resource, due, observations) {
        message.push_str(&format!("Threshold quantity: {line}, available: {available}. "));
    }
    let mut annotations = BTreeMap::new();
    if let Some(used) = &candidate.used {
        if let (StarvedResource::Memory, Some(request)) = (resource, candidate.own_memory_request) {
            let usage = bytes(used.memory);
            message.push_str(&larger("Pod", &candidate.name, usage, request, resource));
            annotations.insert("offending_pod", candidate.name.clone());
            annotations.insert("offending_pod_usage", usage.to_string());
        }
        let over: Vec<(&ContainerUse, Quantity, Quantity)> =
            used.containers.iter().filter_map(|it| above_request(it, resource)).collect();
        for (container, usage, request) in &over {
            message.push_str(&larger("Container", &container.name, *usage, *request, resource));
        }
        let joined = |text: &dyn Fn(&(&ContainerUse, Quantity, Quantity)) -> String| {
            over.iter().map(text).collect::<Vec<_>>().join(",")
        };
        annotations.insert("offending_containers", joined(&|it| it.0.name.clone()));
        annotations.insert("offending_containers_usage", joined(&|it| it.1.to_string()));
        annotations.insert("starved_resource", resource.to_string());
    }
    Verdict { message, annotations, grace: grace(candidate, threshold, limits) }
}

fn larger(
    kind: &str,
    name: &str,
    usage: Quantity,
    request: Quantity,
    resource: StarvedResource,
) -> String {
    format!(
        "{kind} {name} was using {usage}, request is {request}, has larger consumption of {resource}. "
    )
}

/// The threshold and what is left of it, for the first due threshold of a resource.
fn met_line(
    resource: StarvedResource,
    due: &[Threshold],
    observations: &Observations,
) -> Option<(Quantity, Quantity)> {
    let of_resource = due.iter().filter(|it| resource_of(it.signal) == resource);
    let mut observed = of_resource.filter_map(|it| Some((it, observations.get(&it.signal)?)));
    let (threshold, observed) = observed.next()?;
    let count = |value: u64| match resource {
        StarvedResource::Memory | StarvedResource::EphemeralStorage => bytes(value),
        StarvedResource::Inodes | StarvedResource::Pids => {
            Quantity::from_value(i64::try_from(value).unwrap_or(i64::MAX))
        }
    };
    Some((threshold_quantity(threshold.value, observed.capacity), count(observed.available)))
}

/// What a container uses of the resource and asked for, when it is more. Inodes and processes are
/// not counted by container.
fn above_request(
    container: &ContainerUse,
    resource: StarvedResource,
) -> Option<(&ContainerUse, Quantity, Quantity)> {
    let (usage, request) = match resource {
        StarvedResource::Memory => (bytes(container.memory?), container.memory_request),
        StarvedResource::EphemeralStorage => {
            let all = container.rootfs?.bytes.saturating_add(container.logs?.bytes);
            (bytes(all), container.storage_request)
        }
        StarvedResource::Inodes | StarvedResource::Pids => return None,
    };
    (usage > request).then_some((container, usage, request))
}

fn grace(candidate: &Candidate, threshold: &Threshold, limits: GraceLimits) -> GracePeriod {
    if threshold.grace_period.is_none() {
        return AT_ONCE;
    }
    match (limits.max_pod.map(GracePeriod), candidate.grace) {
        (Some(most), Some(own)) => most.min(own),
        (Some(most), None) => most,
        (None, own) => own.unwrap_or(AT_ONCE),
    }
}

fn bytes(value: u64) -> Quantity {
    Quantity::from_bytes(i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use ferrolet_config::config::{Signal, ThresholdValue};
    use ferrolet_types::PodUid;

    use super::*;
    use crate::{FileUse, Observation, PodUse};

    const MI: u64 = 1 << 20;

    fn candidate(used: Option<PodUse>) -> Candidate {
        Candidate {
            uid: PodUid::from("u"),
            name: "web".to_owned(),
            priority: 0,
            is_critical: false,
            memory_request: Quantity::ZERO,
            storage_request: Quantity::ZERO,
            own_memory_request: None,
            grace: Some(GracePeriod::from_secs(30)),
            used,
        }
    }

    fn container(name: &str, memory: u64, request: u64) -> ContainerUse {
        let files = FileUse { bytes: 3 * MI, inodes: 1 };
        ContainerUse {
            name: name.to_owned(),
            memory: Some(memory),
            memory_request: bytes(request),
            storage_request: Quantity::ZERO,
            rootfs: Some(files),
            logs: Some(files),
        }
    }

    fn threshold(signal: Signal, grace_period: Option<Duration>) -> Threshold {
        let value = ThresholdValue::Quantity(Quantity::from_bytes(100 << 20));
        Threshold { signal, value, grace_period, minimum_reclaim: None }
    }

    fn check(candidate: &Candidate, threshold: Threshold, max_pod: Option<Duration>) -> Verdict {
        let observation = Observation { available: 90 * MI, capacity: 1 << 30, at: None };
        let observations = Observations::from([(threshold.signal, observation)]);
        verdict(candidate, &threshold, &[threshold], &observations, GraceLimits { max_pod })
    }

    #[test]
    fn the_message_names_threshold_rest_and_who_was_above_its_request() {
        let containers = vec![container("a", 50 * MI, 0), container("b", MI, 2 * MI)];
        let used = PodUse { memory: 51 * MI, containers, ..PodUse::default() };
        let found =
            check(&candidate(Some(used.clone())), threshold(Signal::MemoryAvailable, None), None);
        assert_eq!(
            found.message,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container a was using 50Mi, request is 0, has larger consumption of memory. "
        );
        let expected = [
            ("offending_containers", "a"),
            ("offending_containers_usage", "50Mi"),
            ("starved_resource", "memory"),
        ];
        assert_eq!(found.annotations, expected.map(|(key, it)| (key, it.to_owned())).into());
        let whole =
            Candidate { own_memory_request: Some(bytes(MI)), ..candidate(Some(used.clone())) };
        let found = check(&whole, threshold(Signal::MemoryAvailable, None), None);
        assert!(found.message.contains(
            "Pod web was using 51Mi, request is 1Mi, has larger consumption of memory. "
        ));
        assert_eq!(found.annotations["offending_pod_usage"], "51Mi");
        let disk = check(&candidate(Some(used)), threshold(Signal::NodeFsAvailable, None), None);
        assert!(disk.message.contains(
            "Container a was using 6Mi, request is 0, has larger consumption of ephemeral-storage. "
        ));
    }

    #[test]
    fn without_statistics_only_the_shortage_is_told() {
        let found = check(&candidate(None), threshold(Signal::PidAvailable, None), None);
        assert_eq!(
            found.message,
            "The node was low on resource: pids. Threshold quantity: 100Mi, available: 94371840. "
        );
        assert!(found.annotations.is_empty());
    }

    #[test]
    fn a_soft_threshold_gives_the_smaller_grace_and_a_hard_one_a_second() {
        let soft = || threshold(Signal::MemoryAvailable, Some(Duration::from_secs(5)));
        let grace = |threshold, max_pod: Option<u64>| {
            check(&candidate(None), threshold, max_pod.map(Duration::from_secs)).grace.as_secs()
        };
        assert_eq!(grace(threshold(Signal::MemoryAvailable, None), Some(20)), 1);
        assert_eq!(grace(soft(), Some(20)), 20);
        assert_eq!(grace(soft(), Some(60)), 30);
        assert_eq!(grace(soft(), None), 30);
    }
}
