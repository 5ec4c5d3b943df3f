//! Who a static pod is: its UID, its name on this node, and the marks that tell it from pods of the
//! API.
//!
//! In: a pod after defaulting, where it was found, and the node's name. Out: the same pod as the
//! rest of the agent and a mirror pod see it. The UID is upstream's to the bit, so a node can be
//! switched between agents without a static pod restarting. Refuses: reading, defaulting,
//! validation.

mod dump;
pub(crate) mod quantity;

use ferrolet_types::{hash::fnv1a_128, pod::HASH_ANNOTATION};
use k8s_openapi::api::core::v1::{Pod, PodStatus, Toleration};
use serde_json::Value;

/// Where a static pod was found, as far as its identity goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// A manifest file, by its full path.
    File(&'a str),
    /// A manifest URL.
    Url(&'a str),
}

/// The UID that upstream gives a defaulted pod found at `origin` on the node `node`.
pub(crate) fn uid(pod: &Pod, node: &str, origin: Origin<'_>) -> String {
    let mut value = serde_json::to_value(pod).unwrap_or_default();
    if let Value::Object(object) = &mut value {
        // Upstream's type in memory carries neither.
        object.remove("kind");
        object.remove("apiVersion");
    }
    let mut text = dump::dump(&value);
    match origin {
        Origin::File(path) => {
            text.push_str("host:");
            text.push_str(node);
            text.push_str("file:");
            text.push_str(path);
        }
        Origin::Url(url) => {
            text.push_str("url:");
            text.push_str(url);
        }
    }
    format!("{:032x}", fnv1a_128(text.as_bytes()))
}

/// Makes a defaulted pod the static pod of this node.
pub(crate) fn assign(pod: &mut Pod, node: &str, origin: Origin<'_>) {
    let given = pod.metadata.uid.take().filter(|uid| !uid.is_empty());
    let uid = given.unwrap_or_else(|| uid(pod, node, origin));
    let name = pod.metadata.name.get_or_insert_default();
    name.push('-');
    name.push_str(&node.to_lowercase());
    if pod.metadata.namespace.as_deref().unwrap_or_default().is_empty() {
        pod.metadata.namespace = Some("default".to_owned());
    }
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(HASH_ANNOTATION.to_owned(), uid.clone());
    pod.metadata.uid = Some(uid);
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    if let Origin::File(_) = origin {
        tolerate_node_problems(spec.tolerations.get_or_insert_default());
    }
    let status = pod.status.get_or_insert_with(PodStatus::default);
    status.phase = Some("Pending".to_owned());
}

/// A pod from a file stays on its node whatever the node's troubles are.
fn tolerate_node_problems(tolerations: &mut Vec<Toleration>) {
    let everything = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    let same = |other: &Toleration| {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        text(&other.key) == text(&everything.key)
            && text(&other.effect) == text(&everything.effect)
            && text(&other.operator) == text(&everything.operator)
            && text(&other.value) == text(&everything.value)
    };
    match tolerations.iter_mut().find(|other| same(other)) {
        Some(other) => *other = everything,
        None => tolerations.push(everything),
    }
}

#[cfg(test)]
mod tests;
