//! What a driver is told and what its object says: pure.

use std::{collections::BTreeMap, fmt::Write as _};

use k8s_openapi::api::{
    core::v1::Node,
    storage::v1::{CSIDriver, CSIDriverSpec, VolumeAttachment},
};
use sha2::{Digest as _, Sha256};

use ferrolet_ports::{MountAsk, VolumeSpec};

/// What the cluster's administrator says of a driver, with the API's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverRules {
    pub(crate) must_be_attached: bool,
    pub(crate) wants_pod: bool,
    pub(crate) republishes: bool,
    pub(crate) tokens_in_secrets: bool,
    pub(crate) tokens: Vec<(String, Option<i64>)>,
    pub(crate) group_policy: GroupPolicy,
    /// How many volumes the node takes is asked from time to time, so a pod that finds it full had
    /// better go elsewhere.
    pub(crate) tells_limit_again: bool,
    /// Its volumes can be mounted with an SELinux label.
    pub(crate) mounts_with_label: bool,
    modes: Option<Vec<String>>,
}

/// When the node gives a driver's volume to the pod's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupPolicy {
    Never,
    Always,
    WithFileSystemAndOneWriter,
}

impl DriverRules {
    /// Reads the driver's object; there need not be one.
    pub(crate) fn of(driver: Option<&CSIDriver>) -> Self {
        let empty = CSIDriverSpec::default();
        let spec = driver.map_or(&empty, |it| &it.spec);
        let tokens = spec.token_requests.iter().flatten();
        Self {
            must_be_attached: spec.attach_required.unwrap_or(true),
            wants_pod: spec.pod_info_on_mount.unwrap_or(false),
            republishes: spec.requires_republish.unwrap_or(false),
            tokens_in_secrets: spec.service_account_token_in_secrets.unwrap_or(false),
            tokens: tokens.map(|it| (it.audience.clone(), it.expiration_seconds)).collect(),
            group_policy: match spec.fs_group_policy.as_deref() {
                Some("None") => GroupPolicy::Never,
                Some("File") => GroupPolicy::Always,
                _ => GroupPolicy::WithFileSystemAndOneWriter,
            },
            tells_limit_again: spec.node_allocatable_update_period_seconds.is_some_and(|it| it > 0),
            mounts_with_label: spec.se_linux_mount.unwrap_or(false),
            modes: driver.map(|it| {
                let modes = it.spec.volume_lifecycle_modes.clone().unwrap_or_default();
                if modes.is_empty() { vec!["Persistent".to_owned()] } else { modes }
            }),
        }
    }

    /// Why the driver does not serve volumes that live so long.
    pub(crate) fn check_mode(&self, driver: &str, mode: &str) -> Result<(), String> {
        match &self.modes {
            None if mode == "Persistent" => Ok(()),
            None => Err(format!(
                "volume mode {mode:?} not supported by driver {driver} (no CSIDriver object)"
            )),
            Some(modes) if modes.iter().any(|it| it == mode) => Ok(()),
            Some(modes) => Err(format!(
                "volume mode {mode:?} not supported by driver {driver} (only supports [{}])",
                modes.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>().join(" ")
            )),
        }
    }

    /// True when the node has to give the volume to the pod's group.
    pub(crate) fn gives_to_group(&self, spec: &VolumeSpec, file_system: &str) -> bool {
        if spec.is_read_only {
            return false;
        }
        match self.group_policy {
            GroupPolicy::Never => false,
            GroupPolicy::Always => true,
            GroupPolicy::WithFileSystemAndOneWriter => {
                let mut modes = spec.access_modes.iter();
                let is_once = modes.any(|it| it == "ReadWriteOnce" || it == "ReadWriteOncePod");
                !file_system.is_empty() && is_once
            }
        }
    }
}

/// The driver's name for a volume that lives with its pod.
pub(crate) fn inline_handle(uid: &str, volume: &str) -> String {
    format!("csi-{}", hash(&format!("{uid}{volume}")))
}

/// The name of the object by which a volume is attached to a node.
pub(crate) fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", hash(&format!("{handle}{driver}{node}")))
}

/// A volume in the node's status.
pub(crate) fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// SHA-256 in hexadecimal.
pub(crate) fn hash(text: &str) -> String {
    let mut shown = String::new();
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a string cannot fail.
        let _ = write!(shown, "{byte:02x}");
    }
    shown
}

