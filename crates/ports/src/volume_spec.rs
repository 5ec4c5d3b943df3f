//! A volume as the API describes it, for whoever mounts it: upstream's `volume.Spec`, made from a
//! persistent volume or from what a pod says in its own words. Plain data.

use std::collections::BTreeMap;

use crate::Disk;

/// A persistent volume, or a volume of the same kinds that a pod names in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// The persistent volume's name, or the volume's name in the pod: names its directory.
    pub name: String,
    /// What it is.
    pub source: VolumeSource,
    /// The pod only reads.
    pub is_read_only: bool,
    /// Mount options.
    pub mount_options: Vec<String>,
    /// How it may be used, in the API's words.
    pub access_modes: Vec<String>,
    /// The group that its administrator lends to users.
    pub group: Option<i64>,
    /// Its capacity in bytes.
    pub capacity: Option<i64>,
    /// Files or a raw device.
    pub mode: VolumeMode,
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

/// Whether a volume has a file system: the API's `volumeMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeMode {
    /// It has one.
    Filesystem,
    /// It is a raw device.
    Block,
}

impl VolumeMode {
    /// The API's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        }
    }
}

/// What a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSource {
    /// A path of the node.
    HostPath {
        /// The path.
        path: String,
        /// What must be there.
        expected: HostPathType,
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
    /// A CSI driver's.
    Csi(CsiVolume),
    /// A flexVolume driver's.
    Flex(FlexVolume),
    /// A kind that is not served.
    Unsupported(&'static str),
}

/// What a pod asks to find at a path of the node: the API's `hostPath.type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPathType {
    /// Whatever is there, even nothing.
    Anything,
    /// A directory.
    Directory {
        /// One is made when nothing is there.
        made_when_missing: bool,
    },
    /// A file.
    File {
        /// An empty one is made when nothing is there.
        made_when_missing: bool,
    },
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A word that upstream does not know either.
    Unknown(String),
}

impl HostPathType {
    /// Reads the API's word.
    pub fn parse(word: Option<&str>) -> Self {
        match word.unwrap_or_default() {
            "" => Self::Anything,
            "DirectoryOrCreate" => Self::Directory { made_when_missing: true },
            "Directory" => Self::Directory { made_when_missing: false },
            "FileOrCreate" => Self::File { made_when_missing: true },
            "File" => Self::File { made_when_missing: false },
            "Socket" => Self::Socket,
            "CharDevice" => Self::CharDevice,
            "BlockDevice" => Self::BlockDevice,
            other => Self::Unknown(other.to_owned()),
        }
    }
}

/// A secret's namespace (empty for the pod's own) and name.
pub type SecretReference = (String, String);

/// A disk of another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskVolume {
    /// The disk, without the secrets.
    pub disk: Disk,
    /// The file system on it.
    pub file_system: String,
    /// The secret with its passwords.
    pub secret: Option<SecretReference>,
    /// What the cluster calls it in a node's status.
    pub unique_name: String,
}

/// A volume of a flexVolume driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlexVolume {
    /// The driver's name, `vendor/driver`.
    pub driver: String,
    /// The file system; empty leaves it to the driver.
    pub file_system: String,
    /// What was written for the driver.
    pub options: BTreeMap<String, String>,
    /// A secret for the driver.
    pub secret: Option<SecretReference>,
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
    /// Secret for staging.
    pub stage_secret: Option<SecretReference>,
    /// Secret for publishing.
    pub publish_secret: Option<SecretReference>,
    /// Secret for growing.
    pub expand_secret: Option<SecretReference>,
}
