//! What a driver is told of a volume: pure.

use std::collections::BTreeMap;

use ferrolet_ports::{FlexVolume, MountAsk, VolumeSpec};
use k8s_openapi::api::core::v1::Secret;

/// What is said beside the volume's own options.
pub(super) type Extra = BTreeMap<String, String>;

/// The options of a volume as the one word that drivers get. What its author wrote comes last and
/// wins, as upstream has it.
pub(super) fn options(volume: &FlexVolume, spec: &VolumeSpec, extra: &Extra) -> String {
    let access = if spec.is_read_only { "ro" } else { "rw" };
    let mut all: BTreeMap<&str, &str> = BTreeMap::from([
        ("kubernetes.io/fsType", volume.file_system.as_str()),
        ("kubernetes.io/readwrite", access),
        ("kubernetes.io/pvOrVolumeName", spec.name.as_str()),
    ]);
    for (key, value) in extra.iter().chain(&volume.options) {
        all.insert(key, value);
    }
    serde_json::json!(all).to_string()
}

/// What is said of the pod when a volume is mounted for it.
pub(super) fn of_pod(ask: &MountAsk<'_>) -> Extra {
    let mut extra: Extra = [
        ("pod.name", ask.key.name.to_string()),
        ("pod.namespace", ask.key.namespace.to_string()),
        ("pod.uid", ask.uid.to_string()),
        ("serviceAccount.name", ask.service_account.to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (format!("kubernetes.io/{key}"), value))
    .collect();
    if let Some(group) = ask.fs_group {
        let key = "kubernetes.io/mounterArgs.FsGroup".to_owned();
        extra.insert(key, group.to_string());
    }
    extra
}

/// What a secret adds, each value in base64; it must be one for that driver.
pub(super) fn of_secret(secret: &Secret, driver: &str) -> Result<Extra, String> {
    if secret.type_.as_deref() != Some(driver) {
        return Err(format!("cannot get secret of type {driver}"));
    }
    let data = secret.data.iter().flatten();
    Ok(data
        .filter_map(|(name, value)| {
            // The API's own form of bytes is base64.
            let shown = serde_json::to_value(value).ok()?;
            let key = format!("kubernetes.io/secret/{name}");
            Some((key, shown.as_str()?.to_owned()))
        })
        .collect())
}

/// A volume in the node's status.
pub(super) fn unique_name(driver: &str, volume: &str) -> String {
    format!("{driver}/{volume}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use ferrolet_ports::{VolumeMode, VolumeSource};
    use ferrolet_types::{PodKey, PodUid};

    use super::*;

    #[test]
    fn options_are_upstreams_and_the_authors_win() {
        let check =
            |volume: FlexVolume, is_read_only: bool, fs_group: Option<u32>, expected: Value| {
                let spec = VolumeSpec {
                    name: "v".to_owned(),
                    source: VolumeSource::Flex(volume.clone()),
                    is_read_only,
                    mount_options: Vec::new(),
                    access_modes: Vec::new(),
                    group: None,
                    capacity: None,
                    mode: VolumeMode::Filesystem,
                    claim: None,
                    affinity_fault: None,
                };
                let ask = MountAsk {
                    uid: &PodUid::new("uid-1"),
                    key: &PodKey::new("default", "p"),
                    service_account: "account",
                    fs_group,
                    spec: &spec,
                    label: None,
                    published: None,
                };
                let text = options(&volume, &spec, &of_pod(&ask));
                assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
            };
        let flex = |file_system: &str, options: &[(&str, &str)]| FlexVolume {
            driver: "ours/disk".to_owned(),
            file_system: file_system.to_owned(),
            options: options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            secret: None,
        };
        check(
            flex("", &[]),
            false,
            None,
            json!({
                "kubernetes.io/fsType": "", "kubernetes.io/readwrite": "rw", "kubernetes.io/pvOrVolumeName": "v",
                "kubernetes.io/pod.name": "p", "kubernetes.io/pod.namespace": "default", "kubernetes.io/pod.uid": "uid-1",
                "kubernetes.io/serviceAccount.name": "account",
            }),
        );
        check(
            flex("xfs", &[("size", "1"), ("kubernetes.io/pod.name", "other")]),
            true,
            Some(7),
            json!({
                "kubernetes.io/fsType": "xfs", "kubernetes.io/readwrite": "ro", "kubernetes.io/pvOrVolumeName": "v",
                "kubernetes.io/pod.name": "other", "kubernetes.io/pod.namespace": "default", "kubernetes.io/pod.uid": "uid-1",
                "kubernetes.io/serviceAccount.name": "account", "kubernetes.io/mounterArgs.FsGroup": "7", "size": "1",
            }),
        );
    }

    #[test]
    fn a_secret_is_told_in_base64_to_the_driver_it_is_for() {
        let secret =
            json!({"metadata": {}, "type": "ours/disk", "data": {"user": "bWU=", "empty": ""}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let told = of_secret(&secret, "ours/disk").unwrap();
        let expected = [("kubernetes.io/secret/empty", ""), ("kubernetes.io/secret/user", "bWU=")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(told, Extra::from(expected));
        let refused = of_secret(&secret, "theirs/disk");
        let why = "cannot get secret of type theirs/disk";
        assert_eq!(refused, Err(why.to_owned()));
    }
}
