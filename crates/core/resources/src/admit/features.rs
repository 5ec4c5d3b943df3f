//! Features that only some nodes have: what this one declares, and which pods need more.
//!
//! The scheduler keeps pods away from nodes that do not declare what they need; a pod that names
//! its node comes all the same and is turned away here, instead of running without what it asked
//! for.

use ferrolet_types::{
    Quantity,
    pod::{PodView, is_sidecar},
};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements, Volume};

use super::Rejection;
use crate::{Amounts, parse_amounts};

const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";
const HOST_NETWORK_USERS: &str = "UserNamespacesHostNetworkSupport";
const RESIZE_POD: &str = "InPlacePodLevelResourcesVerticalScaling";
const RESIZE_INIT: &str = "InPlacePodVerticalScalingInitContainers";
const RESIZE_MEMORY_VOLUMES: &str = "InPlacePodVerticalScalingMemoryBackedVolumes";

/// Those of upstream's declared features that this agent really has. A feature belongs here
/// together with its code: a node that declares what it does not do is given pods that it cannot
/// run.
const PRESENT: [&str; 4] = ["ExtendWebSocketsToKubelet", RESIZE_POD, RESIZE_INIT, RESTART_ALL];

/// What a node says that it can do, sorted; a feature whose gate is closed is not declared.
pub fn declared_features(is_enabled: impl Fn(&str) -> bool) -> Vec<String> {
    let present = PRESENT.iter().filter(|name| is_enabled(name));
    let mut names: Vec<String> = present.map(|name| (*name).to_owned()).collect();
    names.sort();
    names
}

/// Refuses a pod that needs a feature which the node does not declare.
pub(super) fn check(pod: &Pod, declared: &[String]) -> Result<(), Rejection> {
    match missing(&needed(pod), declared) {
        None => Ok(()),
        Some(message) => Err(Rejection { reason: "PodFeatureUnsupported".to_owned(), message }),
    }
}

/// What an update of a pod that the node has taken asks of it in vain; `None` when the node can do
/// it. It is told, and nothing else comes of it.
pub fn missing_for_update(old: &Pod, new: &Pod, declared: &[String]) -> Option<String> {
    missing(&needed_for(old, new), declared)
}

fn missing(needed: &[&str], declared: &[String]) -> Option<String> {
    let lacks = |name: &&&str| !declared.iter().any(|it| it == *name);
    let missing: Vec<&str> = needed.iter().filter(lacks).copied().collect();
    (!missing.is_empty()).then(|| {
        let missing = missing.join(", ");
        format!("Pod requires node features that are not available: {missing}")
    })
}

fn needed(pod: &Pod) -> Vec<&'static str> {
    let spec = pod.spec_ref();
    let restarts_all = |container: &Container| {
        let rules = container.restart_policy_rules.iter().flatten();
        rules.into_iter().any(|rule| rule.action == "RestartAllContainers")
    };
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let has_own_users = spec.host_users == Some(false);
    let is_on_host_network = spec.host_network == Some(true);
    let needs = [
        (RESTART_ALL, containers.any(restarts_all)),
        (HOST_NETWORK_USERS, is_on_host_network && has_own_users),
    ];
    let needs = needs.into_iter().filter(|(_, is_needed)| *is_needed);
    needs.map(|(name, _)| name).collect()
}

/// Everything else that such features are about cannot change in a pod.
fn needed_for(old: &Pod, new: &Pod) -> Vec<&'static str> {
    let (old, new) = (old.spec_ref(), new.spec_ref());
    let init = |spec: &[Container]| -> Vec<Option<ResourceRequirements>> {
        let plain = spec.iter().filter(|it| !is_sidecar(it));
        plain.map(|it| it.resources.clone()).collect()
    };
    let init_of = |list: &Option<Vec<Container>>| init(list.as_deref().unwrap_or_default());
    let needs = [
        (RESIZE_POD, amounts_of(old.resources.as_ref()) != amounts_of(new.resources.as_ref())),
        (RESIZE_INIT, init_of(&old.init_containers) != init_of(&new.init_containers)),
        (
            RESIZE_MEMORY_VOLUMES,
            old.volumes.iter().flatten().any(|was| {
                let mut all = new.volumes.iter().flatten();
                let is = all.find(|it| it.name == was.name);
                match (memory_size(was), is.and_then(memory_size)) {
                    (Some(was), Some(is)) => was != is,
                    _ => false,
                }
            }),
        ),
    ];
    let needs = needs.into_iter().filter(|(_, is_needed)| *is_needed);
    needs.map(|(name, _)| name).collect()
}

/// By value: `1` and `1000m` are the same.
fn amounts_of(resources: Option<&ResourceRequirements>) -> Option<(Amounts, Amounts)> {
    let resources = resources?;
    Some((parse_amounts(resources.requests.as_ref()), parse_amounts(resources.limits.as_ref())))
}

/// The bound of a volume in memory, in bytes.
fn memory_size(volume: &Volume) -> Option<Quantity> {
    let empty = volume.empty_dir.as_ref()?;
    let size = empty.size_limit.as_ref()?;
    let is_memory = empty.medium.as_deref() == Some("Memory");
    Quantity::parse(&size.0).ok().filter(|_| is_memory)
}
