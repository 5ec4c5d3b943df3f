//! A pod's shell, from CRI's description of it.

use ferrolet_cri_proto as cri;
use ferrolet_runtime_protocol::sandbox::{IdMap, IdMaps, PidShare, SandboxSpec, Share, Sysctl};

use crate::cgroups::{self, Hierarchies, Limits};
use crate::refusal::Refusal;

/// Bytes of a pod's `/dev/shm`.
const SHM_SIZE: u64 = 64 << 20;
/// A monitor is the last to go when memory is short.
const MONITOR_OOM_SCORE: i32 = -999;

/// Settings that an IPC namespace has of its own.
const IPC_SYSCTLS: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];

/// What every pod with a network of its own may do without privilege: listen on any port, and send
/// pings.
const PORTS: (&str, &str) = ("net.ipv4.ip_unprivileged_port_start", "0");
const PINGS: (&str, &str) = ("net.ipv4.ping_group_range", "0 2147483647");

/// Where a sandbox is put.
#[derive(Debug, Clone, Copy)]
pub struct SandboxPlace<'a> {
    /// The sandbox's id.
    pub id: &'a str,
    /// The directory of its socket and records.
    pub directory: &'a str,
    /// The node's control groups.
    pub hierarchies: &'a Hierarchies,
    /// The group above its own, where the request names none.
    pub cgroup_parent: &'a str,
}

/// What its monitor is born with.
///
/// # Errors
///
/// When the request asks for what is the node's.
pub fn sandbox(
    config: &cri::PodSandboxConfig,
    place: SandboxPlace<'_>,
) -> Result<SandboxSpec, Refusal> {
    let namespaces = namespaces(config);
    let network = share(namespaces.network());
    let ipc = share(namespaces.ipc());
    let pid = match namespaces.pid() {
        cri::NamespaceMode::Pod => PidShare::Pod,
        cri::NamespaceMode::Node => PidShare::Node,
        cri::NamespaceMode::Container | cri::NamespaceMode::Target => PidShare::Container,
    };
    let user = id_maps(namespaces.userns_options.as_ref())?;
    let init_cgroups = (pid == PidShare::Pod).then(|| {
        let parent = cgroup_parent(config, place.cgroup_parent);
        cgroups::plan(place.hierarchies, parent, place.id, &Limits::default())
    });
    Ok(SandboxSpec {
        id: place.id.to_owned(),
        directory: place.directory.to_owned(),
        hostname: config.hostname.clone(),
        network: network.into(),
        ipc: ipc.into(),
        pid: pid.into(),
        sysctls: sysctls(config, network, ipc, user.is_some())?,
        user,
        shm_size: SHM_SIZE,
        init_cgroups,
        oom_score_adj: MONITOR_OOM_SCORE,
    })
}

/// The namespaces that a pod asked for.
pub(crate) fn namespaces(config: &cri::PodSandboxConfig) -> cri::NamespaceOption {
    let security = config.linux.as_ref().and_then(|it| it.security_context.as_ref());
    security.and_then(|it| it.namespace_options.clone()).unwrap_or_default()
}

/// The group that a pod's containers are put below.
#[must_use]
pub fn cgroup_parent<'a>(config: &'a cri::PodSandboxConfig, default: &'a str) -> &'a str {
    let asked = config.linux.as_ref().map_or("", |it| it.cgroup_parent.as_str());
    if asked.is_empty() { default } else { asked }
}

fn share(mode: cri::NamespaceMode) -> Share {
    match mode {
        cri::NamespaceMode::Node => Share::Node,
        cri::NamespaceMode::Pod | cri::NamespaceMode::Container | cri::NamespaceMode::Target => {
            Share::Pod
        }
    }
}

/// Where a pod's users are on the node; none: as on the node.
pub(crate) fn id_maps(options: Option<&cri::UserNamespace>) -> Result<Option<IdMaps>, Refusal> {
    let Some(options) = options else { return Ok(None) };
    match options.mode() {
        cri::NamespaceMode::Pod => {}
        cri::NamespaceMode::Node => return Ok(None),
        cri::NamespaceMode::Container | cri::NamespaceMode::Target => {
            return Err(Refusal::Unsupported("a user namespace that is not the whole pod's"));
        }
    }
    let maps = |mappings: &[cri::IdMapping]| -> Vec<IdMap> {
        let map = |it: &cri::IdMapping| IdMap {
            inside: it.container_id,
            outside: it.host_id,
            length: it.length,
        };
        mappings.iter().map(map).collect()
    };
    let maps = IdMaps { uids: maps(&options.uids), gids: maps(&options.gids) };
    maps.root().ok_or(Refusal::NoIdMap)?;
    Ok(Some(maps))
}

