//! Devices by CDI: what vendors' files say of a device, and what a container gets by it.
//!
//! ```text
//!  files of /etc/cdi and /var/run/cdi ─► Catalogue ─ names of a request ─► Edits
//!                                                 Edits ─ before ─► request, then planned as any other
//!                                                       ─ after ──► the plan: owners, groups, flags of mounts
//! ```
//!
//! A file is any vendor's, so it is bounded and read strictly: a field that is not known here is a thing that the
//! container would lack. Refused: hooks, which are programs of the vendor's run by the runtime; network devices; RDT.
//! Devices are taken by the request's own field only, never by annotations (CVE-2024-8676).

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_cri_proto as cri;
use ferrolet_runtime_protocol::launch::{LaunchSpec, User};
use serde::Deserialize;

use crate::refusal::Refusal;

/// The largest file that is read.
pub const MAX_DOCUMENT: usize = 4 << 20;
/// How deep a document may be nested, and how many parts it may have.
const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 500_000;
/// Owners and groups that the kernel has.
const MAX_ID: u32 = i32::MAX as u32;

/// One vendor's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(rename = "cdiVersion")]
    _version: String,
    kind: String,
    #[serde(default, rename = "annotations")]
    _annotations: BTreeMap<String, String>,
    #[serde(default)]
    devices: Vec<NamedDevice>,
    #[serde(default)]
    container_edits: RawEdits,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NamedDevice {
    name: String,
    #[serde(default, rename = "annotations")]
    _annotations: BTreeMap<String, String>,
    #[serde(default)]
    container_edits: RawEdits,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawEdits {
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    device_nodes: Vec<DeviceNode>,
    #[serde(default)]
    mounts: Vec<BindMount>,
    #[serde(default)]
    additional_gids: Vec<u32>,
    #[serde(default)]
    hooks: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    net_devices: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    intel_rdt: Option<serde::de::IgnoredAny>,
}

/// A device's node in the container.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeviceNode {
    path: String,
    #[serde(default)]
    host_path: String,
    /// What the node's own file says counts.
    #[serde(default, rename = "type")]
    _kind: String,
    #[serde(default, rename = "major")]
    _major: i64,
    #[serde(default, rename = "minor")]
    _minor: i64,
    #[serde(default)]
    file_mode: Option<u32>,
    #[serde(default)]
    permissions: String,
    #[serde(default)]
    uid: Option<u32>,
    #[serde(default)]
    gid: Option<u32>,
}

/// Something of the node's that the container sees.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BindMount {
    host_path: String,
    container_path: String,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default, rename = "type")]
    kind: String,
}

/// Devices that a request names and no file has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unresolvable CDI devices {}{}", names.join(", "), told(problems))]
pub struct UnknownDevices {
    /// As the request names them.
    pub names: Vec<String>,
    /// Files that cannot be read, which may be why.
    pub problems: Vec<String>,
}

fn told(problems: &[String]) -> String {
    problems.iter().map(|it| format!("; {it}")).collect()
}

/// Everything that vendors' files say.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// The edits of each document, for all its devices.
    documents: Vec<RawEdits>,
    /// Qualified names, `vendor/class=name`: the device's document and edits; none: two files of one directory have it.
    devices: BTreeMap<String, Option<(usize, RawEdits)>>,
    problems: Vec<String>,
}

impl Catalogue {
    /// Takes the files of one directory, each with its name for people. Devices of a later directory replace those of
    /// an earlier one; two files of one directory with the same device leave nobody knows which.
    pub fn add_directory(&mut self, files: &[(String, Vec<u8>)]) {
        let mut added: BTreeSet<String> = BTreeSet::new();
        for (name, bytes) in files {
            let document = match parse(bytes) {
                Ok(document) => document,
                Err(problem) => {
                    self.problems.push(format!("{name}: {problem}"));
                    continue;
                }
            };
            let at = self.documents.len();
            self.documents.push(document.container_edits);
            for device in document.devices {
                let qualified = format!("{}={}", document.kind, device.name);
                if added.insert(qualified.clone()) {
                    self.devices.insert(qualified, Some((at, device.container_edits)));
                } else {
                    self.problems
                        .push(format!("{name}: device {qualified} is in another file too"));
                    self.devices.insert(qualified, None);
                }
            }
        }
    }

    /// What a container gets that names some devices.
    ///
    /// # Errors
    ///
    /// When a device is not there.
    pub fn edits(&self, names: &[String]) -> Result<Edits, UnknownDevices> {
        let find = |name: &String| self.devices.get(name).and_then(Option::as_ref);
        let missing: Vec<_> = names.iter().filter(|it| find(it).is_none()).cloned().collect();
        if !missing.is_empty() {
            return Err(UnknownDevices { names: missing, problems: self.problems.clone() });
        }
        let mut edits = Edits::default();
        let mut seen = BTreeSet::new();
        for (document, own) in names.iter().filter_map(find) {
            // What is said for all devices of a file is done once.
            if seen.insert(*document) {
                edits.0.extend(self.documents.get(*document).cloned());
            }
            edits.0.push(own.clone());
        }
        Ok(edits)
    }
}

