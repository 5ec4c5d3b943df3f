//! Volumes that the node does not make itself: what a persistent volume, or a pod in its own words,
//! says of one. Pure.
//!
//! In: objects of the API. Out: [`VolumeSpec`], everything that a plugin needs to mount it. Refuses:
//! looking anything up.

use std::collections::BTreeMap;

use ferrolet_ports::{
    CsiVolume, Disk, DiskKind, DiskVolume, FcDisk, FlexVolume, HostPathType, IscsiDisk,
    SecretReference, VolumeMode, VolumeSource, VolumeSpec,
};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, CSIVolumeSource, FCVolumeSource, ISCSIVolumeSource, NFSVolumeSource,
    PersistentVolume, PersistentVolumeSpec, Volume,
};

use crate::migrated::{access_modes, migrated};

/// The annotation by which an administrator lends a volume's group to its users.
const GROUP_ANNOTATION: &str = "pv.beta.kubernetes.io/gid";
/// The annotation that mount options had before they had a field.
const OPTIONS_ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

/// What a pod names in its own words, without a claim.
pub(crate) fn inline_spec(volume: &Volume) -> Option<VolumeSpec> {
    let (source, is_read_only) = if let Some(nfs) = &volume.nfs {
        (nfs_source(nfs), nfs.read_only.unwrap_or(false))
    } else if let Some(csi) = &volume.csi {
        (VolumeSource::Csi(inline_csi(csi)), csi.read_only.unwrap_or(false))
    } else if let Some(iscsi) = &volume.iscsi {
        let secret = iscsi.secret_ref.as_ref();
        let secret = secret.map(|it| (String::new(), it.name.clone()));
        let it = VolumeSource::Disk(iscsi_volume(iscsi.clone(), secret, &volume.name));
        (it, iscsi.read_only.unwrap_or(false))
    } else if let Some(fc) = &volume.fc {
        (VolumeSource::Disk(fc_volume(fc)), fc.read_only.unwrap_or(false))
    } else if let Some(flex) = &volume.flex_volume {
        let secret = flex.secret_ref.as_ref();
        let it = VolumeSource::Flex(FlexVolume {
            driver: flex.driver.clone(),
            file_system: flex.fs_type.clone().unwrap_or_default(),
            options: flex.options.clone().unwrap_or_default(),
            secret: secret.map(|it| (String::new(), it.name.clone())),
        });
        (it, flex.read_only.unwrap_or(false))
    } else {
        return None;
    };
    Some(VolumeSpec {
        name: volume.name.clone(),
        source,
        is_read_only,
        mount_options: Vec::new(),
        access_modes: vec!["ReadWriteOnce".to_owned()],
        group: None,
        capacity: None,
        mode: VolumeMode::Filesystem,
        claim: None,
        affinity_fault: None,
    })
}

/// What a persistent volume is, for a pod that may only want to read it; or why that cannot be said
/// of one that a driver took over.
pub(crate) fn persistent_spec(
    volume: &PersistentVolume,
    is_read_only: bool,
) -> Result<VolumeSpec, String> {
    let empty = PersistentVolumeSpec::default();
    let spec = volume.spec.as_ref().unwrap_or(&empty);
    let annotation = |key: &str| volume.metadata.annotations.as_ref()?.get(key);
    let options = annotation(OPTIONS_ANNOTATION)
        .into_iter()
        .flat_map(|text| text.split(','))
        .map(str::to_owned)
        .chain(spec.mount_options.iter().flatten().cloned());
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let (source, is_source_read_only) = match migrated(volume) {
        Some(found) => {
            let found = found?;
            (VolumeSource::Csi(found.volume), found.is_read_only)
        }
        None => source_of(spec, name),
    };
    Ok(VolumeSpec {
        name: volume.metadata.name.clone().unwrap_or_default(),
        source,
        is_read_only: is_read_only || is_source_read_only,
        mount_options: options.collect(),
        access_modes: access_modes(spec),
        group: annotation(GROUP_ANNOTATION).and_then(|text| text.parse().ok()),
        capacity: spec
            .capacity
            .as_ref()
            .and_then(|amounts| amounts.get("storage"))
            .and_then(|text| ferrolet_types::Quantity::parse(&text.0).ok())
            .map(ferrolet_types::Quantity::value),
        mode: match spec.volume_mode.as_deref() {
            Some("Block") => VolumeMode::Block,
            _ => VolumeMode::Filesystem,
        },
        claim: None,
        affinity_fault: None,
    })
}

