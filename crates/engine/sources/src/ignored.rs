//! Fields of a pod that this node does not read, because their feature gate is closed here.
//!
//! Upstream's kubelet asks the gate wherever it would use such a field. Here the field is taken away
//! once, where pods come in, so that nobody behind has to ask. Fields for which upstream refuses the
//! pod stay: admission says so. Pure.

use std::sync::Arc;

use ferrolet_types::{
    Pod,
    pod::{PodView as _, is_sidecar},
};
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};

/// What is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredField {
    /// `restartPolicy` and `restartPolicyRules` of containers; a sidecar stays one.
    RestartRules,
    /// `fileKeyRef` of variables, whose value is empty then.
    EnvFiles,
    /// `protocol` of probes by HTTP, which speak HTTP/1.1 then.
    ProbesOverHttp2,
    /// `mode` of probes by gRPC, which speak in the clear then.
    ProbesOverTls,
    /// `mode` of an `emptyDir`, which is open to everybody then.
    EmptyDirMode,
}

impl IgnoredField {
    fn is_in(self, spec: &PodSpec) -> bool {
        let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        match self {
            Self::RestartRules => containers
                .any(|it| it.restart_policy_rules.is_some() || it.restart_policy.is_some()),
            Self::EnvFiles => containers
                .flat_map(|it| it.env.iter().flatten())
                .filter_map(|it| it.value_from.as_ref())
                .any(|it| it.file_key_ref.is_some()),
            Self::ProbesOverHttp2 => containers
                .flat_map(probes)
                .filter_map(|it| it.http_get.as_ref())
                .any(|it| it.protocol.is_some()),
            Self::ProbesOverTls => containers
                .flat_map(probes)
                .filter_map(|it| it.grpc.as_ref())
                .any(|it| it.mode.is_some()),
            Self::EmptyDirMode => spec
                .volumes
                .iter()
                .flatten()
                .filter_map(|it| it.empty_dir.as_ref())
                .any(|it| it.mode.is_some()),
        }
    }

    fn remove_from(self, spec: &mut PodSpec) {
        if self == Self::EmptyDirMode {
            let volumes = spec.volumes.iter_mut().flatten();
            volumes.filter_map(|it| it.empty_dir.as_mut()).for_each(|it| it.mode = None);
        }
        let init = spec.init_containers.iter_mut().flatten();
        init.for_each(|container| self.remove_from_container(container, Role::Init));
        let main = spec.containers.iter_mut();
        main.for_each(|container| self.remove_from_container(container, Role::Main));
    }

    fn remove_from_container(self, container: &mut Container, role: Role) {
        match self {
            Self::EmptyDirMode => {}
            Self::RestartRules => {
                container.restart_policy_rules = None;
                if !(role == Role::Init && is_sidecar(container)) {
                    container.restart_policy = None;
                }
            }
            Self::EnvFiles => {
                let sources = container.env.iter_mut().flatten();
                for source in sources.filter_map(|it| it.value_from.as_mut()) {
                    source.file_key_ref = None;
                }
            }
            Self::ProbesOverHttp2 => probes_mut(container)
                .filter_map(|it| it.http_get.as_mut())
                .for_each(|it| it.protocol = None),
            Self::ProbesOverTls => probes_mut(container)
                .filter_map(|it| it.grpc.as_mut())
                .for_each(|it| it.mode = None),
        }
    }
}

/// Which list a container stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Init,
    Main,
}

fn probes(container: &Container) -> impl Iterator<Item = &Probe> {
    let all = [&container.liveness_probe, &container.readiness_probe, &container.startup_probe];
    all.into_iter().flatten()
}

fn probes_mut(container: &mut Container) -> impl Iterator<Item = &mut Probe> {
    let Container { liveness_probe, readiness_probe, startup_probe, .. } = container;
    [liveness_probe, readiness_probe, startup_probe].into_iter().flatten()
}

