//! A container to start, from CRI's description of it.
//!
//! ```text
//!  ContainerConfig ─┐
//!  ImageFacts      ─┼─► container ─► LaunchSpec, whole: nobody decides anything after this
//!  facts of the node┘
//! ```

use std::collections::BTreeMap;

use ferrolet_cri_proto as cri;
use ferrolet_runtime_protocol::launch::{Device, LaunchSpec, Log, Root, Stdin};
use ferrolet_runtime_protocol::sandbox::PidShare;
use ferrolet_runtime_seccomp::Filter;

use crate::cgroups::{self, Hierarchies, Limits};
use crate::devices::{ALL, Access, DeviceRule, Kind};
use crate::refusal::Refusal;
use crate::{defaults, mounts, process, sandbox};

/// What an image says of its containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// `NAME=value`.
    pub env: Vec<String>,
    /// What is executed.
    pub entrypoint: Vec<String>,
    /// Its default arguments.
    pub cmd: Vec<String>,
    /// `USER[:GROUP]`.
    pub user: String,
    /// Where it begins.
    pub working_dir: String,
    /// Directories of its layers, the uppermost first.
    pub layers: Vec<String>,
}

/// A device of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDevice {
    /// Its path on the node.
    pub path: String,
    /// A block device, not a character device.
    pub is_block: bool,
    /// Its major number.
    pub major: u32,
    /// Its minor number.
    pub minor: u32,
    /// Its permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Where a container is put, and what is known about the place.
#[derive(Debug, Clone, Copy)]
pub struct ContainerPlace<'a> {
    /// The container's id.
    pub id: &'a str,
    /// Its pod, as it was asked for.
    pub sandbox: &'a cri::PodSandboxConfig,
    /// The directory of the pod's own files.
    pub sandbox_directory: &'a str,
    /// The pod's name for its machine.
    pub hostname: &'a str,
    /// The directory of the container's changes.
    pub upper: &'a str,
    /// The overlay's own directory beside it.
    pub work: &'a str,
    /// Its image.
    pub image: &'a ImageFacts,
    /// The node's control groups.
    pub hierarchies: &'a Hierarchies,
    /// The group above the pod's, where the request names none.
    pub cgroup_parent: &'a str,
    /// The node's devices that the request names, or all of them for a privileged container.
    pub devices: &'a [NodeDevice],
    /// The filter of the profile that [`crate::seccomp_profile`] says; none: no profile is asked for.
    pub seccomp: Option<&'a Filter>,
}

impl ContainerPlace<'_> {
    /// Whether the pod has users of its own.
    pub(crate) fn has_users(&self) -> Result<bool, Refusal> {
        let namespaces = sandbox::namespaces(self.sandbox);
        Ok(sandbox::id_maps(namespaces.userns_options.as_ref())?.is_some())
    }
}

/// What its monitor launches. `volumes` are the layers of images that are mounted, by the mount's
/// place in the request.
///
/// # Errors
///
/// When the request makes no sense, or asks for what this runtime does not do.
pub fn container(
    config: &cri::ContainerConfig,
    place: ContainerPlace<'_>,
    volumes: &BTreeMap<usize, Vec<String>>,
) -> Result<LaunchSpec, Refusal> {
    let security = process::security(config);
    // Whoever read the vendors' files has made them parts of the request ([`crate::cdi`]).
    if !config.cdi_devices.is_empty() {
        return Err(Refusal::Unsupported("a CDI device"));
    }
    let log = log_path(config, place.sandbox);
    if log.as_ref().is_some_and(|it| it.split('/').any(|part| part == "..")) {
        return Err(Refusal::Unsupported("a log path that leads upwards"));
    }
    let has_users = place.has_users()?;
    let (pid, pid_target) = processes(&security);
    let (masked_paths, readonly_paths) = hidden(&security, &place, has_users);
    let (devices, rules) = devices(config, &place, has_users)?;
    let parent = sandbox::cgroup_parent(place.sandbox, place.cgroup_parent);
    let limits = Limits { devices: rules, ..limits(&process::resources(config)) };
    let is_v2 = matches!(place.hierarchies, Hierarchies::V2 { .. });
    Ok(LaunchSpec {
        container: place.id.to_owned(),
        process: Some(process::process(config, &place)?),
        root: Some(Root {
            layers: place.image.layers.clone(),
            upper: place.upper.to_owned(),
            work: place.work.to_owned(),
            readonly: security.readonly_rootfs,
            idmap: has_users,
            ..Root::default()
        }),
        mounts: mounts::mounts(config, &place, volumes)?,
        devices,
        masked_paths,
        readonly_paths,
        pid: pid.into(),
        pid_target,
        cgroups: Some(cgroups::plan(place.hierarchies, parent, place.id, &limits)),
        log: log.map(|path| Log { path, max_size: 0 }),
        stdin: match (config.stdin, config.stdin_once) {
            (false, _) => Stdin::None,
            (true, false) => Stdin::Open,
            (true, true) => Stdin::Once,
        }
        .into(),
        tty: config.tty,
        cgroup_namespace: is_v2 && !security.privileged,
    })
}