fn sysctls(
    config: &cri::PodSandboxConfig,
    network: Share,
    ipc: Share,
    has_users: bool,
) -> Result<Vec<Sysctl>, Refusal> {
    let asked = config.linux.iter().flat_map(|it| &it.sysctls);
    let mut sysctls = Vec::new();
    if network == Share::Pod {
        sysctls.push(PORTS);
        // A range of groups can only be set where all of them exist.
        if !has_users {
            sysctls.push(PINGS);
        }
    }
    let mut sysctls: Vec<Sysctl> = sysctls
        .into_iter()
        .map(|(name, value)| Sysctl { name: name.to_owned(), value: value.to_owned() })
        .collect();
    for (name, value) in asked {
        let dotted = name.replace('/', ".");
        let is_ipcs = IPC_SYSCTLS.contains(&dotted.as_str()) || dotted.starts_with("fs.mqueue.");
        let is_own =
            (is_ipcs && ipc == Share::Pod) || (dotted.starts_with("net.") && network == Share::Pod);
        if !is_own {
            return Err(Refusal::Sysctl(name.clone()));
        }
        sysctls.retain(|it| it.name != dotted);
        sysctls.push(Sysctl { name: name.clone(), value: value.clone() });
    }
    Ok(sysctls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(options: cri::NamespaceOption, sysctls: &[(&str, &str)]) -> cri::PodSandboxConfig {
        let security = cri::LinuxSandboxSecurityContext {
            namespace_options: Some(options),
            ..Default::default()
        };
        let sysctls = sysctls.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        cri::PodSandboxConfig {
            hostname: "web-0".to_owned(),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: "/kubepods/pod7".to_owned(),
                security_context: Some(security),
                sysctls,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn planned(config: &cri::PodSandboxConfig) -> Result<SandboxSpec, Refusal> {
        let hierarchies = Hierarchies::V2 { root: "/cg".to_owned() };
        let place = SandboxPlace {
            id: "s1",
            directory: "/run/pods/s1",
            hierarchies: &hierarchies,
            cgroup_parent: "/ferrolet",
        };
        sandbox(config, place)
    }

    fn shown(spec: &SandboxSpec) -> Vec<String> {
        spec.sysctls.iter().map(|it| format!("{}={}", it.name, it.value)).collect()
    }

    fn own() -> cri::NamespaceOption {
        cri::NamespaceOption { pid: cri::NamespaceMode::Container.into(), ..Default::default() }
    }

    fn nodes() -> cri::NamespaceOption {
        let node = cri::NamespaceMode::Node.into();
        cri::NamespaceOption { network: node, ipc: node, pid: node, ..Default::default() }
    }

    #[test]
    fn a_pod_has_what_it_does_not_share_with_the_node() {
        let spec = planned(&config(own(), &[])).unwrap();
        assert_eq!(
            (spec.network(), spec.ipc(), spec.pid()),
            (Share::Pod, Share::Pod, PidShare::Container)
        );
        assert_eq!(
            shown(&spec),
            ["net.ipv4.ip_unprivileged_port_start=0", "net.ipv4.ping_group_range=0 2147483647"]
        );
        assert_eq!((spec.hostname.as_str(), spec.init_cgroups), ("web-0", None));
        let spec = planned(&config(nodes(), &[])).unwrap();
        assert_eq!(
            (spec.network(), spec.ipc(), spec.pid()),
            (Share::Node, Share::Node, PidShare::Node)
        );
        assert_eq!(shown(&spec), [""; 0]);
    }

    #[test]
    fn shared_processes_have_an_init_in_a_group_of_the_sandbox() {
        let options = cri::NamespaceOption::default();
        let spec = planned(&config(options, &[])).unwrap();
        assert_eq!(spec.pid(), PidShare::Pod);
        assert_eq!(spec.init_cgroups.unwrap().kill, "/cg/kubepods/pod7/s1");
    }

    #[test]
    fn settings_of_the_node_are_refused_however_they_are_spelt() {
        let asked = [("net.ipv4.ip_unprivileged_port_start", "80"), ("kernel.shmmax", "1")];
        let spec = planned(&config(own(), &asked)).unwrap();
        assert_eq!(
            shown(&spec),
            [
                "net.ipv4.ping_group_range=0 2147483647",
                "kernel.shmmax=1",
                "net.ipv4.ip_unprivileged_port_start=80",
            ]
        );
        for name in ["net.core.somaxconn", "net/core/somaxconn", "kernel.shmmax", "fs.mqueue.x"] {
            let refused = planned(&config(nodes(), &[(name, "1")]));
            assert_eq!(refused, Err(Refusal::Sysctl(name.to_owned())));
        }
        for name in ["vm.swappiness", "kernel.core_pattern", "kernel/core_pattern", "fs.file-max"] {
            let refused = planned(&config(own(), &[(name, "1")]));
            assert_eq!(refused, Err(Refusal::Sysctl(name.to_owned())));
        }
    }

    #[test]
    fn users_of_the_pod_are_mapped_and_root_is_among_them() {
        let map = cri::IdMapping { host_id: 65536, container_id: 0, length: 65536 };
        let users = |maps: &[cri::IdMapping]| cri::NamespaceOption {
            userns_options: Some(cri::UserNamespace {
                mode: cri::NamespaceMode::Pod.into(),
                uids: maps.to_vec(),
                gids: maps.to_vec(),
            }),
            ..own()
        };
        let spec = planned(&config(users(&[map]), &[])).unwrap();
        assert_eq!(spec.user.as_ref().and_then(IdMaps::root), Some((65536, 65536)));
        assert_eq!(shown(&spec), ["net.ipv4.ip_unprivileged_port_start=0"]);
        assert_eq!(planned(&config(users(&[]), &[])), Err(Refusal::NoIdMap));
        let modes = [(cri::NamespaceMode::Node, true), (cri::NamespaceMode::Container, false)];
        for (mode, is_fine) in modes.into_iter().chain([(cri::NamespaceMode::Target, false)]) {
            let mut options = users(&[map]);
            options.userns_options.as_mut().unwrap().mode = mode.into();
            assert_eq!(planned(&config(options, &[])).is_ok(), is_fine, "{mode:?}");
        }
    }
}
