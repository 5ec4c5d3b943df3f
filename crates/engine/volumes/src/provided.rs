//! Volumes that the node does not make itself: what a persistent volume, or a pod in its own words, says of one. Pure.
//!
//! In: objects of the API. Out: [`Provided`], everything the shell needs to mount it. Refuses: looking anything up.

use std::collections::BTreeMap;

use ferrolet_ports::{Disk, DiskKind, FcDisk, IscsiDisk};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, CSIVolumeSource, FCVolumeSource, ISCSIVolumeSource, NFSVolumeSource,
    PersistentVolume, PersistentVolumeSpec, Volume,
};

use crate::host_path::Expected;

/// The annotation by which an administrator lends a volume's group to its users.
const GROUP_ANNOTATION: &str = "pv.beta.kubernetes.io/gid";
/// The annotation that mount options had before they had a field.
const OPTIONS_ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

/// A volume that somebody else provides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provided {
    /// The persistent volume's name, or the volume's name in the pod: names its directory.
    pub spec_name: String,
    /// What it is.
    pub backing: Backing,
    /// The pod only reads.
    pub is_read_only: bool,
    /// Mount options.
    pub options: Vec<String>,
    /// How it may be used, in the API's words.
    pub access_modes: Vec<String>,
    /// The group that its administrator lends to users.
    pub group: Option<i64>,
    /// Its capacity in bytes.
    pub capacity: Option<i64>,
    /// Files or a raw device.
    pub form: Form,
    /// The claim that it is bound to.
    pub claim: Option<BoundClaim>,
    /// Why it may not be used on this node.
    pub affinity_fault: Option<String>,
}

/// A claim and how large it was when it was last told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundClaim {
    /// Its name, in the pod's namespace.
    pub name: String,
    /// Bytes.
    pub capacity: Option<i64>,
    /// What the volume has, in the API's words.
    pub volume_capacity: String,
    /// How far growing is, in the API's words.
    pub resize_status: Option<String>,
    /// What it is to grow to: in the API's words, and in bytes.
    pub allocated: Option<(String, i64)>,
}

/// Whether a volume has a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It has one.
    Files,
    /// It is a raw device.
    Device,
}

impl Form {
    /// The API's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Files => "Filesystem",
            Self::Device => "Block",
        }
    }
}

/// What a provided volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A path of the node.
    HostPath {
        /// The path.
        path: String,
        /// What must be there.
        expected: Expected,
    },
    /// A directory or device of the node that an administrator set aside.
    Local {
        /// Its path.
        path: String,
        /// The file system of a device.
        file_system: String,
    },
    /// A directory of another machine.
    Nfs {
        /// `server:/path`.
        source: String,
    },
    /// A disk of another machine.
    Disk(DiskVolume),
    /// A driver's.
    Csi(CsiVolume),
    /// A driver's of the old kind.
    Flex(FlexVolume),
    /// A kind that is not served.
    Unsupported(&'static str),
}

/// A disk of another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskVolume {
    /// The disk, without the secrets.
    pub disk: Disk,
    /// The file system on it.
    pub file_system: String,
    /// The secret with its passwords: namespace (empty for the pod's own) and name.
    pub secret: Option<(String, String)>,
    /// What the cluster calls it in a node's status.
    pub cluster_name: String,
}

/// A volume of a driver of the old kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlexVolume {
    /// The driver's name, `vendor/driver`.
    pub driver: String,
    /// The file system; empty leaves it to the driver.
    pub file_system: String,
    /// What was written for the driver.
    pub options: BTreeMap<String, String>,
    /// A secret for the driver: namespace (empty for the pod's own) and name.
    pub secret: Option<(String, String)>,
}

/// A volume of a CSI driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiVolume {
    /// The driver's name.
    pub driver: String,
    /// The driver's name for the volume; empty for one that lives with its pod.
    pub handle: String,
    /// The file system; empty leaves it to the driver.
    pub file_system: String,
    /// What was written for the driver.
    pub attributes: BTreeMap<String, String>,
    /// The volume lives with its pod.
    pub is_inline: bool,
    /// Secret for staging: namespace and name.
    pub stage_secret: Option<(String, String)>,
    /// Secret for publishing: namespace (empty for the pod's own) and name.
    pub publish_secret: Option<(String, String)>,
    /// Secret for growing.
    pub expand_secret: Option<(String, String)>,
}

/// What a pod names in its own words, without a claim.
pub(crate) fn provided_inline(volume: &Volume) -> Option<Provided> {
    let (backing, is_read_only) = if let Some(nfs) = &volume.nfs {
        (nfs_backing(nfs), nfs.read_only.unwrap_or(false))
    } else if let Some(csi) = &volume.csi {
        (Backing::Csi(inline_csi(csi)), csi.read_only.unwrap_or(false))
    } else if let Some(iscsi) = &volume.iscsi {
        let secret = iscsi.secret_ref.as_ref();
        let secret = secret.map(|it| (String::new(), it.name.clone()));
        let backing = Backing::Disk(iscsi_volume(iscsi.clone(), secret, &volume.name));
        (backing, iscsi.read_only.unwrap_or(false))
    } else if let Some(fc) = &volume.fc {
        (Backing::Disk(fc_volume(fc)), fc.read_only.unwrap_or(false))
    } else if let Some(flex) = &volume.flex_volume {
        let secret = flex.secret_ref.as_ref();
        let backing = Backing::Flex(FlexVolume {
            driver: flex.driver.clone(),
            file_system: flex.fs_type.clone().unwrap_or_default(),
            options: flex.options.clone().unwrap_or_default(),
            secret: secret.map(|it| (String::new(), it.name.clone())),
        });
        (backing, flex.read_only.unwrap_or(false))
    } else {
        return None;
    };
    Some(Provided {
        spec_name: volume.name.clone(),
        backing,
        is_read_only,
        options: Vec::new(),
        access_modes: vec!["ReadWriteOnce".to_owned()],
        group: None,
        capacity: None,
        form: Form::Files,
        claim: None,
        affinity_fault: None,
    })
}

