//! From the plain requests of `ferrolet-spec` to CRI's. Pure and total: every value of ours has
//! exactly one encoding.
//!
//! Three things look odd and are what runtimes are used to: a user namespace option is always sent
//! (`NODE` when there is none), a sandbox's overhead and resources are sent even when empty, and
//! AppArmor is said twice, in the old notation as well.

use ferrolet_ports::RegistryAuth;
use ferrolet_spec as spec;

use crate::proto;

/// A sandbox.
pub(crate) fn sandbox_config(spec: &spec::SandboxSpec) -> proto::PodSandboxConfig {
    proto::PodSandboxConfig {
        metadata: Some(proto::PodSandboxMetadata {
            name: spec.key.name.to_string(),
            uid: spec.uid.to_string(),
            namespace: spec.key.namespace.to_string(),
            attempt: spec.attempt,
        }),
        hostname: spec.hostname.clone(),
        log_directory: spec.log_directory.to_string_lossy().into_owned(),
        dns_config: Some(proto::DnsConfig {
            servers: spec.dns.servers.clone(),
            searches: spec.dns.searches.clone(),
            options: spec.dns.options.clone(),
        }),
        port_mappings: spec.port_mappings.iter().map(port_mapping).collect(),
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
        linux: Some(proto::LinuxPodSandboxConfig {
            cgroup_parent: spec.cgroup_parent.clone(),
            security_context: Some(sandbox_security(&spec.security)),
            sysctls: spec.sysctls.clone(),
            overhead: Some(resources(&spec.overhead)),
            resources: Some(resources(&spec.resources)),
        }),
    }
}

/// A container.
pub(crate) fn container_config(spec: &spec::ContainerSpec) -> proto::ContainerConfig {
    proto::ContainerConfig {
        metadata: Some(proto::ContainerMetadata {
            name: spec.name.to_string(),
            attempt: spec.attempt,
        }),
        image: Some(proto::ImageSpec {
            image: spec.image_ref.clone(),
            user_specified_image: spec.image.clone(),
            ..Default::default()
        }),
        command: spec.command.clone(),
        args: spec.args.clone(),
        working_dir: spec.working_dir.clone(),
        envs: spec
            .env
            .iter()
            .map(|(key, value)| proto::KeyValue {
                key: key.clone(),
                value: value.clone().into_bytes(),
            })
            .collect(),
        mounts: spec.mounts.iter().map(mount).collect(),
        devices: spec.devices.iter().map(device).collect(),
        labels: spec.labels.clone(),
        annotations: spec.annotations.clone(),
        log_path: spec.log_path.clone(),
        stdin: spec.stdin,
        stdin_once: spec.stdin_once,
        tty: spec.tty,
        linux: Some(proto::LinuxContainerConfig {
            resources: Some(resources(&spec.resources)),
            security_context: Some(container_security(&spec.security)),
        }),
        cdi_devices: spec
            .cdi_devices
            .iter()
            .map(|name| proto::CdiDevice { name: name.clone() })
            .collect(),
        stop_signal: spec
            .stop_signal
            .as_deref()
            .map_or(proto::Signal::RuntimeDefault, signal)
            .into(),
    }
}

/// Bounds enforced by cgroups.
pub(crate) fn resources(resources: &spec::LinuxResources) -> proto::LinuxContainerResources {
    proto::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpuset_cpus.clone(),
        cpuset_mems: resources.cpuset_mems.clone(),
        hugepage_limits: resources
            .hugepage_limits
            .iter()
            .map(|(page_size, limit)| proto::HugepageLimit {
                page_size: page_size.clone(),
                limit: *limit,
            })
            .collect(),
        unified: resources.unified.clone(),
        memory_swap_limit_in_bytes: resources.memory_swap_limit,
    }
}

/// Credentials for a pull.
pub(crate) fn auth(auth: &RegistryAuth) -> proto::AuthConfig {
    proto::AuthConfig {
        username: auth.username.clone(),
        password: auth.password.clone(),
        auth: auth.auth.clone(),
        server_address: auth.server_address.clone(),
        identity_token: auth.identity_token.clone(),
        registry_token: auth.registry_token.clone(),
    }
}

/// An image by name.
pub(crate) fn image(image: &str) -> proto::ImageSpec {
    proto::ImageSpec { image: image.to_owned(), ..Default::default() }
}

fn port_mapping(port: &spec::PortMapping) -> proto::PortMapping {
    let protocol = match port.protocol {
        "UDP" => proto::Protocol::Udp,
        "SCTP" => proto::Protocol::Sctp,
        _ => proto::Protocol::Tcp,
    };
    proto::PortMapping {
        protocol: protocol.into(),
        container_port: port.container_port,
        host_port: port.host_port,
        host_ip: port.host_ip.clone(),
    }
}

fn sandbox_security(security: &spec::SecuritySpec) -> proto::LinuxSandboxSecurityContext {
    proto::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(&security.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux),
        run_as_user: security.run_as_user.map(int64),
        run_as_group: security.run_as_group.map(int64),
        readonly_rootfs: security.read_only_root,
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(security.supplemental_groups_policy).into(),
        privileged: security.privileged,
        seccomp: Some(profile(&security.seccomp)),
        apparmor: security.apparmor.as_ref().map(profile),
    }
}

