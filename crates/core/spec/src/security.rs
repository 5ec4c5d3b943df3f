//! Users, groups, capabilities, namespaces and profiles: the pod's and the container's security
//! contexts made one.
//!
//! In: a pod, a container, who the image runs as. Out: [`SecuritySpec`]. The container's fields win
//! over the pod's. Refuses: reading profiles, and admission checks (sysctls, AppArmor), which come
//! before a pod gets here.

use std::path::{Component, Path, PathBuf};

use ferrolet_types::{ContainerId, pod::PodView as _};
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, Pod, PodSecurityContext, SELinuxOptions,
    SeccompProfile as ApiSeccompProfile, SecurityContext,
};

use crate::{
    IdMapping, ImageUser, NamespaceMode, Namespaces, SeccompProfile, SecuritySpec, SelinuxLabel,
    SpecSettings, SupplementalGroupsPolicy, labels::describe,
};

const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// Static pods may still say it this way.
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const MAX_USER_ID: i64 = 2_147_483_647;

/// Why a container may not or cannot run as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what the variants are")]
pub enum SecurityError {
    #[error("container's runAsUser breaks non-root policy (pod: {pod:?}, container: {container})")]
    RunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root \
         (pod: {pod:?}, container: {container})"
    )]
    UserIsNoNumber { user: String, pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image will run as root (pod: {pod:?}, container: {container})"
    )]
    ImageRunsAsRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has an invalid user id ({user}). (Must be 1-({MAX_USER_ID})): \
         must be between 0 and {MAX_USER_ID}, inclusive (pod: {pod:?}, container: {container})"
    )]
    UserOutOfRange { user: i64, pod: String, container: String },
    #[error("unsupported supplementalGroupsPolicy: {0}")]
    SupplementalGroupsPolicy(String),
    #[error("localhostProfile must be set if seccompProfile type is Localhost.")]
    SeccompProfileMissing,
    #[error("seccomp profile {0:?} is outside the profile directory")]
    SeccompProfileOutside(String),
    #[error("missing localhost apparmor profile name")]
    ApparmorProfileMissing,
    #[error("unknown apparmor profile type: {0:?}")]
    ApparmorType(String),
}

/// What a container's security is made from besides its pod.
pub(crate) struct SecurityInputs<'a> {
    pub(crate) settings: &'a SpecSettings,
    pub(crate) image_user: &'a ImageUser,
    pub(crate) user_mappings: &'a [IdMapping],
    pub(crate) extra_groups: &'a [i64],
    pub(crate) target: Option<&'a ContainerId>,
}

/// The security of a container.
pub(crate) fn container_security(
    pod: &Pod,
    container: &Container,
    inputs: &SecurityInputs<'_>,
) -> Result<SecuritySpec, SecurityError> {
    let empty = SecurityContext::default();
    let own = container.security_context.as_ref().unwrap_or(&empty);
    let pods = pod_context(pod);
    verify_non_root(pod, container, inputs.image_user)?;
    let run_as_user = own.run_as_user.or(pods.run_as_user);
    let (run_as_user, run_as_username) = match (&run_as_user, inputs.image_user) {
        (Some(id), _) | (None, ImageUser::Id(id)) => (Some(*id), String::new()),
        (None, ImageUser::Name(name)) => (None, name.clone()),
    };
    let mut namespaces = pod_namespaces(pod, inputs.user_mappings);
    if let (Some(target), NamespaceMode::Container) = (inputs.target, namespaces.pid) {
        namespaces.pid = NamespaceMode::Target;
        namespaces.target = target.as_str().to_owned();
    }
    let capabilities = own.capabilities.as_ref();
    let named = |list: Option<&Vec<String>>| list.cloned().unwrap_or_default();
    let is_unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |list: &[&str]| match is_unmasked {
        true => Vec::new(),
        false => list.iter().map(|path| (*path).to_owned()).collect(),
    };
    let mut masked_paths: Vec<String> = paths(&MASKED_PATHS);
    if !is_unmasked {
        masked_paths.extend(inputs.settings.extra_masked_paths.iter().cloned());
    }
    let mut supplemental_groups: Vec<i64> = pods.fs_group.into_iter().collect();
    supplemental_groups.extend(pods.supplemental_groups.iter().flatten());
    supplemental_groups.extend(inputs.extra_groups);
    Ok(SecuritySpec {
        privileged: own.privileged.unwrap_or(false),
        namespaces,
        run_as_user,
        run_as_username,
        run_as_group: own.run_as_group.or(pods.run_as_group),
        supplemental_groups,
        supplemental_groups_policy: groups_policy(pods)?,
        read_only_root: own.read_only_root_filesystem.unwrap_or(false),
        no_new_privileges: own.allow_privilege_escalation == Some(false),
        add_capabilities: named(capabilities.and_then(|c| c.add.as_ref())),
        drop_capabilities: named(capabilities.and_then(|c| c.drop.as_ref())),
        seccomp: seccomp(
            own.seccomp_profile.as_ref().or(pods.seccomp_profile.as_ref()),
            inputs.settings,
        )?,
        apparmor: apparmor(pod, container)?,
        selinux: selinux(own.se_linux_options.as_ref().or(pods.se_linux_options.as_ref())),
        masked_paths,
        readonly_paths: paths(&READONLY_PATHS),
    })
}

