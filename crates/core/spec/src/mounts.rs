//! The mounts and block devices of a container, in upstream's order: plugins, volumes, hosts file,
//! termination log.
//!
//! In: a container and where its pod's volumes stand. Out: [`Mount`]s. Refuses: resolving a
//! sub-path on disk, since a pod could point it anywhere; the caller prepares each (see
//! [`sub_paths`]) and hands in the safe path by mount index.

use std::collections::BTreeMap;

use ferrolet_types::pod::PodView as _;
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use crate::{
    ContainerInputs, Device, Mount, Propagation, VolumeSource, expand::expand_strictly,
    labels::termination_message_path,
};

const HOSTS: &str = "/etc/hosts";

/// Why a container's mounts cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what the variants are")]
pub enum MountError {
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    VolumeMissing { volume: String, container: String },
    #[error("cannot find volume {volume:?} to pass into container {container:?}")]
    DeviceMissing { volume: String, container: String },
    #[error("error DevicePath `{0}` must be an absolute path")]
    DevicePathRelative(String),
    #[error("missing value for {0}")]
    SubPathVariable(String),
    #[error("error SubPath `{0}` must not be an absolute path")]
    SubPathAbsolute(String),
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    SubPathBackstep(String),
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    SubPathUnprepared { volume: String, container: String },
    #[error("invalid MountPropagation mode: {0:?}")]
    PropagationMode(String),
    #[error("failed to resolve recursive read-only mode: {0}")]
    RecursiveReadOnly(String),
}

/// The sub-paths that a container mounts, by index of the volume mount: expanded, relative, without
/// steps back.
///
/// Sub-paths of image volumes are the runtime's to resolve, but are checked and listed all the
/// same.
pub fn sub_paths(
    container: &Container,
    env: &[(String, String)],
) -> Result<BTreeMap<usize, String>, MountError> {
    let mounts = container.volume_mounts.iter().flatten().enumerate();
    let found = mounts.map(|(index, mount)| Ok(sub_path(mount, env)?.map(|path| (index, path))));
    found.filter_map(Result::transpose).collect()
}

pub(crate) fn container_mounts(
    pod: &Pod,
    container: &Container,
    env: &[(String, String)],
    inputs: &ContainerInputs<'_>,
) -> Result<Vec<Mount>, MountError> {
    let mut mounts = inputs.plugins.mounts.clone();
    let relative = sub_paths(container, env)?;
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let volume = inputs.volumes.get(&mount.name).ok_or_else(|| MountError::VolumeMissing {
            volume: mount.name.clone(),
            container: container.name.clone(),
        })?;
        let sub_path = relative.get(&index);
        let prepared = inputs.sub_paths.get(&index);
        if sub_path.is_some() && volume.image.is_none() && prepared.is_none() {
            return Err(MountError::SubPathUnprepared {
                volume: mount.name.clone(),
                container: container.name.clone(),
            });
        }
        mounts.push(volume_mount(mount, volume, sub_path, prepared, inputs)?);
    }
    mounts.extend(hosts_mount(pod, container, inputs));
    if let Some(file) = inputs.termination_log {
        mounts.push(Mount {
            container_path: absolute(termination_message_path(container)),
            host_path: file.display().to_string(),
            selinux_relabel: inputs.settings.is_selinux_enabled,
            ..Mount::default()
        });
    }
    for mount in &mut mounts {
        mount.uid_mappings = inputs.user_mappings.to_vec();
        mount.gid_mappings = inputs.user_mappings.to_vec();
    }
    Ok(mounts)
}

pub(crate) fn container_devices(
    container: &Container,
    inputs: &ContainerInputs<'_>,
) -> Result<Vec<Device>, MountError> {
    let mut devices = inputs.plugins.devices.clone();
    for device in container.volume_devices.iter().flatten() {
        if !device.device_path.starts_with('/') {
            return Err(MountError::DevicePathRelative(device.device_path.clone()));
        }
        let volume = inputs.volumes.get(&device.name);
        let link = volume.and_then(|volume| Some((volume, volume.device.clone()?)));
        let (volume, host_path) = link.ok_or_else(|| MountError::DeviceMissing {
            volume: device.name.clone(),
            container: container.name.clone(),
        })?;
        devices.push(Device {
            container_path: device.device_path.clone(),
            host_path,
            permissions: if volume.is_read_only { "r" } else { "mrw" }.to_owned(),
        });
    }
    Ok(devices)
}

