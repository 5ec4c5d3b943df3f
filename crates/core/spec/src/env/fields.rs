//! The downward API in the environment: fields of the pod and amounts of its containers.

use std::{collections::BTreeMap, net::IpAddr};

use ferrolet_resources::{Amounts, amount, container_limits, container_requests, parse_amounts};
use ferrolet_types::{Quantity, pod::PodView as _};
use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector};

use super::{EnvError, EnvInputs};
use crate::{gojson::quote, names::qualified_name_fault};

/// Resources that the node stands in for where a container has no limit.
const DEFAULTED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The value of a field of the pod.
pub(super) fn field(
    pod: &Pod,
    reference: &ObjectFieldSelector,
    inputs: &EnvInputs<'_>,
) -> Result<String, EnvError> {
    let path = reference.field_path.as_str();
    if let Some(other) = reference.api_version.as_deref().filter(|v| *v != "v1") {
        return Err(EnvError::FieldVersion(other.to_owned()));
    }
    if let Some((map, key)) = subscript(path) {
        return keyed(pod, path, map, key);
    }
    let spec = pod.spec_ref();
    let key = pod.key();
    let ips = || sorted_ips(inputs.pod_ips, inputs.host_ips);
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let hosts = inputs.host_ips;
    Ok(match path {
        "metadata.name" => key.name.to_string(),
        "metadata.namespace" => key.namespace.to_string(),
        "metadata.uid" => pod.uid().as_str().to_owned(),
        "metadata.labels" => listed(pod.metadata.labels.as_ref()),
        "metadata.annotations" => listed(pod.metadata.annotations.as_ref()),
        "spec.nodeName" | "spec.host" => text(&spec.node_name),
        "spec.serviceAccountName" => text(&spec.service_account_name),
        "status.hostIP" => hosts.first().ok_or(EnvError::NoHostIp)?.clone(),
        "status.hostIPs" if hosts.is_empty() => return Err(EnvError::NoHostIp),
        "status.hostIPs" => hosts.join(","),
        "status.podIP" => ips().into_iter().next().unwrap_or_default(),
        "status.podIPs" => ips().join(","),
        // Known to the API, but only in volumes.
        "spec.restartPolicy" | "spec.schedulerName" | "status.phase" => {
            return Err(EnvError::FieldUnsupported(path.to_owned()));
        }
        _ => return Err(EnvError::FieldUnknown(path.to_owned())),
    })
}

/// An amount of a container in units of the divisor, rounded up.
pub(super) fn resource(
    pod: &Pod,
    container: &Container,
    reference: &ResourceFieldSelector,
    allocatable: &Amounts,
) -> Result<String, EnvError> {
    let other = reference.container_name.as_deref();
    let (limits, requests) = match other.filter(|name| !name.is_empty()) {
        None => (defaulted_limits(pod, container, allocatable), container_requests(container)),
        Some(name) => named_container(pod, name, allocatable)?,
    };
    let unknown = || EnvError::ResourceUnknown(reference.resource.clone());
    let (list, name) = match reference.resource.split_once('.').ok_or_else(unknown)? {
        ("limits", name) => (limits, name),
        ("requests", name) => (requests, name),
        _ => return Err(unknown()),
    };
    if !DEFAULTED.contains(&name) && !name.starts_with("hugepages-") {
        return Err(unknown());
    }
    let divisor = reference.divisor.as_ref();
    let divisor = divisor.and_then(|text| Quantity::parse(&text.0).ok());
    let divisor = divisor.filter(|divisor| !divisor.is_zero()).unwrap_or(Quantity::from_value(1));
    let found = amount(&list, name);
    let (amount, unit) = match name {
        "cpu" => (found.milli(), divisor.milli()),
        _ => (found.value(), divisor.value()),
    };
    Ok(divided_up(amount, unit.max(1)).to_string())
}

fn divided_up(amount: i64, unit: i64) -> i64 {
    amount / unit + i64::from(amount % unit > 0)
}

/// Another container's amounts. Upstream lets the node stand in for regular containers only.
fn named_container(
    pod: &Pod,
    name: &str,
    allocatable: &Amounts,
) -> Result<(Amounts, Amounts), EnvError> {
    let spec = pod.spec_ref();
    if let Some(found) = spec.containers.iter().find(|c| c.name == name) {
        let limits = defaulted_limits(pod, found, allocatable);
        return Ok((limits, container_requests(found)));
    }
    let mut init = spec.init_containers.iter().flatten();
    let found = init.find(|c| c.name == name);
    let found = found.ok_or_else(|| EnvError::ContainerMissing(name.to_owned()))?;
    Ok((container_limits(found), container_requests(found)))
}

/// Limits, with the pod's own and then the node's in place of missing ones.
fn defaulted_limits(pod: &Pod, container: &Container, allocatable: &Amounts) -> Amounts {
    let pods = pod.spec_ref().resources.as_ref();
    let pods = parse_amounts(pods.and_then(|resources| resources.limits.as_ref()));
    let mut limits = container_limits(container);
    for name in DEFAULTED {
        let Some(nodes) = allocatable.get(name) else {
            continue;
        };
        let pods = pods.get(name).filter(|limit| !limit.is_zero());
        let pods = pods.filter(|_| name != "ephemeral-storage");
        let limit = limits.entry(name.to_owned()).or_insert(Quantity::ZERO);
        if limit.is_zero() {
            *limit = *pods.unwrap_or(nodes);
        }
    }
    limits
}

/// `metadata.labels['key']` as map and key.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

fn keyed(pod: &Pod, path: &str, map: &str, key: &str) -> Result<String, EnvError> {
    let (values, fault) = match map {
        "metadata.labels" => (&pod.metadata.labels, qualified_name_fault(key)),
        "metadata.annotations" => {
            (&pod.metadata.annotations, qualified_name_fault(&key.to_lowercase()))
        }
        _ => return Err(EnvError::FieldSubscript(path.to_owned())),
    };
    if let Some(fault) = fault {
        let field = path.to_owned();
        return Err(EnvError::FieldKey { field, fault });
    }
    let value = values.as_ref().and_then(|values| values.get(key));
    Ok(value.cloned().unwrap_or_default())
}

fn listed(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", quote(value))).collect();
    lines.join("\n")
}

/// One address of each family, the node's preferred family first.
fn sorted_ips(pod_ips: &[String], host_ips: &[String]) -> Vec<String> {
    let parsed: Vec<IpAddr> = pod_ips.iter().filter_map(|ip| ip.parse().ok()).collect();
    let is_v6_first = host_ips.first().is_some_and(|ip| ip.contains(':'));
    [is_v6_first, !is_v6_first]
        .into_iter()
        .filter_map(|is_v6| parsed.iter().find(|ip| ip.is_ipv6() == is_v6))
        .map(ToString::to_string)
        .collect()
}