/// Why the volume may not be used yet: the node has not been heard to use it, or is not said to
/// have it.
pub(crate) fn check_node(node: &Node, unique: &str) -> Result<(), String> {
    let status = node.status.as_ref();
    let used = status.and_then(|it| it.volumes_in_use.as_deref());
    if !used.unwrap_or_default().iter().any(|it| it == unique) {
        return Err(
            "Volume has not been added to the list of VolumesInUse in the node's volume status"
                .to_owned(),
        );
    }
    let here = status.and_then(|it| it.volumes_attached.as_deref());
    if !here.unwrap_or_default().iter().any(|it| it.name == unique) {
        return Err("Volume not attached according to node status".to_owned());
    }
    Ok(())
}

/// What attaching said, or why the volume is not attached.
pub(crate) fn attached(
    attachment: &VolumeAttachment,
    handle: &str,
) -> Result<BTreeMap<String, String>, String> {
    let name = attachment.metadata.name.as_deref().unwrap_or_default();
    if attachment.metadata.deletion_timestamp.is_some() {
        return Err("volume attachment is being deleted".to_owned());
    }
    let status = attachment.status.as_ref();
    if let Some(status) = status.filter(|it| it.attached) {
        return Ok(status.attachment_metadata.clone().unwrap_or_default());
    }
    let refusal = status.and_then(|it| it.attach_error.as_ref()).and_then(|it| it.message.clone());
    Err(refusal
        .unwrap_or_else(|| format!("volume {handle} is not attached for volume attachment {name}")))
}

/// True when the volume cannot be attached because this node has no room for another.
pub(crate) fn finds_no_room(attachment: &VolumeAttachment) -> bool {
    /// gRPC's `RESOURCE_EXHAUSTED`.
    const EXHAUSTED: i32 = 8;
    let status = attachment.status.as_ref();
    let refusal = status.and_then(|it| it.attach_error.as_ref());
    refusal.and_then(|it| it.error_code) == Some(EXHAUSTED)
}

