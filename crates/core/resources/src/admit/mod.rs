//! Whether the node takes a pod: upstream's chain of checks, the first that fails decides.
//!
//! In: the pod, what the node is, and the other pods it has taken. Out: nothing to say, or a
//! [`Rejection`] in upstream's words. Static pods bypass the taints, as they do upstream. A pod
//! that already runs is never asked again: that is the caller's rule. A critical pod that lacks
//! nothing but room may cost others their place. Refuses: remembering who was taken; ending anybody.

mod affinity;
mod apparmor;
mod features;
mod fit;
mod ports;
mod pressure;
mod sysctls;
mod taints;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ferrolet_node::NodeState;
use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::{NodeSelector, Pod};

use crate::choose_victims;

pub use features::{declared_features, missing_for_update};
pub use fit::InsufficientResource;
pub use sysctls::sysctl_with_dots;

/// The operating system pods must be made for.
const OS: &str = "linux";
const OS_LABEL: &str = "kubernetes.io/os";

/// True when the node is one that the pod's selector and required affinity ask for.
pub fn is_chosen(pod: &Pod, node: &NodeState) -> bool {
    affinity::matches(pod, node)
}

/// True when a node of these labels and this name is one that the selector asks for.
pub fn is_selected(selector: &NodeSelector, labels: &BTreeMap<String, String>, name: &str) -> bool {
    affinity::selects(selector, labels, name)
}

/// Why the node does not take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// One word: `OutOfcpu`, `NodeAffinity`.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// Decides whether the node takes `pod` besides `others`.
pub fn admit(pod: &Pod, node: &NodeState, others: &[&Pod]) -> Result<(), Rejection> {
    check_alone(pod, node)?;
    if let Some(missing) = fit::insufficient(pod, node, others).first() {
        return Err(missing.rejection());
    }
    check_place(pod, node, others)?;
    check_abilities(pod, node)
}

/// What taking a pod costs others.
#[derive(Clone, Debug, PartialEq)]
pub struct Place<'a> {
    /// Those who have to go for it.
    pub victims: Vec<&'a Pod>,
    /// What was missing first, where somebody has to go.
    pub missing: Option<String>,
}

/// Decides whether the node takes `pod` besides `others`, of whom some may have to go for a critical
/// one. Nobody goes for a pod that is refused for another reason, whichever check finds it.
pub fn admit_or_preempt<'a>(
    pod: &Pod,
    node: &NodeState,
    others: &[&'a Pod],
) -> Result<Place<'a>, Rejection> {
    if !pod.is_critical() {
        return admit(pod, node, others).map(|()| Place { victims: Vec::new(), missing: None });
    }
    check_alone(pod, node)?;
    check_place(pod, node, others)?;
    check_abilities(pod, node)?;
    let missing = fit::insufficient(pod, node, others);
    let victims = choose_victims(pod, others, &missing).map_err(|why| Rejection {
        reason: "UnexpectedAdmissionError".to_owned(),
        message: format!(
            "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: {why}"
        ),
    })?;
    Ok(Place { victims, missing: missing.into_iter().next().map(|it| it.name) })
}

/// What depends on the pod and the node alone, before anything is counted.
fn check_alone(pod: &Pod, node: &NodeState) -> Result<(), Rejection> {
    check_shutdown(node)?;
    pressure::check(pod, node)?;
    sysctls::check(pod, &node.settings.allowed_unsafe_sysctls)?;
    check_os(pod)?;
    check_groups_policy(pod, node)?;
    check_pod_level_resources(pod, node)
}

/// Whether this is a place for the pod, room apart.
fn check_place(pod: &Pod, node: &NodeState, others: &[&Pod]) -> Result<(), Rejection> {
    predicate(
        "NodeAffinity",
        affinity::matches(pod, node),
        "node(s) didn't match Pod's node affinity/selector",
    )?;
    let named = pod.spec_ref().node_name.as_deref().unwrap_or_default();
    predicate(
        "NodeName",
        named.is_empty() || named == node.settings.name,
        "node(s) didn't match the requested node name",
    )?;
    predicate(
        "NodePorts",
        ports::are_free(pod, others),
        "node(s) didn't have free ports for the requested pod ports",
    )?;
    predicate(
        "TaintToleration",
        pod.is_static()
            || taints::are_tolerated(pod, &node.taints, node.settings.compares_tolerations),
        "node(s) had taints that the pod didn't tolerate",
    )
}

/// Whether the node can do what the pod asks of it.
fn check_abilities(pod: &Pod, node: &NodeState) -> Result<(), Rejection> {
    let machine = node.facts.machine.as_ref();
    apparmor::check(pod, machine.is_some_and(|it| it.has_apparmor))?;
    features::check(pod, &node.settings.declared_features)
}

fn predicate(name: &str, holds: bool, why: &str) -> Result<(), Rejection> {
    if holds {
        return Ok(());
    }
    Err(Rejection { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") })
}

/// A machine that goes down takes nobody.
fn check_shutdown(node: &NodeState) -> Result<(), Rejection> {
    match node.facts.shutdown_fault {
        None => Ok(()),
        Some(_) => Err(Rejection {
            reason: "NodeShutdown".to_owned(),
            message: "Pod was rejected as the node is shutting down.".to_owned(),
        }),
    }
}

fn check_os(pod: &Pod) -> Result<(), Rejection> {
    let refuse = |reason: &str, message: &str| {
        Err(Rejection { reason: reason.to_owned(), message: message.to_owned() })
    };
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(OS_LABEL));
    if label.is_some_and(|os| os != OS) {
        return refuse(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        );
    }
    if pod.spec_ref().os.as_ref().is_some_and(|os| os.name != OS) {
        return refuse(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        );
    }
    Ok(())
}

fn check_pod_level_resources(pod: &Pod, node: &NodeState) -> Result<(), Rejection> {
    let given = pod.spec_ref().resources.iter();
    let mut names =
        given.flat_map(|it| [&it.requests, &it.limits]).flatten().flat_map(|it| it.keys());
    let is_set = names.any(|it| it == "cpu" || it == "memory" || it.starts_with("hugepages-"));
    if is_set && !node.settings.has_pod_level_resources {
        return Err(Rejection {
            reason: "PodLevelResourcesNotSupported".to_owned(),
            message: "PodLevelResources feature gate is disabled".to_owned(),
        });
    }
    Ok(())
}

fn check_groups_policy(pod: &Pod, node: &NodeState) -> Result<(), Rejection> {
    let policy = pod
        .spec_ref()
        .security_context
        .as_ref()
        .and_then(|it| it.supplemental_groups_policy.as_deref());
    if policy == Some("Strict") && !node.has_supplemental_groups_policy {
        return Err(Rejection {
            reason: "SupplementalGroupsPolicyNotSupported".to_owned(),
            message: "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
        });
    }
    Ok(())
}
