//! Rules for volumes: one known source each, names that fit, paths that stay where they belong.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSpec, Volume};
use serde_json::Value;

use super::{Faults, names, text};
use crate::fault::Fault;

const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
];

/// Checks the volumes and answers with their names.
pub(super) fn validate(spec: &PodSpec, faults: &mut Faults) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let path = format!("spec.volumes[{index}]");
        faults.check_name(&format!("{path}.name"), &volume.name, names::label);
        if !seen.insert(volume.name.clone()) && !volume.name.is_empty() {
            faults.push(Fault::duplicate(format!("{path}.name"), &volume.name));
        }
        validate_source(&path, volume, faults);
    }
    seen
}

fn validate_source(path: &str, volume: &Volume, faults: &mut Faults) {
    let sources = source_names(volume);
    if let [_, second, ..] = sources.as_slice() {
        let why = format!("a volume has one source, this has {}", sources.join(" and "));
        faults.push(Fault::forbidden(format!("{path}.{second}"), &why));
    }
    if let Some(host_path) = &volume.host_path {
        if host_path.path.is_empty() {
            faults.push(Fault::required(format!("{path}.hostPath.path")));
        }
        check_no_backsteps(&format!("{path}.hostPath.path"), &host_path.path, faults);
        faults.check_word(
            format!("{path}.hostPath.type"),
            text(&host_path.type_),
            &HOST_PATH_TYPES,
        );
    }
    if let Some(limit) = volume.empty_dir.as_ref().and_then(|it| it.size_limit.as_ref()) {
        let path = format!("{path}.emptyDir.sizeLimit");
        super::resources::validate_amount(&path, "memory", limit, faults);
    }
    if let Some(downward_api) = &volume.downward_api {
        let files = downward_api.items.iter().flatten();
        for (number, file) in files.enumerate() {
            let path = format!("{path}.downwardAPI.items[{number}].path");
            check_relative(&path, &file.path, faults);
        }
    }
    if let Some(nfs) = &volume.nfs {
        if nfs.server.is_empty() {
            faults.push(Fault::required(format!("{path}.nfs.server")));
        }
        if !nfs.path.starts_with('/') {
            let rule = "must be an absolute path";
            faults.push(Fault::invalid(format!("{path}.nfs.path"), &nfs.path, rule));
        }
    }
    if volume.image.as_ref().is_some_and(|image| text(&image.reference).is_empty()) {
        faults.push(Fault::required(format!("{path}.image.reference")));
    }
}

/// The JSON names of the sources that a volume has.
pub(super) fn source_names(volume: &Volume) -> Vec<String> {
    match serde_json::to_value(volume) {
        Ok(Value::Object(fields)) => {
            fields.into_iter().map(|(name, _)| name).filter(|name| name != "name").collect()
        }
        _ => Vec::new(),
    }
}

/// A path inside a volume: relative and without steps back.
pub(super) fn check_relative(path: &str, target: &str, faults: &mut Faults) {
    if target.is_empty() {
        faults.push(Fault::required(path));
    }
    if target.starts_with('/') {
        faults.push(Fault::invalid(path, target, "must be a relative path"));
    }
    check_no_backsteps(path, target, faults);
}

fn check_no_backsteps(path: &str, target: &str, faults: &mut Faults) {
    if target.split('/').any(|part| part == "..") {
        faults.push(Fault::invalid(path, target, "must not contain '..'"));
    }
}
