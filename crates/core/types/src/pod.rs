//! Typed views over the API's pod: the questions core asks, answered with enums instead of strings.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec, PodStatus, Probe};

use crate::{GracePeriod, PodKey, PodUid, Timestamp};

/// Annotation: where the agent has the pod from (`file`, `http`, `api`).
pub const SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
/// Annotation: when the agent first saw this version of the pod.
pub const SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";
/// Annotation: a static pod's identity, equal to its UID.
pub const HASH_ANNOTATION: &str = "kubernetes.io/config.hash";
/// Annotation on the API's copy of a static pod: the hash of what it mirrors.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Grace when the specification is silent, as the API defaults it.
const DEFAULT_GRACE_SECS: i64 = 30;
/// Priority from which a pod counts as critical.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Where a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodSource {
    /// A manifest file.
    File,
    /// A manifest URL.
    Http,
    /// The API server.
    Api,
}

impl PodSource {
    /// The word in the source annotation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Api => "api",
        }
    }
}

/// When a container that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartPolicy {
    /// Whatever happened.
    Always,
    /// After a failure.
    OnFailure,
    /// Not at all.
    Never,
}

impl RestartPolicy {
    fn parse(text: Option<&str>) -> Option<Self> {
        match text? {
            "Always" => Some(Self::Always),
            "OnFailure" => Some(Self::OnFailure),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }
}

/// What part of a pod's specification a container stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// Runs to completion before the regular ones.
    Init,
    /// An init container that keeps running: starts in order, stops last.
    Sidecar,
    /// The pod's purpose.
    Regular,
    /// Added to a running pod for debugging; never restarted.
    Ephemeral,
}

/// How far a pod is, in the API's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Accepted, not all containers have run yet.
    Pending,
    /// At least one container runs or will run again.
    Running,
    /// All containers ended well and none will restart.
    Succeeded,
    /// All containers ended, one badly, and none will restart.
    Failed,
    /// The node lost sight of it.
    Unknown,
}

impl Phase {
    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// The phase that a status names; `None` when it names none.
    pub fn of(status: &PodStatus) -> Option<Self> {
        match status.phase.as_deref()? {
            "" => None,
            "Pending" => Some(Self::Pending),
            "Running" => Some(Self::Running),
            "Succeeded" => Some(Self::Succeeded),
            "Failed" => Some(Self::Failed),
            _ => Some(Self::Unknown),
        }
    }

    /// True when a pod never leaves this phase.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The questions that core asks of a pod.
pub trait PodView {
    /// Its identity; empty when the source forgot to give one.
    fn uid(&self) -> PodUid;
    /// Namespace and name.
    fn key(&self) -> PodKey;
    /// The specification; a pod without one has an empty one.
    fn spec_ref(&self) -> &PodSpec;
    /// An annotation.
    fn annotation(&self, name: &str) -> Option<&str>;
    /// Where it comes from; the API unless annotated otherwise.
    fn source(&self) -> PodSource;
    /// True for pods from files and URLs.
    fn is_static(&self) -> bool;
    /// True for the API's copy of a static pod.
    fn is_mirror(&self) -> bool;
    /// When its containers restart.
    fn restart_policy(&self) -> RestartPolicy;
    /// Time between signal and kill.
    fn grace_period(&self) -> GracePeriod;
    /// When deletion was asked for.
    fn deletion_time(&self) -> Option<Timestamp>;
    /// The grace that the deletion asked for.
    fn deletion_grace(&self) -> Option<GracePeriod>;
    /// True when it uses the node's network.
    fn is_host_network(&self) -> bool;
    /// Its phase in the API's copy.
    fn api_phase(&self) -> Option<Phase>;
    /// True for static and mirror pods and those of a critical priority.
    fn is_critical(&self) -> bool;
    /// Upstream's word for its priority, in figures.
    fn priority_word(&self) -> &'static str;
    /// Finds an init container, sidecar or regular container of the specification by name.
    fn find_container(&self, name: &str) -> Option<(ContainerKind, &Container)>;
}

impl PodView for Pod {
    fn uid(&self) -> PodUid {
        PodUid::new(self.metadata.uid.as_deref().unwrap_or_default())
    }

    fn key(&self) -> PodKey {
        let namespace = self.metadata.namespace.as_deref().unwrap_or("default");
        PodKey::new(namespace, self.metadata.name.as_deref().unwrap_or_default())
    }

    fn spec_ref(&self) -> &PodSpec {
        static EMPTY: std::sync::OnceLock<PodSpec> = std::sync::OnceLock::new();
        self.spec.as_ref().unwrap_or_else(|| EMPTY.get_or_init(PodSpec::default))
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        let annotations: &BTreeMap<String, String> = self.metadata.annotations.as_ref()?;
        annotations.get(name).map(String::as_str)
    }

    fn source(&self) -> PodSource {
        match self.annotation(SOURCE_ANNOTATION) {
            Some("file") => PodSource::File,
            Some("http") => PodSource::Http,
            _ => PodSource::Api,
        }
    }

    fn is_static(&self) -> bool {
        self.source() != PodSource::Api
    }

    fn is_mirror(&self) -> bool {
        self.annotation(MIRROR_ANNOTATION).is_some()
    }

    fn restart_policy(&self) -> RestartPolicy {
        RestartPolicy::parse(self.spec_ref().restart_policy.as_deref())
            .unwrap_or(RestartPolicy::Always)
    }

    fn grace_period(&self) -> GracePeriod {
        GracePeriod::from_secs(
            self.spec_ref().termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECS),
        )
    }

