//! The API's defaults for pods, so that the rest of the agent sees a static pod as the API server
//! would have stored it.
//!
//! In: a pod as written. Out: the same pod with every field that the API fills in. Empty text and
//! zero count as unset, as in Go. Matches `SetObjectDefaults_Pod` of upstream's core/v1 with the
//! default feature gates of 1.37. Ephemeral containers are left alone: a static pod with them is
//! refused. Refuses: validation, identity.

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, EnvVar, HTTPGetAction, ObjectFieldSelector, Pod, PodIP,
    PodSpec, PodStatus, Probe, Volume,
};

use crate::image;

/// Mode of files in volumes made from data: `0644`.
const FILE_MODE: i32 = 0o644;
/// Seconds a service account token lives.
const TOKEN_SECONDS: i64 = 3600;

/// Fills in what the author left out.
pub(crate) fn apply(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    for container in containers(spec) {
        default_container(container);
    }
    default_spec(spec);
    for volume in spec.volumes.iter_mut().flatten() {
        default_volume(volume);
    }
    if let Some(status) = pod.status.as_mut() {
        default_status(status);
    }
}

/// Init containers, then regular ones.
pub(crate) fn containers(spec: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    let init = spec.init_containers.iter_mut().flatten();
    init.chain(spec.containers.iter_mut())
}

fn default_spec(spec: &mut PodSpec) {
    // A negative grace means the shortest one.
    if spec.termination_grace_period_seconds.is_some_and(|secs| secs < 0) {
        spec.termination_grace_period_seconds = Some(1);
    }
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
    if spec.host_network == Some(true) {
        let ports = containers(spec).flat_map(|container| &mut container.ports);
        for port in ports.flatten() {
            number_or(&mut port.host_port, port.container_port);
        }
    }
    // Two names of one field.
    let account = spec.service_account_name.take().filter(|name| !name.is_empty());
    let account = account.or_else(|| spec.service_account.take().filter(|name| !name.is_empty()));
    spec.service_account.clone_from(&account);
    spec.service_account_name = account;
    text_or(&mut spec.dns_policy, "ClusterFirst");
    text_or(&mut spec.restart_policy, "Always");
    text_or(&mut spec.scheduler_name, "default-scheduler");
    spec.security_context.get_or_insert_default();
}

/// The one address and the list of addresses say the same; the one address wins.
fn default_status(status: &mut PodStatus) {
    let address = status.pod_ip.clone().filter(|address| !address.is_empty());
    let first = status.pod_ips.iter().flatten().next().map(|it| it.ip.clone());
    match (address, first) {
        (Some(address), first) if first.as_ref() != Some(&address) => {
            status.pod_ips = Some(vec![PodIP { ip: address }]);
        }
        (None, Some(first)) => status.pod_ip = Some(first),
        _ => {}
    }
}

fn default_container(container: &mut Container) {
    let reference = container.image.as_deref().unwrap_or_default();
    text_or(&mut container.image_pull_policy, image::default_pull_policy(reference));
    text_or(&mut container.termination_message_path, "/dev/termination-log");
    text_or(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        text_or(&mut port.protocol, "TCP");
    }
    for variable in container.env.iter_mut().flatten() {
        default_variable(variable);
    }
    if let Some(resources) = container.resources.as_mut()
        && let Some(limits) = &resources.limits
    {
        // What is limited and not requested is requested in full.
        let requests = resources.requests.get_or_insert_default();
        for (name, quantity) in limits {
            requests.entry(name.clone()).or_insert_with(|| quantity.clone());
        }
    }
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    for probe in probes.into_iter().flatten() {
        default_probe(probe);
    }
    if let Some(lifecycle) = container.lifecycle.as_mut() {
        let handlers = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
        let requests = handlers.into_iter().flatten().flat_map(|it| &mut it.http_get);
        requests.for_each(default_http_get);
    }
}

fn default_variable(variable: &mut EnvVar) {
    let Some(source) = variable.value_from.as_mut() else {
        return;
    };
    source.field_ref.iter_mut().for_each(default_field_ref);
    if let Some(file) = source.file_key_ref.as_mut() {
        file.optional.get_or_insert(false);
    }
}

