//! Node selector and required node affinity.

use std::collections::BTreeMap;

use ferrolet_node::NodeState;
use ferrolet_types::pod::PodView;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod};

/// True when the node is one the pod asked for.
pub(super) fn matches(pod: &Pod, node: &NodeState) -> bool {
    let spec = pod.spec_ref();
    let selected =
        spec.node_selector.iter().flatten().all(|(key, value)| node.labels.get(key) == Some(value));
    let required =
        spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()).and_then(
            |affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref(),
        );
    selected && required.is_none_or(|selector| selects(selector, &node.labels, &node.settings.name))
}

/// True when a selector asks for a node. Terms are alternatives; an empty list matches nothing.
pub(super) fn selects(
    selector: &NodeSelector,
    labels: &BTreeMap<String, String>,
    name: &str,
) -> bool {
    let mut terms = selector.node_selector_terms.iter();
    terms.any(|term| term_matches(term, labels, name))
}

fn term_matches(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |requirement: &NodeSelectorRequirement| {
        holds(requirement, labels.get(&requirement.key).map(String::as_str))
    };
    let field = |requirement: &NodeSelectorRequirement| {
        requirement.key == "metadata.name" && holds(requirement, Some(name))
    };
    expressions.iter().all(label) && fields.iter().all(field)
}

fn holds(requirement: &NodeSelectorRequirement, actual: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = actual.is_some_and(|actual| values.iter().any(|value| value == actual));
    let number = |text: &str| text.parse::<i64>().ok();
    let compare = |greater: bool| {
        let (Some(actual), Some(bound)) =
            (actual.and_then(number), values.first().and_then(|v| number(v)))
        else {
            return false;
        };
        if greater { actual > bound } else { actual < bound }
    };
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => compare(true),
        "Lt" => compare(false),
        _ => false,
    }
}
