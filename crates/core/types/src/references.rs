//! Which secrets and config maps a pod refers to. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Pod, PodSpec, Volume};

/// Names in the pod's own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Secrets.
    pub secrets: BTreeSet<String>,
    /// Config maps.
    pub config_maps: BTreeSet<String>,
}

/// Everything a pod names: for pulling images, in environment variables, in volumes.
pub fn references(pod: &Pod) -> References {
    let mut found = References::default();
    let Some(spec) = &pod.spec else {
        return found;
    };
    for secret in spec.image_pull_secrets.iter().flatten() {
        found.secret(Some(&secret.name));
    }
    environment(spec, &mut found);
    for volume in spec.volumes.iter().flatten() {
        volume_references(volume, &mut found);
    }
    found
}

impl References {
    fn secret(&mut self, name: Option<&String>) {
        let name = name.filter(|name| !name.is_empty());
        self.secrets.extend(name.cloned());
    }

    fn config_map(&mut self, name: Option<&String>) {
        let name = name.filter(|name| !name.is_empty());
        self.config_maps.extend(name.cloned());
    }
}

fn environment(spec: &PodSpec, found: &mut References) {
    let regular = spec.containers.iter();
    let regular = regular.chain(spec.init_containers.iter().flatten());
    let regular = regular.map(|it| (&it.env_from, &it.env));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|it| (&it.env_from, &it.env));
    for (env_from, env) in regular.chain(ephemeral) {
        for source in env_from.iter().flatten() {
            whole_source(source, found);
        }
        for variable in env.iter().flatten() {
            one_variable(variable, found);
        }
    }
}

fn whole_source(source: &EnvFromSource, found: &mut References) {
    found.secret(source.secret_ref.as_ref().map(|it| &it.name));
    found.config_map(source.config_map_ref.as_ref().map(|it| &it.name));
}

fn one_variable(variable: &EnvVar, found: &mut References) {
    let Some(source) = &variable.value_from else {
        return;
    };
    found.secret(source.secret_key_ref.as_ref().map(|it| &it.name));
    found.config_map(source.config_map_key_ref.as_ref().map(|it| &it.name));
}

fn volume_references(volume: &Volume, found: &mut References) {
    let secret = volume.secret.as_ref();
    found.secret(secret.and_then(|it| it.secret_name.as_ref()));
    found.config_map(volume.config_map.as_ref().map(|it| &it.name));
    let projected = volume.projected.as_ref();
    let sources = projected.and_then(|it| it.sources.as_ref());
    for source in sources.into_iter().flatten() {
        found.secret(source.secret.as_ref().map(|it| &it.name));
        found.config_map(source.config_map.as_ref().map(|it| &it.name));
    }
    found.secret(volume.azure_file.as_ref().map(|it| &it.secret_name));
    let local = [
        volume.cephfs.as_ref().map(|it| &it.secret_ref),
        volume.cinder.as_ref().map(|it| &it.secret_ref),
        volume.flex_volume.as_ref().map(|it| &it.secret_ref),
        volume.rbd.as_ref().map(|it| &it.secret_ref),
        volume.iscsi.as_ref().map(|it| &it.secret_ref),
        volume.storageos.as_ref().map(|it| &it.secret_ref),
        volume.csi.as_ref().map(|it| &it.node_publish_secret_ref),
    ];
    for reference in local.into_iter().flatten().flatten() {
        found.secret(Some(&reference.name));
    }
    let scale_io = volume.scale_io.as_ref();
    found.secret(scale_io.map(|it| &it.secret_ref.name));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_where_a_pod_can_name_something_is_known() {
        let spec = json!({
            "imagePullSecrets": [{"name": "pull"}, {"name": ""}],
            "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "s1"}}, {"configMapRef": {"name": "m1"}}],
                "env": [{"name": "A", "value": "x"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}},
                    {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m2", "key": "k"}}}]}],
            "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s3"}}]}],
            "ephemeralContainers": [{"name": "e", "envFrom": [{"configMapRef": {"name": "m3"}}]}],
            "volumes": [{"name": "a", "secret": {"secretName": "s4"}}, {"name": "b", "configMap": {"name": "m4"}},
                {"name": "c", "projected": {"sources": [{"secret": {"name": "s5"}}, {"configMap": {"name": "m5"}},
                    {"serviceAccountToken": {"path": "token"}}]}},
                {"name": "d", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "s6"}}},
                {"name": "e", "emptyDir": {}}],
        });
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        let found = references(&serde_json::from_value(pod).unwrap());
        let names = |set: &BTreeSet<String>| -> Vec<String> { set.iter().cloned().collect() };
        assert_eq!(names(&found.secrets), ["pull", "s1", "s2", "s3", "s4", "s5", "s6"]);
        assert_eq!(names(&found.config_maps), ["m1", "m2", "m3", "m4", "m5"]);
    }
}
