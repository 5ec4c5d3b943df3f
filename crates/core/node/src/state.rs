//! The node as it is now: the one value that everybody who asks about the node reads.
//!
//! Three voices make it: how it was told to present itself, what the machine, the runtime and our
//! loops say, and what the API has. Pods are judged by the API's copy once there is one, because
//! others may have labelled or tainted it there; before that, and on a node on its own, by what
//! would be registered.

use std::{collections::BTreeMap, sync::Arc};

use ferrolet_types::{Amounts, Timestamp, is_older, parse_amounts};
use k8s_openapi::api::core::v1::{Node, Taint};

use crate::{Machine, NodeFacts, NodeSettings, host_ips, new_node};

/// The node as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeState {
    /// How it was told to present itself.
    pub settings: Arc<NodeSettings>,
    /// What is true of it.
    pub facts: NodeFacts,
    /// The API's newest copy; `None` before it is known, after it was deleted, and without a
    /// cluster.
    pub object: Option<Arc<Node>>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What pods may have together, `pods` included.
    pub allocatable: Amounts,
    /// Its addresses as pods show them, the preferred family first.
    pub host_ips: Vec<String>,
    /// The runtime honours the supplementary-groups policy.
    pub has_supplemental_groups_policy: bool,
}

impl NodeState {
    /// The node before anybody was asked.
    pub fn at_start(settings: Arc<NodeSettings>, facts: NodeFacts, now: Timestamp) -> Self {
        let described = new_node(&settings, &facts, now).node;
        let mut state = Self {
            settings,
            facts,
            object: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            allocatable: Amounts::new(),
            host_ips: Vec::new(),
            has_supplemental_groups_policy: false,
        };
        state.apply(&described);
        // Nobody has asked the runtime yet, and on a node on its own nobody will.
        state.has_supplemental_groups_policy = true;
        state
    }

    /// Takes over a copy of the API's; false when a newer one is known. Copies come from the watch
    /// and from answers, in any order.
    pub fn learn(&mut self, node: Arc<Node>) -> bool {
        let is_stale = |known: &Arc<Node>| is_older(&node.metadata, &known.metadata);
        if self.object.as_ref().is_some_and(is_stale) {
            return false;
        }
        self.apply(&node);
        self.object = Some(node);
        true
    }

    /// The node is to present itself otherwise from now on. With a cluster, the API's copy follows
    /// once it was told.
    pub fn retell(&mut self, settings: Arc<NodeSettings>, now: Timestamp) {
        self.settings = settings;
        self.describe_alone(now);
    }

    /// The machine is another size from now on. With a cluster, the API's copy follows once it was
    /// told.
    pub fn remeasure(&mut self, machine: Machine, now: Timestamp) {
        self.facts.machine = Some(machine);
        self.describe_alone(now);
    }

    /// The API has no such node any more. Pods go on being judged by what it had.
    pub fn lose(&mut self) {
        self.object = None;
    }

    /// The node as it would register now, cluster or not.
    pub fn described(&self, now: Timestamp) -> Node {
        new_node(&self.settings, &self.facts, now).node
    }

    /// Where the API has no copy, the node is what it would register.
    fn describe_alone(&mut self, now: Timestamp) {
        if self.object.is_none() {
            let has_policy = self.has_supplemental_groups_policy;
            let described = self.described(now);
            self.apply(&described);
            self.has_supplemental_groups_policy = has_policy;
        }
    }

    fn apply(&mut self, node: &Node) {
        self.labels = node.metadata.labels.clone().unwrap_or_default();
        self.taints = node.spec.as_ref().and_then(|it| it.taints.clone()).unwrap_or_default();
        self.host_ips = host_ips(node);
        let status = node.status.as_ref();
        if let Some(amounts) = status.and_then(|it| it.allocatable.as_ref()) {
            self.allocatable = parse_amounts(Some(amounts));
        }
        let features = status.and_then(|it| it.features.as_ref());
        self.has_supplemental_groups_policy =
            features.and_then(|it| it.supplemental_groups_policy).unwrap_or(false);
    }
}

