//! What a driver is told of a volume: pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;

use crate::{
    plan::PodPlan,
    provided::{FlexVolume, Provided},
};

/// What is said beside the volume's own options.
pub(super) type Extra = BTreeMap<String, String>;

/// The options of a volume as the one word that drivers get. What its author wrote comes last and wins, as upstream has it.
pub(super) fn options(volume: &FlexVolume, provided: &Provided, extra: &Extra) -> String {
    let access = if provided.is_read_only { "ro" } else { "rw" };
    let mut all: BTreeMap<&str, &str> = BTreeMap::from([
        ("kubernetes.io/fsType", volume.file_system.as_str()),
        ("kubernetes.io/readwrite", access),
        ("kubernetes.io/pvOrVolumeName", provided.spec_name.as_str()),
    ]);
    for (key, value) in extra.iter().chain(&volume.options) {
        all.insert(key, value);
    }
    serde_json::json!(all).to_string()
}

/// What is said of the pod when a volume is mounted for it.
pub(super) fn of_pod(plan: &PodPlan) -> Extra {
    let mut extra: Extra = [
        ("pod.name", plan.key.name.to_string()),
        ("pod.namespace", plan.key.namespace.to_string()),
        ("pod.uid", plan.uid.to_string()),
        ("serviceAccount.name", plan.service_account.clone()),
    ]
    .into_iter()
    .map(|(key, value)| (format!("kubernetes.io/{key}"), value))
    .collect();
    if let Some(group) = plan.group {
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

    use super::*;
    use crate::{
        plan::plan_pod,
        provided::{Backing, provided_inline},
        tests::{allocatable, pod},
    };

    #[test]
    fn options_are_upstreams_and_the_authors_win() {
        let check = |source: Value, more: Value, expected: Value| {
            let volumes = json!([{"name": "v", "flexVolume": source}]);
            let pod = pod(volumes.clone(), more);
            let plan = plan_pod(&pod, &allocatable());
            let volume = serde_json::from_value(volumes[0].clone()).unwrap();
            let provided = provided_inline(&volume).unwrap();
            let Backing::Flex(volume) = &provided.backing else {
                panic!("{provided:?}");
            };
            let text = options(volume, &provided, &of_pod(&plan));
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        };
        check(
            json!({"driver": "ours/disk"}),
            json!({}),
            json!({
                "kubernetes.io/fsType": "", "kubernetes.io/readwrite": "rw", "kubernetes.io/pvOrVolumeName": "v",
                "kubernetes.io/pod.name": "p", "kubernetes.io/pod.namespace": "default", "kubernetes.io/pod.uid": "uid-1",
                "kubernetes.io/serviceAccount.name": "account",
            }),
        );
        check(
            json!({"driver": "ours/disk", "fsType": "xfs", "readOnly": true,
                "options": {"size": "1", "kubernetes.io/pod.name": "other"}}),
            json!({"spec": {"securityContext": {"fsGroup": 7}}}),
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