/// The pod as this node reads it: the very same where nothing of it is ignored.
pub(crate) fn as_read(pod: &Pod, ignored: &[IgnoredField]) -> Pod {
    if !ignored.iter().any(|field| field.is_in(pod.spec_ref())) {
        return Arc::clone(pod);
    }
    let mut pod = (**pod).clone();
    if let Some(spec) = &mut pod.spec {
        ignored.iter().for_each(|field| field.remove_from(spec));
    }
    Arc::new(pod)
}

#[cfg(test)]
mod tests {
    use IgnoredField::{EmptyDirMode, EnvFiles, ProbesOverHttp2, ProbesOverTls, RestartRules};
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Pod {
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]);
        let file = json!({"volumeName": "v", "path": "f", "key": "K"});
        Arc::new(
            serde_json::from_value(json!({"spec": {
                "initContainers": [
                    {"name": "sidecar", "restartPolicy": "Always"},
                    {"name": "init", "restartPolicy": "Never", "restartPolicyRules": rules},
                ],
                "containers": [
                    {"name": "c", "restartPolicy": "OnFailure",
                     "env": [{"name": "E", "valueFrom": {"fileKeyRef": file}}]},
                ],
            }}))
            .unwrap(),
        )
    }

    fn check(ignored: &[IgnoredField], policies: [Value; 3], has_file: bool) {
        let read = as_read(&pod(), ignored);
        let spec = serde_json::to_value(read.spec.as_ref().unwrap()).unwrap();
        let found = ["/initContainers/0", "/initContainers/1", "/containers/0"]
            .map(|place| spec.pointer(place).unwrap()["restartPolicy"].clone());
        assert_eq!(found, policies, "{ignored:?}");
        let has_rules = !spec["initContainers"][1]["restartPolicyRules"].is_null();
        assert_eq!(has_rules, !ignored.contains(&RestartRules), "{ignored:?}");
        let source = &spec["containers"][0]["env"][0]["valueFrom"];
        assert_eq!(source.get("fileKeyRef").is_some(), has_file, "{ignored:?}");
    }

    #[test]
    fn only_what_is_ignored_goes() {
        let all = [json!("Always"), json!("Never"), json!("OnFailure")];
        let sidecar = [json!("Always"), Value::Null, Value::Null];
        check(&[], all.clone(), true);
        check(&[RestartRules], sidecar.clone(), true);
        check(&[EnvFiles], all, false);
        check(&[RestartRules, EnvFiles], sidecar, false);
    }

    #[test]
    fn what_probes_and_empty_directories_are_asked_for_goes_by_itself() {
        let pod: Pod = Arc::new(
            serde_json::from_value(json!({"spec": {
                "containers": [{
                    "name": "c",
                    "livenessProbe": {"httpGet": {"port": 1, "protocol": "HTTP2"}},
                    "startupProbe": {"grpc": {"port": 1, "mode": "TLS"}},
                }],
                "volumes": [{"name": "v", "emptyDir": {"mode": 448}}],
            }}))
            .unwrap(),
        );
        let all = [ProbesOverHttp2, ProbesOverTls, EmptyDirMode];
        for ignored in all {
            let spec = serde_json::to_value(as_read(&pod, &[ignored]).spec.as_ref()).unwrap();
            let left = [
                "/containers/0/livenessProbe/httpGet/protocol",
                "/containers/0/startupProbe/grpc/mode",
                "/volumes/0/emptyDir/mode",
            ]
            .map(|place| spec.pointer(place).is_some());
            assert_eq!(left, all.map(|it| it != ignored), "{ignored:?}");
        }
    }

    #[test]
    fn a_pod_with_nothing_to_ignore_is_not_copied() {
        let plain: Pod = Arc::new(
            serde_json::from_value(json!({"spec": {"containers": [{"name": "c"}]}})).unwrap(),
        );
        assert!(Arc::ptr_eq(&plain, &as_read(&plain, &[RestartRules, EnvFiles])));
    }
}