#[cfg(test)]
mod tests {
    use ferrolet_types::Quantity;
    use serde_json::json;

    use super::*;

    fn copy(version: u32, zone: &str) -> Arc<Node> {
        let node = json!({
            "metadata": { "uid": "u", "resourceVersion": version.to_string(), "labels": { "zone": zone } },
            "spec": { "taints": [{ "key": "full", "effect": "NoSchedule" }] },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": "10.0.0.9" }],
                "allocatable": { "cpu": "3" },
            },
        });
        Arc::new(serde_json::from_value(node).unwrap())
    }

    #[test]
    fn a_node_on_its_own_is_what_it_would_register() {
        let state = NodeState::example();
        assert_eq!(state.labels["kubernetes.io/hostname"], "lab-node");
        assert_eq!(state.host_ips, ["10.87.0.1"]);
        assert_eq!(state.allocatable["cpu"], Quantity::from_milli(2000));
        assert_eq!(state.allocatable["pods"], Quantity::from_value(500));
        assert!(state.has_supplemental_groups_policy && state.taints.is_empty());
    }

    #[test]
    fn the_newest_copy_of_the_api_counts() {
        let mut state = NodeState::example();
        assert!(state.learn(copy(7, "b")));
        assert!(!state.learn(copy(6, "a")));
        assert_eq!(state.labels["zone"], "b");
        assert_eq!(state.taints[0].key, "full");
        assert_eq!(state.host_ips, ["10.0.0.9"]);
        assert_eq!(state.allocatable["cpu"], Quantity::from_milli(3000));
        assert!(!state.has_supplemental_groups_policy);
        state.lose();
        assert_eq!((state.object.clone(), state.labels["zone"].as_str()), (None, "b"));
        assert!(state.learn(copy(1, "c")), "another node of that name begins anew");
    }

    #[test]
    fn a_node_that_is_told_otherwise_is_so_at_once_or_when_the_api_says_so() {
        let mut state = NodeState::example();
        let fewer = Arc::new(NodeSettings { max_pods: 3, ..(*state.settings).clone() });
        let now = Timestamp::from_second(9);
        state.retell(fewer.clone(), now);
        assert_eq!(state.allocatable["pods"], Quantity::from_value(3));
        assert!(state.has_supplemental_groups_policy);
        let mut state = NodeState::example();
        state.learn(copy(7, "b"));
        state.retell(fewer, now);
        assert_eq!(state.settings.max_pods, 3);
        assert_eq!(state.allocatable["cpu"], Quantity::from_milli(3000), "as the API has it");
    }

    #[test]
    fn a_machine_that_grows_has_more_for_pods_at_once_or_when_the_api_says_so() {
        let mut alone = NodeState::example();
        let machine = alone.facts.machine.clone().unwrap();
        let grown = Machine { n_cpus: machine.n_cpus + 2, ..machine };
        let before = alone.allocatable["cpu"];
        alone.remeasure(grown.clone(), Timestamp::from_second(9));
        assert_eq!(alone.allocatable["cpu"], before.plus(Quantity::from_milli(2000)));
        assert!(alone.has_supplemental_groups_policy);
        let mut known = NodeState::example();
        known.learn(copy(7, "b"));
        known.remeasure(grown.clone(), Timestamp::from_second(9));
        assert_eq!(known.allocatable["cpu"], Quantity::from_milli(3000), "as the API has it");
        assert_eq!(known.facts.machine, Some(grown));
    }

    #[test]
    fn a_copy_without_amounts_leaves_them() {
        let mut state = NodeState::example();
        let before = state.allocatable.clone();
        state.learn(Arc::new(Node::default()));
        assert_eq!(state.allocatable, before);
    }
}
