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
use k8s_openapi::api::core::v1::{Container, PodSpec};

/// What is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredField {
    /// `restartPolicy` and `restartPolicyRules` of containers; a sidecar stays one.
    RestartRules,
    /// `fileKeyRef` of variables, whose value is empty then.
    EnvFiles,
}

impl IgnoredField {
    fn is_in(self, container: &Container) -> bool {
        match self {
            Self::RestartRules => {
                container.restart_policy_rules.is_some() || container.restart_policy.is_some()
            }
            Self::EnvFiles => {
                let sources =
                    container.env.iter().flatten().filter_map(|it| it.value_from.as_ref());
                sources.into_iter().any(|it| it.file_key_ref.is_some())
            }
        }
    }

    fn remove_from(self, container: &mut Container, is_init: bool) {
        match self {
            Self::RestartRules => {
                container.restart_policy_rules = None;
                if !(is_init && is_sidecar(container)) {
                    container.restart_policy = None;
                }
            }
            Self::EnvFiles => {
                let sources = container.env.iter_mut().flatten();
                for source in sources.filter_map(|it| it.value_from.as_mut()) {
                    source.file_key_ref = None;
                }
            }
        }
    }
}

/// The pod as this node reads it: the very same where nothing of it is ignored.
pub(crate) fn as_read(pod: &Pod, ignored: &[IgnoredField]) -> Pod {
    let spec = pod.spec_ref();
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    if !all.any(|container| ignored.iter().any(|field| field.is_in(container))) {
        return Arc::clone(pod);
    }
    let mut pod = (**pod).clone();
    if let Some(spec) = &mut pod.spec {
        remove(spec, ignored);
    }
    Arc::new(pod)
}

fn remove(spec: &mut PodSpec, ignored: &[IgnoredField]) {
    for field in ignored {
        let init = spec.init_containers.iter_mut().flatten();
        init.for_each(|container| field.remove_from(container, true));
        spec.containers.iter_mut().for_each(|container| field.remove_from(container, false));
    }
}

#[cfg(test)]
mod tests {
    use IgnoredField::{EnvFiles, RestartRules};
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
    fn a_pod_with_nothing_to_ignore_is_not_copied() {
        let plain: Pod = Arc::new(
            serde_json::from_value(json!({"spec": {"containers": [{"name": "c"}]}})).unwrap(),
        );
        assert!(Arc::ptr_eq(&plain, &as_read(&plain, &[RestartRules, EnvFiles])));
    }
}
