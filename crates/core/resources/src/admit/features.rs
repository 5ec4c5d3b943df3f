//! Features that only some nodes have: what this one declares, and which pods need more.
//!
//! The scheduler keeps pods away from nodes that do not declare what they need; a pod that names its node comes all the same
//! and is turned away here, instead of running without what it asked for.

use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::Rejection;

const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";
const HOST_NETWORK_USERS: &str = "UserNamespacesHostNetworkSupport";

/// Those of upstream's declared features that this agent really has. A feature belongs here together with its code: a node
/// that declares what it does not do is given pods that it cannot run.
const PRESENT: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    RESTART_ALL,
];

/// What a node says that it can do, sorted; a feature whose gate is closed is not declared.
pub fn declared_features(is_enabled: impl Fn(&str) -> bool) -> Vec<String> {
    let present = PRESENT.iter().filter(|name| is_enabled(name));
    let mut names: Vec<String> = present.map(|name| (*name).to_owned()).collect();
    names.sort();
    names
}

/// Refuses a pod that needs a feature which the node does not declare.
pub(super) fn check(pod: &Pod, declared: &[String]) -> Result<(), Rejection> {
    let missing: Vec<&str> = needed(pod)
        .into_iter()
        .filter(|name| !declared.iter().any(|it| it == name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(Rejection {
        reason: "PodFeatureUnsupported".to_owned(),
        message: format!("Pod requires node features that are not available: {missing}"),
    })
}

fn needed(pod: &Pod) -> Vec<&'static str> {
    let spec = pod.spec_ref();
    let restarts_all = |container: &Container| {
        let rules = container.restart_policy_rules.iter().flatten();
        rules
            .into_iter()
            .any(|rule| rule.action == "RestartAllContainers")
    };
    let mut containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let has_own_users = spec.host_users == Some(false);
    let is_on_host_network = spec.host_network == Some(true);
    let needs = [
        (RESTART_ALL, containers.any(restarts_all)),
        (HOST_NETWORK_USERS, is_on_host_network && has_own_users),
    ];
    let needs = needs.into_iter().filter(|(_, is_needed)| *is_needed);
    needs.map(|(name, _)| name).collect()
}