    fn deletion_time(&self) -> Option<Timestamp> {
        self.metadata.deletion_timestamp.as_ref().map(|time| Timestamp(time.0))
    }

    fn deletion_grace(&self) -> Option<GracePeriod> {
        self.metadata.deletion_grace_period_seconds.map(GracePeriod::from_secs)
    }

    fn is_host_network(&self) -> bool {
        self.spec_ref().host_network.unwrap_or(false)
    }

    fn api_phase(&self) -> Option<Phase> {
        Phase::of(self.status.as_ref()?)
    }

    fn is_critical(&self) -> bool {
        self.is_static()
            || self.is_mirror()
            || self.spec_ref().priority.is_some_and(|p| p >= CRITICAL_PRIORITY)
    }

    fn priority_word(&self) -> &'static str {
        match self.spec_ref().priority.unwrap_or(0) {
            0 => "normal",
            CRITICAL_PRIORITY.. => "system-critical",
            100_000.. => "high",
            1.. => "medium",
            -999.. => "low",
            _ => "very-low",
        }
    }

    fn find_container(&self, name: &str) -> Option<(ContainerKind, &Container)> {
        let spec = self.spec_ref();
        let init = spec.init_containers.iter().flatten().map(|c| (init_kind(c), c));
        let regular = spec.containers.iter().map(|c| (ContainerKind::Regular, c));
        init.chain(regular).find(|(_, container)| container.name == name)
    }
}

/// True for an init container that keeps running.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The kind of a container in the list of init containers.
pub fn init_kind(container: &Container) -> ContainerKind {
    if is_sidecar(container) { ContainerKind::Sidecar } else { ContainerKind::Init }
}

/// The container's own restart policy, where it has one.
pub fn own_restart_policy(container: &Container) -> Option<RestartPolicy> {
    RestartPolicy::parse(container.restart_policy.as_deref())
}

/// An ephemeral container in the shape of any other.
pub fn ephemeral_as_container(ephemeral: &EphemeralContainer) -> Container {
    Container {
        args: ephemeral.args.clone(),
        command: ephemeral.command.clone(),
        env: ephemeral.env.clone(),
        env_from: ephemeral.env_from.clone(),
        image: ephemeral.image.clone(),
        image_pull_policy: ephemeral.image_pull_policy.clone(),
        lifecycle: ephemeral.lifecycle.clone(),
        liveness_probe: ephemeral.liveness_probe.clone(),
        name: ephemeral.name.clone(),
        ports: ephemeral.ports.clone(),
        readiness_probe: ephemeral.readiness_probe.clone(),
        resize_policy: ephemeral.resize_policy.clone(),
        resources: ephemeral.resources.clone(),
        restart_policy: ephemeral.restart_policy.clone(),
        restart_policy_rules: ephemeral.restart_policy_rules.clone(),
        security_context: ephemeral.security_context.clone(),
        startup_probe: ephemeral.startup_probe.clone(),
        stdin: ephemeral.stdin,
        stdin_once: ephemeral.stdin_once,
        termination_message_path: ephemeral.termination_message_path.clone(),
        termination_message_policy: ephemeral.termination_message_policy.clone(),
        tty: ephemeral.tty,
        volume_devices: ephemeral.volume_devices.clone(),
        volume_mounts: ephemeral.volume_mounts.clone(),
        working_dir: ephemeral.working_dir.clone(),
    }
}

/// Which of a container's three probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Failing restarts the container.
    Liveness,
    /// Failing takes the pod out of service.
    Readiness,
    /// Until it succeeds the other two wait.
    Startup,
}

impl ProbeKind {
    /// The probe of this kind that the container declares.
    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
            Self::Startup => container.startup_probe.as_ref(),
        }
    }
}

/// The hash that says whether a container was made from its specification as it is now, as upstream
/// stores it.
///
/// Only name and image count: every other field of a running container is immutable or changed in
/// place.
pub fn spec_hash(container: &Container) -> String {
    let image = container.image.as_deref().unwrap_or_default();
    let json = match image {
        "" => format!("{{\"name\":{}}}", json_string(&container.name)),
        image => format!(
            "{{\"image\":{},\"name\":{}}}",
            json_string(image),
            json_string(&container.name)
        ),
    };
    // Upstream hashes Go's printed form of the JSON bytes.
    let bytes: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    format!("{:x}", crate::hash::fnv1a_32(format!("([]uint8)[{}]", bytes.join(" ")).as_bytes()))
}

/// A JSON string as Go writes it: names and images never hold more than quotes that need care.
fn json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_read_from_a_status() {
        let check = |word: Option<&str>, expected: Option<Phase>| {
            let phase = word.map(str::to_owned);
            assert_eq!(Phase::of(&PodStatus { phase, ..PodStatus::default() }), expected);
        };
        check(None, None);
        check(Some(""), None);
        check(Some("Dancing"), Some(Phase::Unknown));
        for phase in
            [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed, Phase::Unknown]
        {
            check(Some(phase.as_str()), Some(phase));
        }
    }

    #[test]
    fn the_spec_hash_equals_upstreams() {
        let container = |name: &str, image: &str| Container {
            name: name.to_owned(),
            image: Some(image.to_owned()),
            ..Default::default()
        };
        assert_eq!(spec_hash(&container("test_container", "foo/image:v1")), "8e45cbd0");
        assert_eq!(spec_hash(&container("main", "docker.io/library/busybox:latest")), "85580d84");
    }
}
