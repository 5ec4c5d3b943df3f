//! What a static pod may not use: anything that lives in the API, because the pod must run where
//! there is none.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

use super::{text, volumes::source_names};
use crate::fault::Fault;

/// Volume sources that stand for, or are looked up through, an object of the API.
const VOLUMES: [(&str, &str); 7] = [
    ("configMap", "configmaps"),
    ("secret", "secrets"),
    ("csi", "csidrivers"),
    ("glusterfs", "endpoints"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims"),
    ("azureFile", "secrets"),
];

/// One fault for each reference to an object of the API.
pub(crate) fn references(pod: &Pod) -> Vec<Fault> {
    let mut faults = Vec::new();
    let Some(spec) = pod.spec.as_ref() else {
        return faults;
    };
    let mut refuse = |path: String, resource: &str| {
        faults.push(Fault::forbidden(path, &format!("static pods may not reference {resource}")));
    };
    if !text(&spec.service_account_name).is_empty() {
        refuse("spec.serviceAccountName".to_owned(), "serviceaccounts");
    }
    for index in 0..spec.image_pull_secrets.as_ref().map_or(0, Vec::len) {
        refuse(format!("spec.imagePullSecrets[{index}]"), "secrets");
    }
    for index in 0..spec.resource_claims.as_ref().map_or(0, Vec::len) {
        refuse(format!("spec.resourceClaims[{index}]"), "resourceclaims");
    }
    for (path, container) in all_containers(spec) {
        container_references(&path, container, &mut refuse);
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        volume_references(&format!("spec.volumes[{index}]"), volume, &mut refuse);
    }
    faults
}

fn all_containers(spec: &PodSpec) -> impl Iterator<Item = (String, &Container)> {
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(index, it)| (format!("spec.initContainers[{index}]"), it));
    let regular = spec.containers.iter().enumerate();
    init.chain(regular.map(|(index, it)| (format!("spec.containers[{index}]"), it)))
}

fn container_references(path: &str, container: &Container, refuse: &mut impl FnMut(String, &str)) {
    for (index, source) in container.env_from.iter().flatten().enumerate() {
        if source.config_map_ref.is_some() {
            refuse(format!("{path}.envFrom[{index}].configMapRef"), "configmaps");
        }
        if source.secret_ref.is_some() {
            refuse(format!("{path}.envFrom[{index}].secretRef"), "secrets");
        }
    }
    for (index, variable) in container.env.iter().flatten().enumerate() {
        let Some(source) = &variable.value_from else {
            continue;
        };
        let path = format!("{path}.env[{index}].valueFrom");
        if source.config_map_key_ref.is_some() {
            refuse(format!("{path}.configMapKeyRef"), "configmaps");
        }
        if source.secret_key_ref.is_some() {
            refuse(format!("{path}.secretKeyRef"), "secrets");
        }
    }
}

fn volume_references(path: &str, volume: &Volume, refuse: &mut impl FnMut(String, &str)) {
    let sources = source_names(volume);
    for (source, resource) in VOLUMES {
        if sources.iter().any(|name| name == source) {
            refuse(format!("{path}.{source}"), resource);
        }
    }
    // These only refer to the API when they name a secret.
    let named = [
        ("cephfs", volume.cephfs.as_ref().is_some_and(|it| it.secret_ref.is_some())),
        ("cinder", volume.cinder.as_ref().is_some_and(|it| it.secret_ref.is_some())),
        ("flexVolume", volume.flex_volume.as_ref().is_some_and(|it| it.secret_ref.is_some())),
        ("rbd", volume.rbd.as_ref().is_some_and(|it| it.secret_ref.is_some())),
        ("scaleIO", volume.scale_io.as_ref().is_some_and(|it| !it.secret_ref.name.is_empty())),
        ("iscsi", volume.iscsi.as_ref().is_some_and(|it| it.secret_ref.is_some())),
        ("storageos", volume.storageos.as_ref().is_some_and(|it| it.secret_ref.is_some())),
    ];
    for (source, _) in named.into_iter().filter(|(_, refers)| *refers) {
        refuse(format!("{path}.{source}.secretRef"), "secrets");
    }
    let projections = volume.projected.iter().flat_map(|it| &it.sources).flatten();
    for (index, projection) in projections.enumerate() {
        let path = format!("{path}.projected.sources[{index}]");
        for (is_there, source, resource) in [
            (projection.config_map.is_some(), "configMap", "configmaps"),
            (projection.secret.is_some(), "secret", "secrets"),
            (projection.service_account_token.is_some(), "serviceAccountToken", "serviceaccounts"),
            (
                projection.cluster_trust_bundle.is_some(),
                "clusterTrustBundle",
                "clustertrustbundles",
            ),
            (projection.pod_certificate.is_some(), "podCertificate", "podcertificates"),
        ] {
            if is_there {
                refuse(format!("{path}.{source}"), resource);
            }
        }
    }
}
