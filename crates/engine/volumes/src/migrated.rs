//! Persistent volumes of clouds that Kubernetes once had built in, as their CSI drivers know them.
//!
//! In: a persistent volume whose source is one of seven. Out: the driver, the handle and the
//! attributes, to the letter of upstream's translation, because controller and driver compute the
//! same from the same object. Pure. The node says in its `CSINode` that it does this
//! ([`crate::csi`]). Refuses: looking anything up, and volumes that a pod names without a claim.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_ports::{CsiVolume, SecretReference};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};

/// What is written where nobody knows better.
const UNSPECIFIED: &str = "UNSPECIFIED";
/// Between the zones of a label.
const BETWEEN_ZONES: &str = "__";
/// Where the zone of a disk stands, in the order in which it is looked for.
const ZONE_LABELS: [&str; 2] =
    ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";
const SECRET_NAME: &str = "openstorage.io/auth-secret-name";
const SECRET_NAMESPACE: &str = "openstorage.io/auth-secret-namespace";

/// A volume as its driver knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Migrated {
    pub(crate) volume: CsiVolume,
    pub(crate) is_read_only: bool,
}

/// The volume of a driver that stands behind a source of old; `None` for any other source, and why
/// it cannot be said.
pub(crate) fn migrated(volume: &PersistentVolume) -> Option<Result<Migrated, String>> {
    let spec = volume.spec.as_ref()?;
    Some(if let Some(it) = &spec.aws_elastic_block_store {
        aws_disk_id(&it.volume_id).map(|handle| {
            let partition = it.partition.unwrap_or(0).to_string();
            let volume = csi("ebs.csi.aws.com", handle, &it.fs_type);
            with(volume, it.read_only, [("partition", partition)])
        })
    } else if let Some(it) = &spec.azure_disk {
        match it.kind.as_deref().filter(|kind| !kind.eq_ignore_ascii_case("Managed")) {
            Some(kind) => Err(format!("kind({kind}) is not supported in csi migration")),
            None => {
                let volume = csi("disk.csi.azure.com", it.disk_uri.clone(), &it.fs_type);
                let given = [("cachingmode", &it.caching_mode), ("fstype", &it.fs_type)];
                let given = given.into_iter().filter_map(|(key, it)| Some((key, it.clone()?)));
                let kind = ("kind", "Managed".to_owned());
                Ok(with(volume, it.read_only, given.chain([kind])))
            }
        }
    } else if spec.azure_file.is_some() {
        azure_share(volume, spec)
    } else if let Some(it) = &spec.cinder {
        let volume = csi("cinder.csi.openstack.org", it.volume_id.clone(), &it.fs_type);
        Ok(with(volume, it.read_only, []))
    } else if let Some(it) = &spec.gce_persistent_disk {
        google_disk_id(volume, &it.pd_name).map(|handle| {
            let partition = it.partition.filter(|it| *it != 0);
            let partition = partition.map(|it| it.to_string()).unwrap_or_default();
            let volume = csi("pd.csi.storage.gke.io", handle, &it.fs_type);
            with(volume, it.read_only, [("partition", partition)])
        })
    } else if let Some(it) = &spec.portworx_volume {
        let annotation = |key: &str| volume.metadata.annotations.as_ref()?.get(key).cloned();
        let secret: Option<SecretReference> =
            annotation(SECRET_NAMESPACE).zip(annotation(SECRET_NAME));
        let volume = CsiVolume {
            stage_secret: secret.clone(),
            publish_secret: secret.clone(),
            expand_secret: secret,
            ..csi("pxd.portworx.com", it.volume_id.clone(), &it.fs_type)
        };
        Ok(with(volume, None, []))
    } else if let Some(it) = &spec.vsphere_volume {
        let volume = csi("csi.vsphere.vmware.com", it.volume_path.clone(), &it.fs_type);
        let policy = it.storage_policy_name.clone().filter(|it| !it.is_empty());
        Ok(with(volume, None, policy.map(|it| ("storagepolicyname", it))))
    } else {
        return None;
    })
}

/// What a disk's access modes mean to its driver: Google's knows no disk that many write to, and
/// upstream's own code took those for what one writes to.
pub(crate) fn access_modes(spec: &PersistentVolumeSpec) -> Vec<String> {
    let given = spec.access_modes.clone().unwrap_or_default();
    if spec.gce_persistent_disk.is_none() || given.is_empty() {
        return given;
    }
    let only_readers = given.iter().all(|mode| mode == "ReadOnlyMany");
    vec![if only_readers { "ReadOnlyMany" } else { "ReadWriteOnce" }.to_owned()]
}

fn csi(driver: &str, handle: String, file_system: &Option<String>) -> CsiVolume {
    CsiVolume {
        driver: driver.to_owned(),
        handle,
        file_system: file_system.clone().unwrap_or_default(),
        attributes: BTreeMap::new(),
        is_inline: false,
        stage_secret: None,
        publish_secret: None,
        expand_secret: None,
    }
}

