//! What is said about the node, in upstream's words: the one place where events of the node are
//! phrased.

use ferrolet_ports::{Event, EventKind, EventObject};

/// The agent started.
pub fn starting() -> Event {
    event(EventKind::Normal, "Starting", "Starting kubelet.".to_owned())
}

/// The limit across all pods is in force.
pub fn allocatable_enforced() -> Event {
    let message = "Updated Node Allocatable limit across pods".to_owned();
    event(EventKind::Normal, "NodeAllocatableEnforced", message)
}

/// The limit across all pods could not be set on this cgroup.
pub fn allocatable_not_enforced(cgroup: &str, cause: &str) -> Event {
    let message = format!("Failed to update Node Allocatable Limits {cgroup:?}: {cause}");
    event(EventKind::Warning, "FailedNodeAllocatableEnforcement", message)
}

/// The machine was booted since the API last heard of it.
pub(crate) fn rebooted(node: &str, boot_id: &str) -> Event {
    let message = format!("Node {node} has been rebooted, boot id: {boot_id}");
    event(EventKind::Warning, "Rebooted", message)
}

/// The scheduler may or may not use the node.
pub(crate) fn schedulable(node: &str, is_unschedulable: bool) -> Event {
    let reason = if is_unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
    status_is_now(node, reason)
}

/// A condition changed.
pub(crate) fn status_is_now(node: &str, reason: &str) -> Event {
    let message = format!("Node {node} status is now: {reason}");
    event(EventKind::Normal, reason, message)
}

fn event(kind: EventKind, reason: &str, message: String) -> Event {
    Event { object: EventObject::Node, kind, reason: reason.to_owned(), message }
}
