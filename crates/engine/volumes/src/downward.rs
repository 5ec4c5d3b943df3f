//! The downward API in volumes: fields of the pod and amounts of its containers, as files. Pure.
//!
//! Fewer fields than in the environment: what changes during a pod's life (its addresses, its
//! phase) is not offered.

use std::collections::BTreeMap;

use ferrolet_resources::{Amounts, amount, container_limits, parse_amounts};
use ferrolet_spec::{go_quote, qualified_name_fault};
use ferrolet_types::{Quantity, pod::PodView as _};
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, Pod, ResourceFieldSelector};

/// Resources that the node stands in for where a container has no limit.
const DEFAULTED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The content of one file.
pub(crate) fn content(
    pod: &Pod,
    file: &DownwardAPIVolumeFile,
    allocatable: &Amounts,
) -> Result<String, String> {
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), _) => field_text(pod, &field.field_path),
        (None, Some(reference)) => resource_text(pod, reference, allocatable),
        (None, None) => Ok(String::new()),
    }
}

fn field_text(pod: &Pod, path: &str) -> Result<String, String> {
    if let Some((map, key)) = subscript(path) {
        let (values, fault) = match map {
            "metadata.annotations" => {
                (&pod.metadata.annotations, qualified_name_fault(&key.to_lowercase()))
            }
            "metadata.labels" => (&pod.metadata.labels, qualified_name_fault(key)),
            _ => return Err(format!("fieldPath {path:?} does not support subscript")),
        };
        if let Some(fault) = fault {
            return Err(format!("invalid key subscript in {path}: {fault}"));
        }
        let value = values.as_ref().and_then(|values| values.get(key));
        return Ok(value.cloned().unwrap_or_default());
    }
    let key = pod.key();
    match path {
        "metadata.annotations" => Ok(listed(pod.metadata.annotations.as_ref())),
        "metadata.labels" => Ok(listed(pod.metadata.labels.as_ref())),
        "metadata.name" => Ok(key.name.to_string()),
        "metadata.namespace" => Ok(key.namespace.to_string()),
        "metadata.uid" => Ok(pod.uid().as_str().to_owned()),
        _ => Err(format!("unsupported fieldPath: {path}")),
    }
}

fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

fn listed(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten();
    let lines = lines.map(|(key, value)| format!("{key}={}", go_quote(value)));
    lines.collect::<Vec<_>>().join("\n")
}

fn resource_text(
    pod: &Pod,
    reference: &ResourceFieldSelector,
    allocatable: &Amounts,
) -> Result<String, String> {
    let name = reference.container_name.as_deref().unwrap_or_default();
    let (_, container) =
        pod.find_container(name).ok_or_else(|| format!("container {name} not found"))?;
    let unsupported = || format!("unsupported container resource : {}", reference.resource);
    let (list, resource) = reference.resource.split_once('.').ok_or_else(unsupported)?;
    if !DEFAULTED.contains(&resource) && !resource.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let amounts = match list {
        "limits" => {
            let mut limits = container_limits(container);
            for name in DEFAULTED {
                let nodes = allocatable.get(name).copied().unwrap_or(Quantity::ZERO);
                let limit = limits.entry(name.to_owned()).or_insert(Quantity::ZERO);
                if limit.is_zero() {
                    *limit = nodes;
                }
            }
            limits
        }
        "requests" => {
            let resources = container.resources.as_ref();
            parse_amounts(resources.and_then(|it| it.requests.as_ref()))
        }
        _ => return Err(unsupported()),
    };
    let divisor = reference.divisor.as_ref();
    let divisor = divisor
        .and_then(|text| Quantity::parse(&text.0).ok())
        .filter(|divisor| !divisor.is_zero())
        .unwrap_or(Quantity::from_value(1));
    let found = amount(&amounts, resource);
    let (amount, unit) = match resource {
        "cpu" => (found.milli(), divisor.milli()),
        _ => (found.value(), divisor.value()),
    };
    let unit = unit.max(1);
    Ok((amount / unit + i64::from(amount % unit > 0)).to_string())
}
