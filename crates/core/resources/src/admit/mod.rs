//! Whether the node takes a pod: upstream's chain of checks, the first that fails decides.
//!
//! In: the pod, what the node is, and the other pods it has taken. Out: nothing to say, or a
//! [`Rejection`] in upstream's words. Static pods bypass the taints, as they do upstream. A pod
//! that already runs is never asked again: that is the caller's rule. Refuses: remembering who was
//! taken; pre-emption and eviction, which are other chains.

mod affinity;
mod apparmor;
mod features;
mod fit;
mod ports;
mod sysctls;
mod taints;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ferrolet_node::NodeState;
use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::{NodeSelector, Pod};

pub use features::{declared_features, missing_for_update};
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
    check_shutdown(node)?;
    sysctls::check(pod, &node.settings.allowed_unsafe_sysctls)?;
    check_os(pod)?;
    check_groups_policy(pod, node)?;
    fit::check(pod, node, others)?;
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
        pod.is_static() || taints::are_tolerated(pod, &node.taints),
        "node(s) had taints that the pod didn't tolerate",
    )?;
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