fn sub_path(mount: &VolumeMount, env: &[(String, String)]) -> Result<Option<String>, MountError> {
    let expression = mount.sub_path_expr.as_deref().filter(|e| !e.is_empty());
    let path = match expression {
        None => mount.sub_path.clone().unwrap_or_default(),
        Some(expression) => expand_strictly(expression, |name| crate::env::last_value(env, name))
            .map_err(|missing| {
            let names: Vec<String> = missing.into_iter().collect();
            MountError::SubPathVariable(names.join(", "))
        })?,
    };
    if path.is_empty() {
        return Ok(None);
    }
    if path.starts_with('/') {
        return Err(MountError::SubPathAbsolute(path));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(MountError::SubPathBackstep(path));
    }
    Ok(Some(path))
}

fn volume_mount(
    mount: &VolumeMount,
    volume: &VolumeSource,
    sub_path: Option<&String>,
    prepared: Option<&String>,
    inputs: &ContainerInputs<'_>,
) -> Result<Mount, MountError> {
    let is_image = volume.image.is_some();
    let host_path = prepared.filter(|_| sub_path.is_some()).unwrap_or(&volume.host_path);
    Ok(Mount {
        container_path: absolute(&mount.mount_path),
        host_path: if is_image { String::new() } else { host_path.clone() },
        read_only: mount.read_only.unwrap_or(false) || volume.is_read_only,
        recursive_read_only: recursive_read_only(mount, inputs.supports_recursive_read_only)?,
        selinux_relabel: volume.selinux_relabel && inputs.settings.is_selinux_enabled,
        propagation: propagation(mount)?,
        image: volume.image.clone(),
        image_sub_path: sub_path.filter(|_| is_image).cloned().unwrap_or_default(),
        ..Mount::default()
    })
}

fn hosts_mount(pod: &Pod, container: &Container, inputs: &ContainerInputs<'_>) -> Option<Mount> {
    let file = inputs.hosts_file?;
    let mut own = container.volume_mounts.iter().flatten();
    let has_name = !inputs.pod_ips.is_empty() || pod.is_host_network();
    if !has_name || own.any(|mount| mount.mount_path == HOSTS) {
        return None;
    }
    Some(Mount {
        container_path: HOSTS.to_owned(),
        host_path: file.display().to_string(),
        selinux_relabel: inputs.settings.is_selinux_enabled,
        ..Mount::default()
    })
}

fn propagation(mount: &VolumeMount) -> Result<Propagation, MountError> {
    match mount.mount_propagation.as_deref() {
        None | Some("None") => Ok(Propagation::Private),
        Some("HostToContainer") => Ok(Propagation::HostToContainer),
        Some("Bidirectional") => Ok(Propagation::Bidirectional),
        Some(other) => Err(MountError::PropagationMode(other.to_owned())),
    }
}

fn recursive_read_only(mount: &VolumeMount, is_supported: bool) -> Result<bool, MountError> {
    let name = &mount.name;
    let refuse = |why: String| Err(MountError::RecursiveReadOnly(why));
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    if mount.read_only != Some(true) {
        return refuse(format!(
            "volume {name:?} requested recursive read-only mode, but it is not read-only"
        ));
    }
    if let Some(other) = mount.mount_propagation.as_deref().filter(|m| *m != "None") {
        return refuse(format!(
            "volume {name:?} requested recursive read-only mode, but it is not compatible with propagation {other:?}"
        ));
    }
    match (mode, is_supported) {
        ("IfPossible", is_supported) => Ok(is_supported),
        ("Enabled", true) => Ok(true),
        ("Enabled", false) => refuse(format!(
            "volume {name:?} requested recursive read-only mode, but it is not supported by the runtime"
        )),
        (other, _) => refuse(format!("unknown recursive read-only mode {other:?}")),
    }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    format!("/{path}")
}

#[cfg(test)]
#[path = "mounts_tests.rs"]
mod tests;