/// Where a container's output goes, if anywhere.
#[must_use]
pub fn log_path(config: &cri::ContainerConfig, sandbox: &cri::PodSandboxConfig) -> Option<String> {
    let directory = sandbox.log_directory.trim_end_matches('/');
    let is_wanted = !directory.is_empty() && !config.log_path.is_empty();
    is_wanted.then(|| format!("{directory}/{}", config.log_path.trim_start_matches('/')))
}

/// What a container may use, as CRI says it.
#[must_use]
pub fn limits(resources: &cri::LinuxContainerResources) -> Limits {
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    Limits {
        cpu_shares: positive(resources.cpu_shares),
        cpu_quota: resources.cpu_quota,
        cpu_period: positive(resources.cpu_period),
        memory: positive(resources.memory_limit_in_bytes),
        memory_and_swap: positive(resources.memory_swap_limit_in_bytes),
        cpus: resources.cpuset_cpus.clone(),
        memory_nodes: resources.cpuset_mems.clone(),
        pids: 0,
        huge_pages: resources
            .hugepage_limits
            .iter()
            .map(|it| (it.page_size.clone(), it.limit))
            .collect(),
        unified: resources.unified.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        devices: Vec::new(),
    }
}

fn processes(security: &cri::LinuxContainerSecurityContext) -> (PidShare, String) {
    let Some(options) = &security.namespace_options else {
        return (PidShare::Container, String::new());
    };
    match options.pid() {
        cri::NamespaceMode::Pod => (PidShare::Pod, String::new()),
        cri::NamespaceMode::Container => (PidShare::Container, String::new()),
        cri::NamespaceMode::Node => (PidShare::Node, String::new()),
        cri::NamespaceMode::Target => (PidShare::Target, options.target_id.clone()),
    }
}

/// Paths that are masked, and paths that cannot be written. A kubelet names them unless nothing is
/// to be hidden, which it asks for only with users of the pod's own.
fn hidden(
    security: &cri::LinuxContainerSecurityContext,
    place: &ContainerPlace<'_>,
    has_users: bool,
) -> (Vec<String>, Vec<String>) {
    if security.privileged {
        return (Vec::new(), Vec::new());
    }
    let is_said =
        has_users || !security.masked_paths.is_empty() || !security.readonly_paths.is_empty();
    let (masked, mut readonly) = if is_said {
        (security.masked_paths.clone(), security.readonly_paths.clone())
    } else {
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        (texts(&defaults::MASKED_PATHS), texts(&defaults::READONLY_PATHS))
    };
    if matches!(place.hierarchies, Hierarchies::V1 { .. }) {
        // Its trees are mounted in a directory that has to be writable until they are.
        readonly.push("/sys/fs/cgroup".to_owned());
    }
    (masked, readonly)
}

fn devices(
    config: &cri::ContainerConfig,
    place: &ContainerPlace<'_>,
    has_users: bool,
) -> Result<(Vec<Device>, Vec<DeviceRule>), Refusal> {
    let mut devices = defaults::devices();
    if has_users {
        devices.iter_mut().for_each(|it| it.host_path.clone_from(&it.path));
    }
    let mut add = |path: String, found: &NodeDevice| {
        devices.retain(|it| it.path != path);
        devices.push(Device {
            path,
            is_block: found.is_block,
            major: found.major,
            minor: found.minor,
            mode: found.mode & 0o777,
            uid: found.uid,
            gid: found.gid,
            host_path: if has_users { found.path.clone() } else { String::new() },
        });
    };
    if process::security(config).privileged {
        place.devices.iter().for_each(|it| add(it.path.clone(), it));
        let all = DeviceRule { kind: Kind::Any, major: None, minor: None, access: ALL };
        return Ok((devices, vec![all]));
    }
    let mut rules = defaults::device_rules();
    for asked in &config.devices {
        let access = access(asked)?;
        let below = format!("{}/", asked.host_path.trim_end_matches('/'));
        let named = place
            .devices
            .iter()
            .filter(|it| it.path == asked.host_path || it.path.starts_with(&below));
        for found in named {
            let rest = found.path.strip_prefix(&asked.host_path).unwrap_or_default();
            let path = format!("{}{rest}", asked.container_path);
            if !path.starts_with("/dev/") {
                return Err(Refusal::Unsupported("a device outside /dev"));
            }
            add(path, found);
            let kind = if found.is_block { Kind::Block } else { Kind::Character };
            let (major, minor) = (Some(found.major), Some(found.minor));
            rules.push(DeviceRule { kind, major, minor, access });
        }
    }
    Ok((devices, rules))
}

fn access(device: &cri::Device) -> Result<Access, Refusal> {
    let permissions = device.permissions.as_str();
    if permissions.is_empty() {
        return Ok(ALL);
    }
    if permissions.chars().any(|it| !"rwm".contains(it)) {
        let permissions = permissions.to_owned();
        return Err(Refusal::Permissions { path: device.host_path.clone(), permissions });
    }
    let has = |letter| permissions.contains(letter);
    Ok(Access { read: has('r'), write: has('w'), mknod: has('m') })
}

#[cfg(test)]
mod tests;
