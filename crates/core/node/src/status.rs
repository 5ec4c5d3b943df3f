//! The node's status as it should be, computed from facts and from what the API shows. Pure.

use ferrolet_types::{Amounts, Timestamp, parse_amounts};
use k8s_openapi::{
    api::core::v1::{
        ContainerImage, DaemonEndpoint, NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler,
        NodeRuntimeHandlerFeatures, NodeStatus, NodeSwapStatus, NodeSystemInfo,
    },
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};

use crate::{
    AddressError, Machine, NodeFacts, NodeImage, NodeSettings, addresses::addresses, allocatable,
    capacity, conditions, reservation,
};

/// More names of one image help nobody and fill the object.
const MAX_IMAGE_NAMES: usize = 5;

/// A status and what is to be said about it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatusPlan {
    /// What the API should have.
    pub status: NodeStatus,
    /// Reasons of the events that follow, in upstream's words: `NodeHasDiskPressure`.
    pub events: Vec<&'static str>,
    /// The machine's boot, when it is another than the API knows.
    pub rebooted: Option<String>,
    /// Why the addresses stay as they were.
    pub address_fault: Option<AddressError>,
}

/// Computes the status; `previous` is what the API has.
pub fn node_status(
    settings: &NodeSettings,
    facts: &NodeFacts,
    previous: &NodeStatus,
    now: Timestamp,
) -> NodeStatusPlan {
    let mut status = previous.clone();
    let known = status.addresses.take().unwrap_or_default();
    let (found, address_fault) = match addresses(settings, &facts.addresses, &known) {
        Ok(found) => (found, None),
        Err(error) => (known, Some(error)),
    };
    status.addresses = Some(found).filter(|list| !list.is_empty());

    let machine = facts.machine.as_ref();
    let old = parse_amounts(previous.capacity.as_ref());
    let capacity = capacity(settings, machine, &facts.devices, &old);
    let reserved = reservation(settings, &capacity);
    let left = allocatable(&capacity, &reserved, &facts.devices);
    status.capacity = Some(in_api(&capacity));
    status.allocatable = Some(in_api(&left));

    let old_boot = previous.node_info.as_ref().map(|info| &info.boot_id);
    let is_other_boot =
        |machine: &&Machine| old_boot.is_some_and(|old| !old.is_empty() && *old != machine.boot_id);
    let rebooted = machine.filter(is_other_boot).map(|machine| machine.boot_id.clone());
    status.node_info = Some(node_info(settings, facts, previous));
    status.daemon_endpoints = Some(NodeDaemonEndpoints {
        kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(settings.kubelet_port) }),
    });
    if let Some(list) = &facts.images {
        status.images = Some(images(list, settings.max_images)).filter(|it| !it.is_empty());
    }
    if let Some(runtime) = facts.runtime.last() {
        let handlers = runtime.handlers.iter().map(|handler| NodeRuntimeHandler {
            name: Some(handler.name.clone()),
            features: Some(NodeRuntimeHandlerFeatures {
                recursive_read_only_mounts: Some(handler.recursive_read_only_mounts),
                user_namespaces: Some(handler.user_namespaces),
            }),
        });
        let mut handlers: Vec<NodeRuntimeHandler> = handlers.collect();
        handlers.sort_by(|a, b| a.name.cmp(&b.name));
        status.runtime_handlers = Some(handlers).filter(|list| !list.is_empty());
        status.features = Some(NodeFeatures {
            supplemental_groups_policy: Some(runtime.has_supplemental_groups_policy),
        });
    }
    let mut list = status.conditions.take().unwrap_or_default();
    let events = conditions::update(&mut list, settings, facts, &capacity, now);
    status.conditions = Some(list);
    if let Some(volumes) = &facts.volumes_in_use {
        status.volumes_in_use = Some(volumes.clone()).filter(|list| !list.is_empty());
    }
    status.declared_features =
        Some(settings.declared_features.clone()).filter(|list| !list.is_empty());
    NodeStatusPlan { status, events, rebooted, address_fault }
}

/// True when two statuses differ in more than their heartbeats.
pub fn has_changed(old: &NodeStatus, new: &NodeStatus) -> bool {
    without_heartbeats(old) != without_heartbeats(new)
}

/// True for a node that takes pods.
pub fn is_ready(status: &NodeStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// True when the difference should not wait: readiness or pressure changed, or volumes that
/// somebody waits for.
pub fn is_urgent(old: &NodeStatus, new: &NodeStatus) -> bool {
    let states = |status: &NodeStatus| {
        let list = status.conditions.iter().flatten();
        let list = list.map(|it| (it.type_.clone(), it.status.clone()));
        let mut list: Vec<(String, String)> = list.collect();
        list.sort();
        list
    };
    states(old) != states(new) || old.volumes_in_use != new.volumes_in_use
}

fn without_heartbeats(status: &NodeStatus) -> NodeStatus {
    let mut status = status.clone();
    if let Some(list) = &mut status.conditions {
        list.sort_by(|a, b| a.type_.cmp(&b.type_));
        for condition in list {
            condition.last_heartbeat_time = None;
        }
    }
    status
}

fn node_info(settings: &NodeSettings, facts: &NodeFacts, previous: &NodeStatus) -> NodeSystemInfo {
    let mut info = previous.node_info.clone().unwrap_or_default();
    if let Some(machine) = &facts.machine {
        info.machine_id.clone_from(&machine.machine_id);
        info.system_uuid.clone_from(&machine.system_uuid);
        info.boot_id.clone_from(&machine.boot_id);
        info.kernel_version.clone_from(&machine.kernel_version);
        info.os_image.clone_from(&machine.os_image);
        info.running_in_user_namespace = machine.is_in_user_namespace;
        info.swap = (machine.swap_bytes != 0).then(|| NodeSwapStatus {
            capacity: Some(i64::try_from(machine.swap_bytes).unwrap_or(i64::MAX)),
        });
    }
    match &facts.runtime_version {
        Some(runtime) => {
            info.container_runtime_version = format!("{}://{}", runtime.name, runtime.version);
        }
        None if info.container_runtime_version.is_empty() => {
            "unknown://Unknown".clone_into(&mut info.container_runtime_version);
        }
        None => {}
    }
    info.kubelet_version.clone_from(&settings.kubelet_version);
    info.kube_proxy_version.clear();
    info.operating_system.clone_from(&settings.operating_system);
    info.architecture.clone_from(&settings.architecture);
    info
}

/// The largest images first, each with a few of its names.
fn images(images: &[NodeImage], limit: Option<u32>) -> Vec<ContainerImage> {
    let mut sorted: Vec<&NodeImage> = images.iter().collect();
    sorted.sort_by(|a, b| (b.size, &b.id).cmp(&(a.size, &a.id)));
    let limit = limit.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
    let listed = sorted.into_iter().take(limit).map(|image| {
        let names: Vec<String> = image.names.iter().take(MAX_IMAGE_NAMES).cloned().collect();
        ContainerImage {
            names: Some(names),
            size_bytes: Some(i64::try_from(image.size).unwrap_or(i64::MAX)),
        }
    });
    listed.collect()
}

pub(crate) fn in_api(amounts: &Amounts) -> std::collections::BTreeMap<String, ApiQuantity> {
    let written =
        amounts.iter().map(|(name, amount)| (name.clone(), ApiQuantity(amount.to_string())));
    written.collect()
}
