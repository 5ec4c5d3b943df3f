//! What is mounted in a container: the kernel's file systems, the pod's own files, its volumes.

use std::collections::BTreeMap;

use ferrolet_cri_proto as cri;
use ferrolet_runtime_protocol::launch::{
    Kernel, Layers, Mount, Propagation, Readonly, Source, Tmpfs,
};

use crate::cgroups::{self, Hierarchies};
use crate::container::ContainerPlace;
use crate::defaults;
use crate::refusal::Refusal;
use crate::sandbox;

const CGROUP: &str = "/sys/fs/cgroup";
/// Files of the pod that containers have unless they bring their own: where they are seen, and what
/// they are called in the sandbox's directory.
pub const POD_FILES: [(&str, &str); 3] =
    [("/etc/hosts", "hosts"), ("/etc/hostname", "hostname"), ("/etc/resolv.conf", "resolv.conf")];

/// All mounts of a container, in the order in which they are made: what is below comes later.
pub(crate) fn mounts(
    config: &cri::ContainerConfig,
    place: &ContainerPlace<'_>,
    volumes: &BTreeMap<usize, Vec<String>>,
) -> Result<Vec<Mount>, Refusal> {
    let mut own = Vec::new();
    for (at, mount) in config.mounts.iter().enumerate() {
        own.push(volume(mount, volumes.get(&at))?);
    }
    let security = crate::process::security(config);
    let readonly = |is_so: bool| i32::from(if is_so { Readonly::Yes } else { Readonly::No });
    let has_users = place.has_users()?;
    for (target, name) in POD_FILES {
        own.push(Mount {
            target: target.to_owned(),
            source: Some(Source::Path(format!("{}/{name}", place.sandbox_directory))),
            readonly: readonly(security.readonly_rootfs),
            idmap: has_users,
            ..Mount::default()
        });
    }
    // Of two mounts at one place the first counts: what was asked for comes before what everybody
    // has.
    let mut targets: Vec<String> = Vec::new();
    own.retain(|it| {
        let is_new = !targets.contains(&it.target);
        targets.push(it.target.clone());
        is_new
    });
    let has_dev = targets.iter().any(|it| it == "/dev");
    let mut mounts = kernel_mounts(place, &security);
    let is_replaced =
        |path: &String| targets.contains(path) || (has_dev && path.starts_with("/dev/"));
    mounts.retain(|it| !is_replaced(&it.target));
    mounts.extend(own);
    mounts.sort_by_key(|it| it.target.split('/').filter(|it| !it.is_empty()).count());
    Ok(mounts)
}

fn kernel_mounts(
    place: &ContainerPlace<'_>,
    security: &cri::LinuxContainerSecurityContext,
) -> Vec<Mount> {
    let mut mounts = defaults::kernel_mounts();
    let has_nodes_ipc = sandbox::namespaces(place.sandbox).ipc() == cri::NamespaceMode::Node;
    for mount in &mut mounts {
        match mount.target.as_str() {
            "/sys" if security.privileged => mount.readonly = Readonly::No.into(),
            "/dev/shm" if has_nodes_ipc => {
                mount.source = Some(Source::Path("/dev/shm".to_owned()));
            }
            _ => {}
        }
    }
    mounts.extend(cgroup_mounts(place, security.privileged));
    mounts
}

/// The container's own groups, as programs look for their limits.
fn cgroup_mounts(place: &ContainerPlace<'_>, is_privileged: bool) -> Vec<Mount> {
    let readonly = if is_privileged { Readonly::No } else { Readonly::Yes };
    let quiet = |target: String, source: Source| Mount {
        target,
        source: Some(source),
        nosuid: true,
        nodev: true,
        noexec: true,
        ..Mount::default()
    };
    let read = |it: Mount| Mount { readonly: readonly.into(), ..it };
    match place.hierarchies {
        Hierarchies::V2 { .. } => {
            vec![read(quiet(CGROUP.to_owned(), Source::Kernel(Kernel::Cgroup.into())))]
        }
        Hierarchies::V1 { controllers, .. } => {
            let base = Tmpfs { size: 0, mode: 0o755 };
            let parent = sandbox::cgroup_parent(place.sandbox, place.cgroup_parent);
            let tree = |(name, root): &(String, String)| {
                let name = name.strip_prefix("name=").unwrap_or(name);
                let directory = cgroups::directory(root, parent, place.id);
                read(quiet(format!("{CGROUP}/{name}"), Source::Path(directory)))
            };
            let mut mounts = vec![quiet(CGROUP.to_owned(), Source::Tmpfs(base))];
            mounts.extend(controllers.iter().map(tree));
            mounts
        }
    }
}

fn volume(mount: &cri::Mount, layers: Option<&Vec<String>>) -> Result<Mount, Refusal> {
    let absolute = |what, path: &str| {
        let is_absolute = path.starts_with('/');
        let refused = || Refusal::Path { what, path: path.to_owned() };
        is_absolute.then(|| path.to_owned()).ok_or_else(refused)
    };
    if !mount.mount_options.is_empty() {
        return Err(Refusal::Unsupported("an option of a mount"));
    }
    let target = absolute("container path", &mount.container_path)?;
    let target = match target.trim_end_matches('/') {
        "" => return Err(Refusal::Path { what: "container path", path: target }),
        trimmed => trimmed.to_owned(),
    };
    let source = match (&mount.image, layers) {
        (Some(_), Some(layers)) => {
            let sub_path = mount.image_sub_path.clone();
            Source::Layers(Layers { layers: layers.clone(), sub_path })
        }
        (Some(_), None) => return Err(Refusal::Missing("the image of a volume")),
        (None, _) => Source::Path(absolute("host path", &mount.host_path)?),
    };
    let readonly = match (mount.readonly, mount.recursive_read_only) {
        (true, true) => Readonly::Recursive,
        (true, false) => Readonly::Yes,
        (false, true) => {
            return Err(Refusal::Unsupported("a recursively read-only mount that is writable"));
        }
        (false, false) => Readonly::No,
    };
    let propagation = match mount.propagation() {
        cri::MountPropagation::PropagationPrivate => Propagation::Private,
        cri::MountPropagation::PropagationHostToContainer => Propagation::HostToContainer,
        cri::MountPropagation::PropagationBidirectional => Propagation::Bidirectional,
    };
    if readonly == Readonly::Recursive && propagation != Propagation::Private {
        return Err(Refusal::Unsupported("a recursively read-only mount with propagation"));
    }
    Ok(Mount {
        target,
        source: Some(source),
        readonly: readonly.into(),
        propagation: propagation.into(),
        idmap: !mount.uid_mappings.is_empty() || !mount.gid_mappings.is_empty(),
        ..Mount::default()
    })
}
