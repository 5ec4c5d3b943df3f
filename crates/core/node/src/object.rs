//! The node object around its status: labels, taints, annotations. Pure.
//!
//! A new node gets everything we were told to give it. An existing one belongs to others too: only
//! the labels that describe the machine and the annotation that says who attaches volumes are
//! brought back in line, as upstream does.

use std::collections::BTreeMap;

use ferrolet_types::{Timestamp, parse_amounts};
use k8s_openapi::{
    api::core::v1::{Node, NodeSpec, Taint},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    AddressError, NodeFacts, NodeSettings,
    addresses::{PROVIDED_IP_ANNOTATION, provided_ip},
    amounts::reset_extended,
    status::{NodeStatusPlan, in_api, node_status},
};

const ATTACH_ANNOTATION: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const HOSTNAME: &str = "kubernetes.io/hostname";
const OS: &str = "kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";
const OLD_OS: &str = "beta.kubernetes.io/os";
const OLD_ARCH: &str = "beta.kubernetes.io/arch";

/// Labels that an existing node is given again when ours say otherwise.
const DEFAULT_LABELS: [&str; 12] = [
    HOSTNAME,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    OS,
    ARCH,
    "node.kubernetes.io/windows-build",
    OLD_OS,
    OLD_ARCH,
];

/// A node as it should be, and what is to be said about it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// What the API should have.
    pub node: Node,
    /// Reasons of the events that follow, in upstream's words.
    pub events: Vec<&'static str>,
    /// The machine's boot, when it is another than the API knows.
    pub rebooted: Option<String>,
    /// Why the addresses stay as they were.
    pub address_fault: Option<AddressError>,
}

/// The node that is created when there is none.
pub fn new_node(settings: &NodeSettings, facts: &NodeFacts, now: Timestamp) -> NodePlan {
    let mut taints = settings.taints.clone();
    if settings.has_external_cloud {
        taints.push(Taint {
            key: CLOUD_TAINT.to_owned(),
            value: Some("true".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        });
    }
    let mut annotations = BTreeMap::new();
    if settings.has_controller_attach {
        annotations.insert(ATTACH_ANNOTATION.to_owned(), "true".to_owned());
    }
    let spec = NodeSpec {
        taints: Some(taints).filter(|list| !list.is_empty()),
        provider_id: settings.provider_id.clone(),
        ..NodeSpec::default()
    };
    let node = Node {
        metadata: ObjectMeta {
            name: Some(settings.name.clone()),
            labels: Some(labels(settings)),
            annotations: Some(annotations).filter(|map| !map.is_empty()),
            ..ObjectMeta::default()
        },
        spec: Some(spec).filter(|spec| *spec != NodeSpec::default()),
        status: None,
    };
    update_node(settings, facts, &node, now)
}

/// An existing node, brought in line at registration.
pub fn adopt_node(
    settings: &NodeSettings,
    facts: &NodeFacts,
    existing: &Node,
    now: Timestamp,
) -> NodePlan {
    let mut node = existing.clone();
    let wanted = labels(settings);
    let own = node.metadata.labels.get_or_insert_default();
    for name in DEFAULT_LABELS {
        match wanted.get(name).map(String::as_str) {
            None => {}
            Some("") => {
                own.remove(name);
            }
            Some(value) => {
                own.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    let attach = settings.has_controller_attach.then(|| "true".to_owned());
    annotate(&mut node, ATTACH_ANNOTATION, attach);
    if facts.devices.is_reset {
        let status = node.status.get_or_insert_default();
        for list in [&mut status.capacity, &mut status.allocatable] {
            let mut amounts = parse_amounts(list.as_ref());
            reset_extended(&mut amounts);
            *list = Some(in_api(&amounts)).filter(|it| !it.is_empty());
        }
    }
    update_node(settings, facts, &node, now)
}

/// The node as it should be at any later time.
pub fn update_node(
    settings: &NodeSettings,
    facts: &NodeFacts,
    existing: &Node,
    now: Timestamp,
) -> NodePlan {
    let mut node = existing.clone();
    let own = node.metadata.labels.get_or_insert_default();
    own.insert(OS.to_owned(), settings.operating_system.clone());
    own.insert(ARCH.to_owned(), settings.architecture.clone());
    let provided = provided_ip(settings, &facts.addresses);
    annotate(&mut node, PROVIDED_IP_ANNOTATION, provided);
    let previous = node.status.take().unwrap_or_default();
    let NodeStatusPlan { status, events, rebooted, address_fault } =
        node_status(settings, facts, &previous, now);
    node.status = Some(status);
    NodePlan { node, events, rebooted, address_fault }
}

fn labels(settings: &NodeSettings) -> BTreeMap<String, String> {
    let NodeSettings { hostname, operating_system, architecture, .. } = settings;
    let own = [
        (HOSTNAME, hostname),
        (OS, operating_system),
        (ARCH, architecture),
        (OLD_OS, operating_system),
        (OLD_ARCH, architecture),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value.clone()));
    let mut labels = BTreeMap::from(own);
    labels.extend(settings.labels.clone());
    labels
}

fn annotate(node: &mut Node, name: &str, value: Option<String>) {
    match value {
        Some(value) => {
            let all = node.metadata.annotations.get_or_insert_default();
            all.insert(name.to_owned(), value);
        }
        None => {
            if let Some(all) = &mut node.metadata.annotations {
                all.remove(name);
            }
        }
    }
}