fn container_security(security: &spec::SecuritySpec) -> proto::LinuxContainerSecurityContext {
    let has_capabilities =
        !security.add_capabilities.is_empty() || !security.drop_capabilities.is_empty();
    proto::LinuxContainerSecurityContext {
        capabilities: has_capabilities.then(|| proto::Capability {
            add_capabilities: security.add_capabilities.clone(),
            drop_capabilities: security.drop_capabilities.clone(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: security.privileged,
        namespace_options: Some(namespaces(&security.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux),
        run_as_user: security.run_as_user.map(int64),
        run_as_group: security.run_as_group.map(int64),
        run_as_username: security.run_as_username.clone(),
        readonly_rootfs: security.read_only_root,
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(security.supplemental_groups_policy).into(),
        no_new_privs: security.no_new_privileges,
        masked_paths: security.masked_paths.clone(),
        readonly_paths: security.readonly_paths.clone(),
        seccomp: Some(profile(&security.seccomp)),
        apparmor: security.apparmor.as_ref().map(profile),
        apparmor_profile: security.apparmor.as_ref().map_or_else(String::new, old_apparmor),
    }
}

fn namespaces(namespaces: &spec::Namespaces) -> proto::NamespaceOption {
    // A pod without mappings of its own shares the node's user namespace, and runtimes expect to be
    // told so.
    let user_mode = if namespaces.user_mappings.is_empty() {
        proto::NamespaceMode::Node
    } else {
        proto::NamespaceMode::Pod
    };
    proto::NamespaceOption {
        network: mode(namespaces.network).into(),
        pid: mode(namespaces.pid).into(),
        ipc: mode(namespaces.ipc).into(),
        target_id: namespaces.target.clone(),
        userns_options: Some(proto::UserNamespace {
            mode: user_mode.into(),
            uids: id_mappings(&namespaces.user_mappings),
            gids: id_mappings(&namespaces.user_mappings),
        }),
    }
}

fn mode(mode: spec::NamespaceMode) -> proto::NamespaceMode {
    match mode {
        spec::NamespaceMode::Pod => proto::NamespaceMode::Pod,
        spec::NamespaceMode::Container => proto::NamespaceMode::Container,
        spec::NamespaceMode::Node => proto::NamespaceMode::Node,
        spec::NamespaceMode::Target => proto::NamespaceMode::Target,
    }
}

fn id_mappings(mappings: &[spec::IdMapping]) -> Vec<proto::IdMapping> {
    mappings
        .iter()
        .map(|mapping| proto::IdMapping {
            host_id: mapping.host_id,
            container_id: mapping.container_id,
            length: mapping.length,
        })
        .collect()
}

fn groups_policy(policy: spec::SupplementalGroupsPolicy) -> proto::SupplementalGroupsPolicy {
    match policy {
        spec::SupplementalGroupsPolicy::Merge => proto::SupplementalGroupsPolicy::Merge,
        spec::SupplementalGroupsPolicy::Strict => proto::SupplementalGroupsPolicy::Strict,
    }
}

fn profile(profile: &spec::SeccompProfile) -> proto::SecurityProfile {
    use proto::security_profile::ProfileType;
    let (kind, reference) = match profile {
        spec::SeccompProfile::RuntimeDefault => (ProfileType::RuntimeDefault, ""),
        spec::SeccompProfile::Unconfined => (ProfileType::Unconfined, ""),
        spec::SeccompProfile::Localhost(reference) => (ProfileType::Localhost, reference.as_str()),
    };
    proto::SecurityProfile { profile_type: kind.into(), localhost_ref: reference.to_owned() }
}

fn old_apparmor(profile: &spec::SeccompProfile) -> String {
    match profile {
        spec::SeccompProfile::RuntimeDefault => "runtime/default".to_owned(),
        spec::SeccompProfile::Unconfined => "unconfined".to_owned(),
        spec::SeccompProfile::Localhost(name) => format!("localhost/{name}"),
    }
}

fn selinux(label: &spec::SelinuxLabel) -> proto::SeLinuxOption {
    proto::SeLinuxOption {
        user: label.user.clone(),
        role: label.role.clone(),
        r#type: label.kind.clone(),
        level: label.level.clone(),
    }
}

fn mount(mount: &spec::Mount) -> proto::Mount {
    let propagation = match mount.propagation {
        spec::Propagation::Private => proto::MountPropagation::PropagationPrivate,
        spec::Propagation::HostToContainer => proto::MountPropagation::PropagationHostToContainer,
        spec::Propagation::Bidirectional => proto::MountPropagation::PropagationBidirectional,
    };
    proto::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.read_only,
        selinux_relabel: mount.selinux_relabel,
        propagation: propagation.into(),
        uid_mappings: id_mappings(&mount.uid_mappings),
        gid_mappings: id_mappings(&mount.gid_mappings),
        recursive_read_only: mount.recursive_read_only,
        image: mount.image.as_ref().map(mounted_image),
        image_sub_path: mount.image_sub_path.clone(),
        mount_options: Vec::new(),
    }
}

fn mounted_image(image: &spec::MountedImage) -> proto::ImageSpec {
    proto::ImageSpec {
        image: image.id.clone(),
        user_specified_image: image.named.clone(),
        runtime_handler: image.runtime_handler.clone(),
        annotations: image.annotations.clone(),
        ..Default::default()
    }
}

fn device(device: &spec::Device) -> proto::Device {
    proto::Device {
        container_path: device.container_path.clone(),
        host_path: device.host_path.clone(),
        permissions: device.permissions.clone(),
    }
}

fn int64(value: i64) -> proto::Int64Value {
    proto::Int64Value { value }
}

/// `SIGRTMIN+3` is `SIGNAL_SIGRTMINPLUS3`; a name CRI does not know leaves the choice to the
/// runtime.
fn signal(name: &str) -> proto::Signal {
    let name = name.replace('+', "PLUS").replace('-', "MINUS");
    proto::Signal::from_str_name(&format!("SIGNAL_{name}")).unwrap_or(proto::Signal::RuntimeDefault)
}

#[cfg(test)]
pub(crate) mod tests;