/// The security of a sandbox. Its own process always runs under the runtime's seccomp profile.
pub(crate) fn sandbox_security(
    pod: &Pod,
    user_mappings: &[IdMapping],
    extra_groups: &[i64],
) -> Result<SecuritySpec, SecurityError> {
    let pods = pod_context(pod);
    let mut supplemental_groups: Vec<i64> = pods.fs_group.into_iter().collect();
    supplemental_groups.extend(extra_groups);
    supplemental_groups.extend(pods.supplemental_groups.iter().flatten());
    Ok(SecuritySpec {
        privileged: has_privileged_container(pod),
        namespaces: pod_namespaces(pod, user_mappings),
        run_as_user: pods.run_as_user,
        run_as_username: String::new(),
        run_as_group: pods.run_as_group,
        supplemental_groups,
        supplemental_groups_policy: groups_policy(pods)?,
        read_only_root: false,
        no_new_privileges: false,
        add_capabilities: Vec::new(),
        drop_capabilities: Vec::new(),
        seccomp: SeccompProfile::RuntimeDefault,
        apparmor: None,
        selinux: selinux(pods.se_linux_options.as_ref()),
        masked_paths: Vec::new(),
        readonly_paths: Vec::new(),
    })
}

fn pod_context(pod: &Pod) -> &PodSecurityContext {
    static EMPTY: std::sync::OnceLock<PodSecurityContext> = std::sync::OnceLock::new();
    let own = pod.spec_ref().security_context.as_ref();
    own.unwrap_or_else(|| EMPTY.get_or_init(PodSecurityContext::default))
}

fn verify_non_root(
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
) -> Result<(), SecurityError> {
    let own = container.security_context.as_ref();
    let pods = pod_context(pod);
    let must_not_be_root = own.and_then(|c| c.run_as_non_root).or(pods.run_as_non_root);
    if must_not_be_root != Some(true) {
        return Ok(());
    }
    let user = own.and_then(|c| c.run_as_user).or(pods.run_as_user);
    let (pod, container) = (describe(pod), container.name.clone());
    match (user, image_user) {
        (Some(0), _) => Err(SecurityError::RunsAsRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, ImageUser::Name(user)) => {
            Err(SecurityError::UserIsNoNumber { user: user.clone(), pod, container })
        }
        (None, ImageUser::Id(0)) => Err(SecurityError::ImageRunsAsRoot { pod, container }),
        (None, ImageUser::Id(user)) if !(0..=MAX_USER_ID).contains(user) => {
            Err(SecurityError::UserOutOfRange { user: *user, pod, container })
        }
        (None, ImageUser::Id(_)) => Ok(()),
    }
}