fn source_of(spec: &PersistentVolumeSpec, name: &str) -> (VolumeSource, bool) {
    if let Some(source) = &spec.host_path {
        let it = VolumeSource::HostPath {
            path: source.path.clone(),
            expected: HostPathType::parse(source.type_.as_deref()),
        };
        return (it, false);
    }
    if let Some(source) = &spec.local {
        let file_system = source.fs_type.clone().filter(|it| !it.is_empty());
        let it = VolumeSource::Local {
            path: source.path.clone(),
            file_system: file_system.unwrap_or_else(|| "ext4".to_owned()),
        };
        return (it, false);
    }
    if let Some(source) = &spec.nfs {
        return (nfs_source(source), source.read_only.unwrap_or(false));
    }
    if let Some(source) = &spec.csi {
        let it = VolumeSource::Csi(persistent_csi(source));
        return (it, source.read_only.unwrap_or(false));
    }
    if let Some(source) = spec.iscsi.clone() {
        let secret = source.secret_ref.as_ref().map(|it| {
            (it.namespace.clone().unwrap_or_default(), it.name.clone().unwrap_or_default())
        });
        let is_read_only = source.read_only.unwrap_or(false);
        // The same fields, but for the secret's namespace.
        let source = ISCSIVolumeSource {
            chap_auth_discovery: source.chap_auth_discovery,
            chap_auth_session: source.chap_auth_session,
            fs_type: source.fs_type,
            initiator_name: source.initiator_name,
            iqn: source.iqn,
            iscsi_interface: source.iscsi_interface,
            lun: source.lun,
            portals: source.portals,
            read_only: source.read_only,
            secret_ref: None,
            target_portal: source.target_portal,
        };
        let it = VolumeSource::Disk(iscsi_volume(source, secret, name));
        return (it, is_read_only);
    }
    if let Some(source) = &spec.flex_volume {
        let secret = source.secret_ref.as_ref();
        let it = VolumeSource::Flex(FlexVolume {
            driver: source.driver.clone(),
            file_system: source.fs_type.clone().unwrap_or_default(),
            options: source.options.clone().unwrap_or_default(),
            secret: secret.map(|it| {
                (it.namespace.clone().unwrap_or_default(), it.name.clone().unwrap_or_default())
            }),
        });
        // Upstream takes the claim's word alone.
        return (it, false);
    }
    if let Some(source) = &spec.fc {
        // Here, too.
        return (VolumeSource::Disk(fc_volume(source)), false);
    }
    (VolumeSource::Unsupported("unknown"), false)
}

fn nfs_source(nfs: &NFSVolumeSource) -> VolumeSource {
    let is_ipv6 = nfs.server.contains(':') && !nfs.server.starts_with('[');
    VolumeSource::Nfs {
        source: if is_ipv6 {
            format!("[{}]:{}", nfs.server, nfs.path)
        } else {
            format!("{}:{}", nfs.server, nfs.path)
        },
    }
}

fn iscsi_volume(
    source: ISCSIVolumeSource,
    secret: Option<SecretReference>,
    name: &str,
) -> DiskVolume {
    let unique_name = format!(
        "{}/{}:{}:{}",
        DiskKind::Iscsi.plugin(),
        source.target_portal,
        source.iqn,
        source.lun
    );
    let portals = [source.target_portal].into_iter();
    let portals = portals.chain(source.portals.into_iter().flatten());
    let given = |it: Option<String>| it.filter(|it| !it.is_empty());
    let (guards_discovery, guards_session) =
        (source.chap_auth_discovery.unwrap_or(false), source.chap_auth_session.unwrap_or(false));
    DiskVolume {
        disk: Disk::Iscsi(IscsiDisk {
            portals: portals.map(|it| with_port(&it)).collect(),
            target: source.iqn,
            lun: source.lun,
            interface: given(source.iscsi_interface).unwrap_or_else(|| "default".to_owned()),
            initiator: given(source.initiator_name),
            volume: name.to_owned(),
            guards_discovery,
            guards_session,
            secrets: BTreeMap::new(),
        }),
        file_system: given(source.fs_type).unwrap_or_else(|| "ext4".to_owned()),
        secret: secret.filter(|_| guards_discovery || guards_session),
        unique_name,
    }
}

fn fc_volume(source: &FCVolumeSource) -> DiskVolume {
    let plugin = DiskKind::Fc.plugin();
    let ports = source.target_wwns.clone().unwrap_or_default();
    let (disk, unique_name) = match source.lun {
        Some(lun) if !ports.is_empty() => {
            let unique_name = format!("{plugin}/[{}]:{lun}", ports.join(" "));
            (FcDisk::Ports { names: ports, lun }, unique_name)
        }
        _ => {
            let names = source.wwids.as_deref().unwrap_or_default();
            let unique_name = format!("{plugin}/[{}]", names.join(" "));
            // The kernel's helpers write names of devices without spaces.
            let names = names.iter().map(|it| it.replace(' ', "_"));
            (FcDisk::Names(names.collect()), unique_name)
        }
    };
    let file_system = source.fs_type.clone().filter(|it| !it.is_empty());
    DiskVolume {
        disk: Disk::Fc(disk),
        file_system: file_system.unwrap_or_else(|| "ext4".to_owned()),
        secret: None,
        unique_name,
    }
}

/// A portal with the port that it has when it names none.
fn with_port(portal: &str) -> String {
    if portal.contains(':') { portal.to_owned() } else { format!("{portal}:3260") }
}

fn persistent_csi(source: &CSIPersistentVolumeSource) -> CsiVolume {
    let reference = |it: &Option<k8s_openapi::api::core::v1::SecretReference>| {
        let it = it.as_ref()?;
        Some((it.namespace.clone().unwrap_or_default(), it.name.clone().unwrap_or_default()))
    };
    CsiVolume {
        driver: source.driver.clone(),
        handle: source.volume_handle.clone(),
        file_system: source.fs_type.clone().unwrap_or_default(),
        attributes: source.volume_attributes.clone().unwrap_or_default(),
        is_inline: false,
        stage_secret: reference(&source.node_stage_secret_ref),
        publish_secret: reference(&source.node_publish_secret_ref),
        expand_secret: reference(&source.node_expand_secret_ref),
    }
}

fn inline_csi(source: &CSIVolumeSource) -> CsiVolume {
    let secret = source.node_publish_secret_ref.as_ref();
    CsiVolume {
        driver: source.driver.clone(),
        handle: String::new(),
        file_system: source.fs_type.clone().unwrap_or_default(),
        attributes: source.volume_attributes.clone().unwrap_or_default(),
        is_inline: true,
        stage_secret: None,
        publish_secret: secret.map(|it| (String::new(), it.name.clone())),
        expand_secret: None,
    }
}