fn parse(bytes: &[u8]) -> Result<Document, String> {
    if bytes.len() > MAX_DOCUMENT {
        return Err(format!("larger than {MAX_DOCUMENT} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let options = serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_total_scalar_bytes: MAX_DOCUMENT,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
        },
    };
    // JSON is YAML.
    let document: Document = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))?;
    let is_kind = document.kind.split_once('/').is_some_and(|(vendor, class)| {
        !vendor.is_empty() && !class.is_empty() && !class.contains(['/', '='])
    });
    if !is_kind {
        return Err(format!("kind {:?} is not a vendor and a class", document.kind));
    }
    Ok(document)
}

/// What a container gets by its devices, in order.
#[derive(Clone, Debug, Default)]
pub struct Edits(Vec<RawEdits>);

impl Edits {
    /// Before planning: variables, device nodes and mounts become parts of the request.
    ///
    /// # Errors
    ///
    /// When a device wants what this runtime does not do.
    pub fn before(&self, config: &mut cri::ContainerConfig) -> Result<(), Refusal> {
        for edits in &self.0 {
            if !edits.hooks.is_empty() {
                return Err(Refusal::Unsupported("a hook of a CDI device"));
            }
            if !edits.net_devices.is_empty() || edits.intel_rdt.is_some() {
                return Err(Refusal::Unsupported("a network device or a class of RDT by CDI"));
            }
            for variable in &edits.env {
                let Some((key, value)) = variable.split_once('=') else {
                    return Err(Refusal::Unsupported("a variable without a value by CDI"));
                };
                config.envs.push(cri::KeyValue { key: key.to_owned(), value: value.into() });
            }
            for node in &edits.device_nodes {
                config.devices.retain(|it| it.container_path != node.path);
                config.devices.push(cri::Device {
                    container_path: node.path.clone(),
                    host_path: node.source().to_owned(),
                    permissions: node.permissions.clone(),
                });
            }
            for mount in &edits.mounts {
                config.mounts.retain(|it| it.container_path != mount.container_path);
                config.mounts.push(mount.as_cri()?);
            }
        }
        Ok(())
    }

    /// After planning: what requests cannot say.
    ///
    /// # Errors
    ///
    /// When an owner or a group is out of range.
    pub fn after(&self, launch: &mut LaunchSpec) -> Result<(), Refusal> {
        let id = |what, id: u32| {
            if id <= MAX_ID { Ok(id) } else { Err(Refusal::Id { what, id: id.into() }) }
        };
        for edits in &self.0 {
            for node in &edits.device_nodes {
                for device in launch.devices.iter_mut().filter(|it| it.path == node.path) {
                    device.mode = node.file_mode.map_or(device.mode, |it| it & 0o777);
                    device.uid = id("owner of a device", node.uid.unwrap_or(device.uid))?;
                    device.gid = id("group of a device", node.gid.unwrap_or(device.gid))?;
                }
            }
            for mount in &edits.mounts {
                let has = |option: &str| mount.options.iter().any(|it| it == option);
                for planned in launch.mounts.iter_mut().filter(|it| it.target == mount.target()) {
                    planned.nosuid |= has("nosuid");
                    planned.nodev |= has("nodev");
                    planned.noexec |= has("noexec");
                }
            }
            let process = launch.process.get_or_insert_default();
            let user = process.user.get_or_insert_with(User::default);
            for group in &edits.additional_gids {
                // Group 0 is what vendors' tools write when they mean none.
                if *group > 0 && !user.supplemental_groups.contains(group) {
                    user.supplemental_groups.push(id("group of a device", *group)?);
                }
            }
        }
        Ok(())
    }
}

impl DeviceNode {
    fn source(&self) -> &str {
        if self.host_path.is_empty() { &self.path } else { &self.host_path }
    }
}

impl BindMount {
    fn target(&self) -> &str {
        self.container_path.trim_end_matches('/')
    }

    fn as_cri(&self) -> Result<cri::Mount, Refusal> {
        if !matches!(self.kind.as_str(), "" | "bind" | "none") {
            return Err(Refusal::Unsupported("a mount by CDI that is no bind mount"));
        }
        let mut mount = cri::Mount {
            container_path: self.container_path.clone(),
            host_path: self.host_path.clone(),
            ..Default::default()
        };
        for option in &self.options {
            match option.as_str() {
                "ro" => mount.readonly = true,
                "rslave" | "slave" => {
                    mount.propagation = cri::MountPropagation::PropagationHostToContainer.into();
                }
                "rshared" | "shared" => {
                    mount.propagation = cri::MountPropagation::PropagationBidirectional.into();
                }
                "rw" | "bind" | "rbind" | "private" | "rprivate" | "nosuid" | "nodev"
                | "noexec" | "suid" | "dev" | "exec" | "relatime" => {}
                _ => return Err(Refusal::Unsupported("an option of a mount by CDI")),
            }
        }
        Ok(mount)
    }
}

#[cfg(test)]
mod tests;