fn pod_namespaces(pod: &Pod, user_mappings: &[IdMapping]) -> Namespaces {
    let spec = pod.spec_ref();
    let node_or_pod = |is_node: Option<bool>| match is_node {
        Some(true) => NamespaceMode::Node,
        _ => NamespaceMode::Pod,
    };
    let pid = if spec.host_pid == Some(true) {
        NamespaceMode::Node
    } else if spec.share_process_namespace == Some(true) {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    Namespaces {
        network: node_or_pod(spec.host_network),
        pid,
        ipc: node_or_pod(spec.host_ipc),
        target: String::new(),
        user_mappings: user_mappings.to_vec(),
    }
}

fn has_privileged_container(pod: &Pod) -> bool {
    let is_privileged = |context: Option<&SecurityContext>| {
        context.is_some_and(|context| context.privileged == Some(true))
    };
    let spec = pod.spec_ref();
    let mut ephemeral = spec.ephemeral_containers.iter().flatten();
    let mut others = spec.init_containers.iter().flatten().chain(&spec.containers);
    others.any(|c| is_privileged(c.security_context.as_ref()))
        || ephemeral.any(|c| is_privileged(c.security_context.as_ref()))
}

fn groups_policy(pods: &PodSecurityContext) -> Result<SupplementalGroupsPolicy, SecurityError> {
    match pods.supplemental_groups_policy.as_deref() {
        None | Some("Merge") => Ok(SupplementalGroupsPolicy::Merge),
        Some("Strict") => Ok(SupplementalGroupsPolicy::Strict),
        Some(other) => Err(SecurityError::SupplementalGroupsPolicy(other.to_owned())),
    }
}

fn seccomp(
    profile: Option<&ApiSeccompProfile>,
    settings: &SpecSettings,
) -> Result<SeccompProfile, SecurityError> {
    let Some(profile) = profile else {
        return Ok(match settings.is_seccomp_default {
            true => SeccompProfile::RuntimeDefault,
            false => SeccompProfile::Unconfined,
        });
    };
    let file = profile.localhost_profile.as_deref().filter(|file| !file.is_empty());
    match (profile.type_.as_str(), file) {
        ("RuntimeDefault", _) => Ok(SeccompProfile::RuntimeDefault),
        ("Localhost", None) => Err(SecurityError::SeccompProfileMissing),
        ("Localhost", Some(file)) => {
            let path = beneath(&settings.seccomp_root, file)
                .ok_or_else(|| SecurityError::SeccompProfileOutside(file.to_owned()))?;
            Ok(SeccompProfile::Localhost(path.display().to_string()))
        }
        _ => Ok(SeccompProfile::Unconfined),
    }
}

/// Joins by name only; the API forbids leaving the directory, and static pods must not get around
/// that.
fn beneath(root: &Path, file: &str) -> Option<PathBuf> {
    let mut path = root.to_path_buf();
    for part in Path::new(file).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

fn apparmor(pod: &Pod, container: &Container) -> Result<Option<SeccompProfile>, SecurityError> {
    let own =
        container.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    if let Some(profile) = own {
        return apparmor_field(profile).map(Some);
    }
    if let Some(profile) = apparmor_annotation(pod, &container.name) {
        return Ok(Some(profile));
    }
    let pods = pod_context(pod).app_armor_profile.as_ref();
    pods.map(apparmor_field).transpose()
}

fn apparmor_field(profile: &AppArmorProfile) -> Result<SeccompProfile, SecurityError> {
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("RuntimeDefault", _) => Ok(SeccompProfile::RuntimeDefault),
        ("Unconfined", _) => Ok(SeccompProfile::Unconfined),
        ("Localhost", Some(name)) => Ok(SeccompProfile::Localhost(name.clone())),
        ("Localhost", None) => Err(SecurityError::ApparmorProfileMissing),
        (other, _) => Err(SecurityError::ApparmorType(other.to_owned())),
    }
}

fn apparmor_annotation(pod: &Pod, container: &str) -> Option<SeccompProfile> {
    match pod.annotation(&format!("{APPARMOR_ANNOTATION}{container}"))? {
        "runtime/default" => Some(SeccompProfile::RuntimeDefault),
        "unconfined" => Some(SeccompProfile::Unconfined),
        other => {
            let name = other.strip_prefix("localhost/")?;
            Some(SeccompProfile::Localhost(name.to_owned()))
        }
    }
}

fn selinux(options: Option<&SELinuxOptions>) -> Option<SelinuxLabel> {
    let options = options?;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    Some(SelinuxLabel {
        user: text(&options.user),
        role: text(&options.role),
        kind: text(&options.type_),
        level: text(&options.level),
    })
}

#[cfg(test)]
#[path = "security_tests.rs"]
mod tests;
