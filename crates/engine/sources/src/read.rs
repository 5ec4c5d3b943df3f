//! The whole way of a manifest, from bytes to static pods of this node; pure.

use std::sync::Arc;

use ferrolet_types::SourcedPod;
use k8s_openapi::api::core::v1::Pod;

use crate::{
    Origin, canonical, defaults,
    fault::Fault,
    identity,
    manifest::{self, Expect, ManifestError},
    validate,
};

/// What a manifest gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Its pods, ready for the merge.
    pub pods: Vec<SourcedPod>,
    /// What its author should know, though it works.
    pub warnings: Vec<String>,
}

/// Reads a manifest found at `origin` on the node `node`: decoded, defaulted, named, validated.
pub fn read(bytes: &[u8], origin: Origin<'_>, node: &str) -> Result<Reading, ManifestError> {
    let (expect, name) = match origin {
        Origin::File(path) => (Expect::OnePod, path),
        Origin::Url(url) => (Expect::Pods, url),
    };
    let pods = manifest::decode(bytes, expect)?;
    let is_list = pods.len() > 1;
    let mut reading = Reading { pods: Vec::new(), warnings: Vec::new() };
    let mut faults = Vec::new();
    let origin_name: Arc<str> = name.into();
    for (index, mut pod) in pods.into_iter().enumerate() {
        let mut found = make_static(&mut pod, origin, node);
        if is_list {
            for fault in &mut found {
                fault.path = format!("items[{index}].{}", fault.path);
            }
        }
        faults.append(&mut found);
        reading.warnings.extend(validate::priority_warning(&pod).map(str::to_owned));
        reading.pods.push(SourcedPod { origin: origin_name.clone(), pod: Arc::new(pod) });
    }
    if faults.is_empty() { Ok(reading) } else { Err(ManifestError::Faults(faults)) }
}

fn make_static(pod: &mut Pod, origin: Origin<'_>, node: &str) -> Vec<Fault> {
    if pod.metadata.name.as_deref().unwrap_or_default().is_empty() {
        return vec![Fault::required("metadata.name")];
    }
    defaults::apply(pod);
    identity::assign(pod, node, origin);
    let mut faults = validate::validate(pod);
    faults.extend(validate::references(pod));
    canonical::canonicalize(pod);
    faults
}
