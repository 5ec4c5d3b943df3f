//! The plain values a runtime is asked with. No logic: shapes only, mirrored by the CRI adapter.

use std::{collections::BTreeMap, path::PathBuf};

pub use ferrolet_resources::LinuxResources;
use ferrolet_types::{ContainerName, PodKey, PodUid};

/// A pod sandbox to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSpec {
    /// Whose it is.
    pub uid: PodUid,
    /// The pod's namespace and name.
    pub key: PodKey,
    /// Counts the sandboxes of this pod, from 0.
    pub attempt: u32,
    /// Empty for host network.
    pub hostname: String,
    /// The directory that container logs go to.
    pub log_directory: PathBuf,
    /// Name resolution inside the pod.
    pub dns: DnsSpec,
    /// Ports of the node that lead into the pod.
    pub port_mappings: Vec<PortMapping>,
    /// Labels of the sandbox.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the sandbox.
    pub annotations: BTreeMap<String, String>,
    /// Parent cgroup in the driver's notation.
    pub cgroup_parent: String,
    /// Kernel parameters of the pod's namespaces.
    pub sysctls: BTreeMap<String, String>,
    /// Users, namespaces and profiles of the sandbox.
    pub security: SecuritySpec,
    /// Sum of the containers' resources.
    pub resources: LinuxResources,
    /// The runtime class's declared cost, if any.
    pub overhead: LinuxResources,
    /// The runtime class's handler; empty for the default.
    pub runtime_handler: String,
}

/// A container to be made inside a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Its name in the pod.
    pub name: ContainerName,
    /// Equals the restart count.
    pub attempt: u32,
    /// The image, as the image service resolved it.
    pub image_ref: String,
    /// The image, as the pod names it.
    pub image: String,
    /// Replaces the image's entry point when not empty.
    pub command: Vec<String>,
    /// Replaces the image's arguments when not empty.
    pub args: Vec<String>,
    /// Working directory; the image's when empty.
    pub working_dir: String,
    /// Environment, in order.
    pub env: Vec<(String, String)>,
    /// Bind mounts and image mounts, in order.
    pub mounts: Vec<Mount>,
    /// Devices from plugins.
    pub devices: Vec<Device>,
    /// Devices by CDI name.
    pub cdi_devices: Vec<String>,
    /// Labels of the container.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the container.
    pub annotations: BTreeMap<String, String>,
    /// Log file, relative to the sandbox's log directory.
    pub log_path: String,
    /// Keeps standard input open.
    pub stdin: bool,
    /// Closes standard input after the first attach.
    pub stdin_once: bool,
    /// Gives the process a terminal.
    pub tty: bool,
    /// Bounds enforced by cgroups.
    pub resources: LinuxResources,
    /// Users, namespaces and profiles.
    pub security: SecuritySpec,
    /// Signal that asks it to stop, by name; the image's when absent.
    pub stop_signal: Option<String>,
}

/// Name resolution.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DnsSpec {
    /// Name servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Resolver options.
    pub options: Vec<String>,
}

/// One port of the node that leads into the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: &'static str,
    /// Port inside.
    pub container_port: i32,
    /// Port on the node; 0 for none.
    pub host_port: i32,
    /// Address on the node; empty for all.
    pub host_ip: String,
}

/// A mount of a container.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Mount {
    /// Where it appears.
    pub container_path: String,
    /// Where it comes from; empty for an image mount.
    pub host_path: String,
    /// Not writable through this mount.
    pub read_only: bool,
    /// Not writable in nested mounts either.
    pub recursive_read_only: bool,
    /// To be relabelled for SELinux.
    pub selinux_relabel: bool,
    /// Whether mounts travel through it.
    pub propagation: Propagation,
    /// Id mappings of the mount, for user namespaces.
    pub uid_mappings: Vec<IdMapping>,
    /// The same for groups.
    pub gid_mappings: Vec<IdMapping>,
    /// An image to be mounted instead of a directory.
    pub image: Option<MountedImage>,
    /// Path inside that image.
    pub image_sub_path: String,
}

/// An image that is mounted, as the runtime knows it and as the pod's owner wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MountedImage {
    /// The runtime's id of it.
    pub id: String,
    /// The reference in the pod's specification.
    pub named: String,
    /// The handler that the pod runs with; empty for the default.
    pub runtime_handler: String,
    /// The pod's annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Whether mounts travel between node and container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Propagation {
    /// Neither way.
    #[default]
    Private,
    /// From the node into the container.
    HostToContainer,
    /// Both ways.
    Bidirectional,
}

/// A device node handed to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Path inside.
    pub container_path: String,
    /// Path on the node.
    pub host_path: String,
    /// `r`, `w`, `m` in any combination.
    pub permissions: String,
}

/// Whose namespaces are shared, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaces {
    /// Network.
    pub network: NamespaceMode,
    /// Process ids.
    pub pid: NamespaceMode,
    /// Interprocess communication.
    pub ipc: NamespaceMode,
    /// The container whose process namespace is joined, for `NamespaceMode::Target`.
    pub target: String,
    /// Id mappings of the pod's own user namespace; empty when it uses the node's.
    pub user_mappings: Vec<IdMapping>,
}

/// Whose namespace of one kind is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NamespaceMode {
    /// One for the whole pod.
    #[default]
    Pod,
    /// One per container.
    Container,
    /// The node's.
    Node,
    /// Another container's.
    Target,
}

/// A run of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMapping {
    /// First id on the node.
    pub host_id: u32,
    /// First id inside.
    pub container_id: u32,
    /// How many.
    pub length: u32,
}

/// Users, capabilities, namespaces and profiles; for a sandbox the container-only parts stay empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecuritySpec {
    /// Full access to the node.
    pub privileged: bool,
    /// Namespaces.
    pub namespaces: Namespaces,
    /// User id.
    pub run_as_user: Option<i64>,
    /// User name from the image, when it has no number.
    pub run_as_username: String,
    /// Group id.
    pub run_as_group: Option<i64>,
    /// Supplementary groups.
    pub supplemental_groups: Vec<i64>,
    /// Whether the image's groups count too.
    pub supplemental_groups_policy: SupplementalGroupsPolicy,
    /// Root file system cannot be written.
    pub read_only_root: bool,
    /// The process cannot gain privileges.
    pub no_new_privileges: bool,
    /// Capabilities added.
    pub add_capabilities: Vec<String>,
    /// Capabilities dropped.
    pub drop_capabilities: Vec<String>,
    /// System call filter.
    pub seccomp: SeccompProfile,
    /// AppArmor profile.
    pub apparmor: Option<SeccompProfile>,
    /// SELinux label.
    pub selinux: Option<SelinuxLabel>,
    /// Paths hidden from the container.
    pub masked_paths: Vec<String>,
    /// Paths the container may only read.
    pub readonly_paths: Vec<String>,
}

/// Whether groups of the image's user are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SupplementalGroupsPolicy {
    /// Yes.
    #[default]
    Merge,
    /// Only what the pod names.
    Strict,
}

/// A security profile: by default, none, or one on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeccompProfile {
    /// The runtime's own.
    RuntimeDefault,
    /// No filter.
    Unconfined,
    /// A file (seccomp) or loaded profile name (AppArmor) on the node.
    Localhost(String),
}

/// The parts of an SELinux label.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SelinuxLabel {
    /// User part.
    pub user: String,
    /// Role part.
    pub role: String,
    /// Type part.
    pub kind: String,
    /// Level part.
    pub level: String,
}