fn with(
    volume: CsiVolume,
    is_read_only: Option<bool>,
    attributes: impl IntoIterator<Item = (&'static str, String)>,
) -> Migrated {
    let attributes = attributes.into_iter().map(|(key, value)| (key.to_owned(), value));
    Migrated {
        volume: CsiVolume { attributes: attributes.collect(), ..volume },
        is_read_only: is_read_only.unwrap_or(false),
    }
}

/// `vol-…`, which older objects write as `aws://ZONE/vol-…`.
fn aws_disk_id(text: &str) -> Result<String, String> {
    let Some(rest) = text.strip_prefix("aws://") else {
        return Ok(text.to_owned());
    };
    let path = rest.split_once('/').map_or("", |(_, path)| path).trim_matches('/');
    if !path.starts_with("vol-") || path.contains('/') {
        return Err(format!(
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({text})"
        ));
    }
    Ok(path.to_owned())
}

fn google_disk_id(volume: &PersistentVolume, name: &str) -> Result<String, String> {
    let label = |key: &&str| volume.metadata.labels.as_ref()?.get(*key).filter(|it| !it.is_empty());
    let zones = ZONE_LABELS.iter().find_map(label);
    let place = match zones.map(|it| it.split(BETWEEN_ZONES).collect::<Vec<_>>()).as_deref() {
        None => format!("zones/{UNSPECIFIED}"),
        Some([zone]) => format!("zones/{zone}"),
        Some(zones) => format!("regions/{}", region_of(zones)?),
    };
    Ok(format!("projects/{UNSPECIFIED}/{place}/disks/{name}"))
}

/// The one region that all zones lie in.
fn region_of(zones: &[&str]) -> Result<String, String> {
    let failed = |why: String| format!("failed to get region from zones: {why}");
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [locale, region, _] = parts[..] else {
            return Err(failed(format!(
                "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    match regions.pop_first() {
        Some(region) if regions.is_empty() => Ok(region),
        _ => Err(failed(format!("multiple or no regions gotten from zones, got: {zones:?}"))),
    }
}

fn azure_share(volume: &PersistentVolume, spec: &PersistentVolumeSpec) -> Result<Migrated, String> {
    let source = spec.azure_file.as_ref().ok_or("no share of Azure")?;
    let of_claim = spec.claim_ref.as_ref().and_then(|it| it.namespace.clone());
    let namespace = source.secret_namespace.clone().or(of_claim).filter(|it| !it.is_empty());
    let namespace = namespace
        .ok_or("could not find a secret namespace in PersistentVolumeSource or ClaimRef")?;
    let account = source.secret_name.strip_prefix("azure-storage-account-");
    let account = account.and_then(|it| it.strip_suffix("-secret"));
    let account = account.filter(|it| !it.is_empty()).unwrap_or(&source.secret_name);
    let annotations = volume.metadata.annotations.as_ref();
    let group = annotations.and_then(|it| it.get(RESOURCE_GROUP)).map_or("", String::as_str);
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let handle = format!("{group}#{account}#{}#{name}#{namespace}", source.share_name);
    let volume = CsiVolume {
        stage_secret: Some((namespace, source.secret_name.clone())),
        ..csi("file.csi.azure.com", handle, &None)
    };
    Ok(with(volume, source.read_only, [("sharename", source.share_name.clone())]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(spec: Value, metadata: Value) -> PersistentVolume {
        let mut volume: PersistentVolume =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        volume.metadata.name = Some("pv".to_owned());
        volume
    }

    /// `driver handle {attributes}`, and `ro` for one that is only read.
    fn shown(spec: Value, metadata: Value) -> String {
        match migrated(&volume(spec, metadata)) {
            None => "not one of them".to_owned(),
            Some(Err(why)) => why,
            Some(Ok(it)) => {
                let attributes = serde_json::to_string(&it.volume.attributes).unwrap();
                let end = if it.is_read_only { " ro" } else { "" };
                format!("{} {} {attributes}{end}", it.volume.driver, it.volume.handle)
            }
        }
    }

    #[test]
    fn each_source_is_what_its_driver_knows() {
        let check = |spec: Value, metadata: Value, expected: &str| {
            assert_eq!(shown(spec.clone(), metadata), expected, "{spec}");
        };
        let ebs = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id, "readOnly": true}});
        let plain = || json!({});
        check(ebs("vol-1"), plain(), r#"ebs.csi.aws.com vol-1 {"partition":"0"} ro"#);
        check(ebs("aws://us-1a/vol-1"), plain(), r#"ebs.csi.aws.com vol-1 {"partition":"0"} ro"#);
        check(
            ebs("aws://us-1a/disk"),
            plain(),
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://us-1a/disk)",
        );
        let azure = |kind: &str| json!({"azureDisk": {"diskName": "d", "diskURI": "/sub/d", "kind": kind, "fsType": "xfs", "cachingMode": "None"}});
        check(
            azure("managed"),
            plain(),
            r#"disk.csi.azure.com /sub/d {"cachingmode":"None","fstype":"xfs","kind":"Managed"}"#,
        );
        check(azure("Shared"), plain(), "kind(Shared) is not supported in csi migration");
        let cinder = json!({"cinder": {"volumeID": "c-1"}});
        check(cinder, plain(), "cinder.csi.openstack.org c-1 {}");
        let portworx = json!({"portworxVolume": {"volumeID": "p-1"}});
        check(portworx, plain(), "pxd.portworx.com p-1 {}");
        let vsphere =
            json!({"vsphereVolume": {"volumePath": "[d] a.vmdk", "storagePolicyName": "gold"}});
        check(
            vsphere,
            plain(),
            r#"csi.vsphere.vmware.com [d] a.vmdk {"storagepolicyname":"gold"}"#,
        );
        check(json!({"nfs": {"server": "s", "path": "/"}}), plain(), "not one of them");
    }

    #[test]
    fn a_disk_of_google_stands_in_its_zone_or_region() {
        let check = |labels: Value, place: &str| {
            let spec = json!({"gcePersistentDisk": {"pdName": "d", "partition": 1}});
            let expected = match place.split_once(' ') {
                Some(_) => place.to_owned(),
                None => format!(
                    "pd.csi.storage.gke.io projects/UNSPECIFIED/{place}/disks/d {{\"partition\":\"1\"}}"
                ),
            };
            assert_eq!(shown(spec, json!({"labels": labels})), expected, "{labels}");
        };
        let old = "failure-domain.beta.kubernetes.io/zone";
        let new = "topology.kubernetes.io/zone";
        check(json!({}), "zones/UNSPECIFIED");
        check(json!({new: "us-east1-a"}), "zones/us-east1-a");
        check(json!({old: "us-east1-b", new: "us-east1-a"}), "zones/us-east1-b");
        check(json!({new: "us-east1-a__us-east1-b"}), "regions/us-east1");
        check(
            json!({new: "us-east1-a__us-west1-b"}),
            "failed to get region from zones: multiple or no regions gotten from zones, got: [\"us-east1-a\", \"us-west1-b\"]",
        );
    }

    #[test]
    fn what_many_write_to_is_written_by_one_on_a_disk_of_google() {
        let check = |modes: Value, expected: &[&str]| {
            let disk = json!({"gcePersistentDisk": {"pdName": "d"}, "accessModes": modes});
            assert_eq!(access_modes(volume(disk, json!({})).spec.as_ref().unwrap()), expected);
        };
        check(json!(["ReadWriteMany"]), &["ReadWriteOnce"]);
        check(json!(["ReadOnlyMany"]), &["ReadOnlyMany"]);
        check(json!(["ReadOnlyMany", "ReadWriteOnce"]), &["ReadWriteOnce"]);
        let other = json!({"cinder": {"volumeID": "c"}, "accessModes": ["ReadWriteMany"]});
        let other = volume(other, json!({}));
        assert_eq!(access_modes(other.spec.as_ref().unwrap()), ["ReadWriteMany"]);
    }

    #[test]
    fn a_share_of_azure_names_account_and_namespace() {
        let share = |more: Value| {
            let mut spec = json!({
                "azureFile": {"shareName": "s", "secretName": "azure-storage-account-acc-secret"},
                "claimRef": {"namespace": "shop"},
            });
            spec["azureFile"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        let group = json!({"annotations": {RESOURCE_GROUP: "g"}});
        let expected = r##"file.csi.azure.com g#acc#s#pv#shop {"sharename":"s"}"##;
        assert_eq!(shown(share(json!({})), group), expected);
        let own = share(json!({"secretName": "mine", "secretNamespace": "ns"}));
        let found = migrated(&volume(own, json!({}))).unwrap().unwrap();
        assert_eq!(found.volume.handle, "#mine#s#pv#ns");
        assert_eq!(found.volume.stage_secret, Some(("ns".to_owned(), "mine".to_owned())));
        let lost = json!({"azureFile": {"shareName": "s", "secretName": "x"}});
        assert!(migrated(&volume(lost, json!({}))).unwrap().is_err());
    }

    #[test]
    fn a_volume_of_portworx_takes_its_secret_from_annotations() {
        let spec = json!({"portworxVolume": {"volumeID": "p"}});
        let annotations = json!({SECRET_NAME: "s", SECRET_NAMESPACE: "ns"});
        let found = migrated(&volume(spec, json!({"annotations": annotations}))).unwrap().unwrap();
        let secret = Some(("ns".to_owned(), "s".to_owned()));
        let volume = found.volume;
        assert_eq!(
            (volume.stage_secret, volume.publish_secret, volume.expand_secret),
            (secret.clone(), secret.clone(), secret)
        );
    }
}