/// What a persistent volume is, for a pod that may only want to read it.
pub(crate) fn provided_by(volume: &PersistentVolume, is_read_only: bool) -> Provided {
    let empty = PersistentVolumeSpec::default();
    let spec = volume.spec.as_ref().unwrap_or(&empty);
    let annotation = |key: &str| volume.metadata.annotations.as_ref()?.get(key);
    let options = annotation(OPTIONS_ANNOTATION)
        .into_iter()
        .flat_map(|text| text.split(','))
        .map(str::to_owned)
        .chain(spec.mount_options.iter().flatten().cloned());
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let (backing, is_source_read_only) = backing_of(spec, name);
    Provided {
        spec_name: volume.metadata.name.clone().unwrap_or_default(),
        backing,
        is_read_only: is_read_only || is_source_read_only,
        options: options.collect(),
        access_modes: spec.access_modes.clone().unwrap_or_default(),
        group: annotation(GROUP_ANNOTATION).and_then(|text| text.parse().ok()),
        capacity: spec
            .capacity
            .as_ref()
            .and_then(|amounts| amounts.get("storage"))
            .and_then(|text| ferrolet_types::Quantity::parse(&text.0).ok())
            .map(ferrolet_types::Quantity::value),
        form: match spec.volume_mode.as_deref() {
            Some("Block") => Form::Device,
            _ => Form::Files,
        },
        claim: None,
        affinity_fault: None,
    }
}

fn backing_of(spec: &PersistentVolumeSpec, name: &str) -> (Backing, bool) {
    if let Some(source) = &spec.host_path {
        let backing = Backing::HostPath {
            path: source.path.clone(),
            expected: Expected::parse(source.type_.as_deref()),
        };
        return (backing, false);
    }
    if let Some(source) = &spec.local {
        let file_system = source.fs_type.clone().filter(|it| !it.is_empty());
        let backing = Backing::Local {
            path: source.path.clone(),
            file_system: file_system.unwrap_or_else(|| "ext4".to_owned()),
        };
        return (backing, false);
    }
    if let Some(source) = &spec.nfs {
        return (nfs_backing(source), source.read_only.unwrap_or(false));
    }
    if let Some(source) = &spec.csi {
        let backing = Backing::Csi(persistent_csi(source));
        return (backing, source.read_only.unwrap_or(false));
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
        let backing = Backing::Disk(iscsi_volume(source, secret, name));
        return (backing, is_read_only);
    }
    if let Some(source) = &spec.flex_volume {
        let secret = source.secret_ref.as_ref();
        let backing = Backing::Flex(FlexVolume {
            driver: source.driver.clone(),
            file_system: source.fs_type.clone().unwrap_or_default(),
            options: source.options.clone().unwrap_or_default(),
            secret: secret.map(|it| {
                (it.namespace.clone().unwrap_or_default(), it.name.clone().unwrap_or_default())
            }),
        });
        // Upstream takes the claim's word alone.
        return (backing, false);
    }
    if let Some(source) = &spec.fc {
        // Here, too.
        return (Backing::Disk(fc_volume(source)), false);
    }
    (Backing::Unsupported("unknown"), false)
}

fn nfs_backing(nfs: &NFSVolumeSource) -> Backing {
    let is_ipv6 = nfs.server.contains(':') && !nfs.server.starts_with('[');
    Backing::Nfs {
        source: if is_ipv6 {
            format!("[{}]:{}", nfs.server, nfs.path)
        } else {
            format!("{}:{}", nfs.server, nfs.path)
        },
    }
}

fn iscsi_volume(
    source: ISCSIVolumeSource,
    secret: Option<(String, String)>,
    name: &str,
) -> DiskVolume {
    let cluster_name = format!(
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
        cluster_name,
    }
}

fn fc_volume(source: &FCVolumeSource) -> DiskVolume {
    let plugin = DiskKind::Fc.plugin();
    let ports = source.target_wwns.clone().unwrap_or_default();
    let (disk, cluster_name) = match source.lun {
        Some(lun) if !ports.is_empty() => {
            let cluster_name = format!("{plugin}/[{}]:{lun}", ports.join(" "));
            (FcDisk::Ports { names: ports, lun }, cluster_name)
        }
        _ => {
            let names = source.wwids.as_deref().unwrap_or_default();
            let cluster_name = format!("{plugin}/[{}]", names.join(" "));
            // The kernel's helpers write names of devices without spaces.
            let names = names.iter().map(|it| it.replace(' ', "_"));
            (FcDisk::Names(names.collect()), cluster_name)
        }
    };
    let file_system = source.fs_type.clone().filter(|it| !it.is_empty());
    DiskVolume {
        disk: Disk::Fc(disk),
        file_system: file_system.unwrap_or_else(|| "ext4".to_owned()),
        secret: None,
        cluster_name,
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