/// What a driver learns of the pod.
pub(crate) fn pod_attributes(ask: &MountAsk<'_>, is_inline: bool) -> BTreeMap<String, String> {
    let pairs = [
        ("pod.name", ask.key.name.to_string()),
        ("pod.namespace", ask.key.namespace.to_string()),
        ("pod.uid", ask.uid.to_string()),
        ("serviceAccount.name", ask.service_account.to_owned()),
        ("ephemeral", is_inline.to_string()),
    ];
    pairs.into_iter().map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use ferrolet_ports::{VolumeMode, VolumeSource};

    #[test]
    fn names_are_upstreams() {
        assert_eq!(attachment_name("vol", "drv", "node"), format!("csi-{}", hash("voldrvnode")));
        assert_eq!(
            hash("test-vol"),
            "4528e5823c4e4fbeeb0920426f32b9d099cfabc64345e7719f3bce1e4177343d"
        );
        assert_eq!(unique_name("d", "h"), "kubernetes.io/csi/d^h");
    }

    #[test]
    fn lifetimes_that_a_driver_does_not_serve_are_refused_in_upstreams_words() {
        let check = |spec: Option<Value>, mode: &str, expected: Result<(), &str>| {
            let driver = spec.map(|spec| {
                serde_json::from_value::<CSIDriver>(json!({"metadata": {}, "spec": spec})).unwrap()
            });
            let rules = DriverRules::of(driver.as_ref());
            let found = rules.check_mode("d", mode);
            assert_eq!(found.as_ref().map_err(String::as_str).copied(), expected);
        };
        check(None, "Persistent", Ok(()));
        check(
            None,
            "Ephemeral",
            Err("volume mode \"Ephemeral\" not supported by driver d (no CSIDriver object)"),
        );
        check(Some(json!({})), "Persistent", Ok(()));
        check(
            Some(json!({"volumeLifecycleModes": ["Persistent"]})),
            "Ephemeral",
            Err(
                "volume mode \"Ephemeral\" not supported by driver d (only supports [\"Persistent\"])",
            ),
        );
        check(Some(json!({"volumeLifecycleModes": ["Ephemeral"]})), "Ephemeral", Ok(()));
    }

    #[test]
    fn a_policy_says_which_volumes_the_node_gives_to_the_group() {
        let check = |policy: Value, volume: (&str, &str), expected: bool| {
            let (mode, file_system) = volume;
            let object = json!({"metadata": {}, "spec": {"fsGroupPolicy": policy}});
            let driver: CSIDriver = serde_json::from_value(object).unwrap();
            let spec = VolumeSpec {
                name: "v".to_owned(),
                source: VolumeSource::Unsupported("x"),
                is_read_only: false,
                mount_options: Vec::new(),
                access_modes: vec![mode.to_owned()],
                group: None,
                capacity: None,
                mode: VolumeMode::Filesystem,
                claim: None,
                affinity_fault: None,
            };
            let rules = DriverRules::of(Some(&driver));
            let found = rules.gives_to_group(&spec, file_system);
            assert_eq!(found, expected, "{policy} {volume:?}");
            let read_only = VolumeSpec { is_read_only: true, ..spec };
            assert!(!rules.gives_to_group(&read_only, file_system));
        };
        for volume in [("ReadWriteOnce", "ext4"), ("ReadWriteMany", "")] {
            check(json!("None"), volume, false);
            check(json!("File"), volume, true);
        }
        for policy in [json!("ReadWriteOnceWithFSType"), json!(null)] {
            check(policy.clone(), ("ReadWriteOnce", "ext4"), true);
            check(policy.clone(), ("ReadWriteOncePod", "ext4"), true);
            check(policy.clone(), ("ReadWriteOnce", ""), false);
            check(policy.clone(), ("ReadWriteMany", "ext4"), false);
            check(policy, ("ReadOnlyMany", "ext4"), false);
        }
    }

    #[test]
    fn a_volume_is_used_only_after_the_node_was_heard_and_the_volume_is_there() {
        let check = |status: Value, expected: Result<(), &str>| {
            let node = serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap();
            let found = check_node(&node, "v");
            assert_eq!(found.as_ref().map_err(String::as_str).copied(), expected);
        };
        let unheard =
            "Volume has not been added to the list of VolumesInUse in the node's volume status";
        let attached = json!([{"name": "v", "devicePath": ""}]);
        check(json!({}), Err(unheard));
        check(json!({"volumesInUse": ["other"], "volumesAttached": attached}), Err(unheard));
        check(json!({"volumesInUse": ["v"]}), Err("Volume not attached according to node status"));
        check(json!({"volumesInUse": ["v"], "volumesAttached": attached}), Ok(()));
    }

    #[test]
    fn a_full_node_is_told_by_the_code_of_the_refusal() {
        let check = |status: Value, expected: bool| {
            let spec = json!({"attacher": "d", "nodeName": "n", "source": {}});
            let object = json!({"metadata": {}, "spec": spec, "status": status});
            let object: VolumeAttachment = serde_json::from_value(object).unwrap();
            assert_eq!(finds_no_room(&object), expected, "{status}");
        };
        check(json!({"attached": false}), false);
        let refused = |code: Value| json!({"attached": false, "attachError": {"message": "no", "errorCode": code}});
        check(refused(Value::Null), false);
        check(refused(json!(13)), false);
        check(refused(json!(8)), true);
    }

    #[test]
    fn an_attachment_says_what_it_knows() {
        let check = |object: Value, expected: Result<usize, &str>| {
            let object: VolumeAttachment = serde_json::from_value(object).unwrap();
            let found = attached(&object, "h");
            let found = found.as_ref().map(BTreeMap::len).map_err(String::as_str);
            assert_eq!(found, expected);
        };
        let spec = json!({"attacher": "d", "nodeName": "n", "source": {}});
        check(
            json!({"metadata": {"name": "a"}, "spec": spec}),
            Err("volume h is not attached for volume attachment a"),
        );
        check(
            json!({"metadata": {}, "spec": spec, "status": {"attached": false, "attachError": {"message": "no room"}}}),
            Err("no room"),
        );
        check(
            json!({"metadata": {}, "spec": spec, "status": {"attached": true, "attachmentMetadata": {"k": "v"}}}),
            Ok(1),
        );
        check(
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec, "status": {"attached": true}}),
            Err("volume attachment is being deleted"),
        );
    }
}