fn default_probe(probe: &mut Probe) {
    number_or(&mut probe.timeout_seconds, 1);
    number_or(&mut probe.period_seconds, 10);
    number_or(&mut probe.success_threshold, 1);
    number_or(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(default_http_get);
    if let Some(grpc) = probe.grpc.as_mut() {
        grpc.service.get_or_insert_default();
    }
}

fn default_http_get(action: &mut HTTPGetAction) {
    text_or(&mut action.path, "/");
    text_or(&mut action.scheme, "HTTP");
}

fn default_field_ref(selector: &mut ObjectFieldSelector) {
    text_or(&mut selector.api_version, "v1");
}

fn default_files(files: &mut Option<Vec<DownwardAPIVolumeFile>>) {
    let references = files.iter_mut().flatten().flat_map(|file| &mut file.field_ref);
    references.for_each(default_field_ref);
}

fn default_volume(volume: &mut Volume) {
    let bare = Volume { name: volume.name.clone(), ..Volume::default() };
    if *volume == bare {
        volume.empty_dir = Some(Default::default());
    }
    if let Some(image) = volume.image.as_mut() {
        let reference = image.reference.clone().unwrap_or_default();
        text_or(&mut image.pull_policy, image::default_pull_policy(&reference));
    }
    if let Some(host_path) = volume.host_path.as_mut() {
        host_path.type_.get_or_insert_default();
    }
    if let Some(secret) = volume.secret.as_mut() {
        secret.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(config_map) = volume.config_map.as_mut() {
        config_map.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(downward_api) = volume.downward_api.as_mut() {
        downward_api.default_mode.get_or_insert(FILE_MODE);
        default_files(&mut downward_api.items);
    }
    if let Some(projected) = volume.projected.as_mut() {
        projected.default_mode.get_or_insert(FILE_MODE);
        for source in projected.sources.iter_mut().flatten() {
            if let Some(downward_api) = source.downward_api.as_mut() {
                default_files(&mut downward_api.items);
            }
            if let Some(token) = source.service_account_token.as_mut() {
                token.expiration_seconds.get_or_insert(TOKEN_SECONDS);
            }
        }
    }
    default_network_volume(volume);
}

/// Sources that live outside the node and need no API object.
fn default_network_volume(volume: &mut Volume) {
    if let Some(iscsi) = volume.iscsi.as_mut() {
        text_or(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = volume.rbd.as_mut() {
        text_or(&mut rbd.pool, "rbd");
        text_or(&mut rbd.user, "admin");
        text_or(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(disk) = volume.azure_disk.as_mut() {
        disk.caching_mode.get_or_insert_with(|| "ReadWrite".to_owned());
        disk.fs_type.get_or_insert_with(|| "ext4".to_owned());
        disk.read_only.get_or_insert(false);
        disk.kind.get_or_insert_with(|| "Shared".to_owned());
    }
    if let Some(scale_io) = volume.scale_io.as_mut() {
        text_or(&mut scale_io.storage_mode, "ThinProvisioned");
        text_or(&mut scale_io.fs_type, "xfs");
    }
    if let Some(template) =
        volume.ephemeral.as_mut().and_then(|it| it.volume_claim_template.as_mut())
    {
        template.spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
    }
}

fn text_or(field: &mut Option<String>, default: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(default.to_owned());
    }
}

fn number_or(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(default);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaulted(value: serde_json::Value) -> serde_json::Value {
        let mut pod: Pod = serde_json::from_value(value).unwrap();
        apply(&mut pod);
        serde_json::to_value(&pod).unwrap()
    }

    #[test]
    fn an_empty_pod_gets_what_the_api_stores() {
        let pod =
            defaulted(serde_json::json!({"spec": {"containers": [{"name": "a", "image": "b:1"}]}}));
        assert_eq!(
            pod["spec"],
            serde_json::json!({
                "containers": [{
                    "name": "a", "image": "b:1", "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
                "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
            })
        );
    }

    #[test]
    fn empty_text_and_zero_count_as_unset() {
        let pod = defaulted(
            serde_json::json!({"spec": {"restartPolicy": "", "terminationGracePeriodSeconds": -5, "containers": [
            {"name": "a", "image": "b", "livenessProbe": {"periodSeconds": 0, "httpGet": {"port": 1, "path": ""}}}]}}),
        );
        assert_eq!(pod["spec"]["restartPolicy"], "Always");
        assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 1);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["livenessProbe"]["periodSeconds"], 10);
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/");
        assert_eq!(container["imagePullPolicy"], "Always");
    }
}
