//! Everything from outside that a sandbox or a container is made from: facts of the node, paths
//! prepared by others, objects already fetched. Plain values; whoever fills them has done the I/O.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ferrolet_node::NodeState;
use ferrolet_resources::{
    CgroupMode, CgroupPolicy, NodeResources, QuotaMode, SwapBehavior, SwapPolicy,
};
use ferrolet_types::ContainerId;

use crate::{Device, EnvObjects, IdMapping, Mount, MountedImage, NodeDns};

/// How pods are made on this node. Fixed while the agent runs.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecSettings {
    /// Size, cgroups, swap and huge pages.
    pub resources: NodeResources,
    /// Where localhost seccomp profiles lie (`<root>/seccomp`).
    pub seccomp_root: PathBuf,
    /// Containers without a profile get the runtime's (`seccompDefault`).
    pub is_seccomp_default: bool,
    /// The kernel labels files.
    pub is_selinux_enabled: bool,
    /// Paths hidden besides the usual ones: `/sys/devices/system/cpu/cpuN/thermal_throttle` for
    /// every possible CPU that has one.
    pub extra_masked_paths: Vec<String>,
    /// Containers may choose the signal that stops them (gate `ContainerStopSignals`).
    pub has_stop_signals: bool,
    /// Kernel parameters that pods get unless they say otherwise (`defaultPodSysctls`).
    pub default_sysctls: BTreeMap<String, String>,
}

impl SpecSettings {
    /// A small node on cgroup v1, for examples and tests.
    pub fn example() -> Self {
        Self {
            resources: NodeResources {
                cgroup_mode: CgroupMode::V1,
                cgroups: CgroupPolicy::default(),
                memory_capacity: 8 << 30,
                swap: SwapPolicy {
                    is_controlled: true,
                    behavior: SwapBehavior::NoSwap,
                    capacity: 0,
                },
                huge_page_sizes: Vec::new(),
                single_process_oom_kill: true,
            },
            seccomp_root: PathBuf::from("/var/lib/kubelet/seccomp"),
            is_seccomp_default: false,
            is_selinux_enabled: false,
            extra_masked_paths: Vec::new(),
            has_stop_signals: false,
            default_sysctls: BTreeMap::new(),
        }
    }
}

/// What a sandbox is made from besides its pod.
#[derive(Clone, Debug)]
pub struct SandboxInputs<'a> {
    /// How pods are made here.
    pub settings: &'a SpecSettings,
    /// Name resolution; the resolver's file is read anew for every sandbox.
    pub dns: &'a NodeDns,
    /// Counts the sandboxes of this pod.
    pub attempt: u32,
    /// The pod's cgroup in the driver's notation.
    pub cgroup_parent: String,
    /// Where container logs go.
    pub log_directory: PathBuf,
    /// The runtime class's handler; empty for the default.
    pub runtime_handler: String,
    /// Ids of the pod's own user namespace; empty when it uses the node's.
    pub user_mappings: Vec<IdMapping>,
    /// Groups that persistent volumes ask for.
    pub extra_groups: Vec<i64>,
}

/// What a container is made from besides its pod.
#[derive(Clone, Debug)]
pub struct ContainerInputs<'a> {
    /// How pods are made here.
    pub settings: &'a SpecSettings,
    /// The node: its addresses, and what stands in for missing limits in the downward API.
    pub node: &'a NodeState,
    /// Config maps, secrets, services and files that the environment reads.
    pub objects: &'a EnvObjects,
    /// Where the pod's volumes stand, by name.
    pub volumes: &'a BTreeMap<String, VolumeSource>,
    /// Prepared sub-paths by index of the volume mount. Preparing needs I/O: [`crate::sub_paths`]
    /// says what to prepare.
    pub sub_paths: &'a BTreeMap<usize, String>,
    /// How often the container was restarted; names its log.
    pub restart_count: u32,
    /// How many made before it never ran and still hold a name: each moves the runtime's own count
    /// by one.
    pub n_left_behind: u32,
    /// Failures in a row before this start, kept with the container so that back-off survives us; 0
    /// leaves no trace.
    pub crash_streak: u32,
    /// The image, as the image service resolved it.
    pub image_ref: String,
    /// Who the image runs as.
    pub image_user: ImageUser,
    /// Addresses of the sandbox; empty for host network.
    pub pod_ips: &'a [String],
    /// The pod's hosts file; `None` mounts none.
    pub hosts_file: Option<&'a Path>,
    /// A fresh file for the termination message; `None` mounts none.
    pub termination_log: Option<&'a Path>,
    /// The container whose processes an ephemeral one is to see.
    pub target: Option<&'a ContainerId>,
    /// Ids of the pod's own user namespace; empty when it uses the node's.
    pub user_mappings: &'a [IdMapping],
    /// Groups that persistent volumes ask for.
    pub extra_groups: &'a [i64],
    /// The runtime handler can make nested mounts read-only.
    pub supports_recursive_read_only: bool,
    /// What device plugins and DRA add.
    pub plugins: PluginResources,
    /// Whether the container owns its CPUs.
    pub quota: QuotaMode,
}

/// Where a volume of the pod stands.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct VolumeSource {
    /// Directory or file on the node.
    pub host_path: String,
    /// Cannot be written, whatever a container asks for.
    pub is_read_only: bool,
    /// To be relabelled for SELinux.
    pub selinux_relabel: bool,
    /// An image to be mounted instead of a path.
    pub image: Option<MountedImage>,
    /// The link to a raw block device, for volumes in block mode.
    pub device: Option<String>,
}

/// Who an image says it runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageUser {
    /// A number; an image that says nothing runs as 0.
    Id(i64),
    /// A name that only the image can resolve.
    Name(String),
}

/// What plugins add to a container.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PluginResources {
    /// Environment, before the container's own.
    pub env: Vec<(String, String)>,
    /// Mounts, before the container's own.
    pub mounts: Vec<Mount>,
    /// Device nodes.
    pub devices: Vec<Device>,
    /// Devices by CDI name.
    pub cdi_devices: Vec<String>,
    /// Annotations; ours win.
    pub annotations: BTreeMap<String, String>,
}
