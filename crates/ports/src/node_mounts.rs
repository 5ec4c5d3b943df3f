//! Volumes that the node does not make itself, seen from its mount table: directories and devices
//! of an administrator, other machines' file systems, and the places where drivers put theirs.
//!
//! Owned by the adapter `host`, faked by `testkit`. Calls are idempotent and safe to repeat after a
//! crash; what can hang has a deadline. Places are upstream's, so that a node can be handed over.
//! Refuses: policy, and deleting what a volume holds.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, atomic::AtomicU64},
};

use ferrolet_types::PodUid;

use crate::{Detached, Disk, DiskForm, DiskKey, Fut, HostError, VolumePlace, VolumeSpec};

/// Mounts of volumes that the node does not make itself.
pub trait NodeMounts: Send + Sync {
    /// Shows a directory of the node at the volume's place. Mounted already is success.
    fn bind<'a>(
        &'a self,
        place: &'a VolumePlace,
        source: &'a str,
        access: MountAccess,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Has the host's own program mount something at the volume's place. Mounted already is
    /// success.
    fn mount_by_program<'a>(
        &'a self,
        place: &'a VolumePlace,
        ask: &'a ProgramMount,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Unmounts what stands at the volume's place and removes the empty directory. Absent is
    /// success.
    fn unmount<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>>;
    /// Mounts a device for the whole node, after making a file system on it when it has none, and
    /// answers where.
    fn mount_device<'a>(&'a self, ask: &'a DeviceMount) -> Fut<'a, Result<PathBuf, HostError>>;
    /// Has the file system of a device, which is mounted there, use all of the device.
    fn grow_files<'a>(&'a self, device: &'a str, path: &'a str) -> Fut<'a, Result<(), HostError>>;
    /// Takes a device's mount away, unless some pod still shows it. Absent is success.
    fn unmount_device<'a>(
        &'a self,
        plugin: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Brings a disk of another machine to this node and answers with its device. Here already is
    /// success.
    fn attach_disk<'a>(
        &'a self,
        disk: &'a Disk,
        form: DiskForm,
    ) -> Fut<'a, Result<String, HostError>>;
    /// Such disks that are here.
    fn known_disks(&self) -> Fut<'_, Result<Vec<DiskKey>, HostError>>;
    /// Those of them that no pod has.
    fn unused_disks(&self) -> Fut<'_, Result<Vec<DiskKey>, HostError>>;
    /// Takes such a disk away from this node, unless some pod has it. Absent is success.
    fn detach_disk<'a>(&'a self, disk: &'a DiskKey) -> Fut<'a, Result<Detached, HostError>>;
    /// Hands such a disk, whose device this is, to a pod as it is, and answers with the link that
    /// names it.
    fn map_disk<'a>(
        &'a self,
        place: &'a VolumePlace,
        disk: &'a Disk,
        device: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>>;
    /// Hands a raw device to a pod and answers with the link that names it.
    fn map_device<'a>(
        &'a self,
        place: &'a VolumePlace,
        device: &'a str,
    ) -> Fut<'a, Result<PathBuf, HostError>>;
    /// Lets a raw device go that is held for a pod; the link that names it stays. Absent is
    /// success.
    fn let_go_device<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>>;
    /// Lets the device go and takes the link and what belongs to it away. Absent is success.
    fn unmap_device<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>>;
    /// Where a driver shows a raw device to one pod.
    fn driver_device(&self, place: &VolumePlace) -> PathBuf;
    /// Makes room for what a driver will show, and the pod's link to it: so it is known before the
    /// driver is asked.
    fn announce_device<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>>;
    /// The pods that have a link to a raw device.
    fn device_users<'a>(
        &'a self,
        plugin: &'a str,
        name: &'a str,
    ) -> Fut<'a, Result<Vec<PodUid>, HostError>>;
    /// Gives everything at a path to a group, however long that takes; `walked` counts entries on
    /// the way.
    fn set_ownership<'a>(
        &'a self,
        path: &'a str,
        owner: FsGroupOwner,
        walked: Arc<AtomicU64>,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Where a record's volume is mounted by its driver.
    fn driver_path(&self, place: &RecordPlace) -> PathBuf;
    /// Makes the directory that a driver mounts into and writes the record beside it.
    fn save_record<'a>(
        &'a self,
        place: &'a RecordPlace,
        record: &'a Record,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Removes a record and its directories; refuses while something is mounted there. Absent is
    /// success.
    fn remove_record<'a>(&'a self, place: &'a RecordPlace) -> Fut<'a, Result<(), HostError>>;
    /// Every record on disk.
    fn records(&self) -> Fut<'_, Result<Records, HostError>>;
    /// True when something is mounted where the record's driver mounts.
    fn is_mounted<'a>(&'a self, place: &'a RecordPlace) -> Fut<'a, Result<bool, HostError>>;
}

/// What is known of a driver's volume, by upstream's keys.
pub type Record = BTreeMap<String, String>;

/// Records and where they are. One that is damaged and of no use has no content; `None` is one that
/// cannot be read although something is mounted beside it: somebody has a volume, and nobody knows
/// which.
pub type Records = Vec<(RecordPlace, Option<Record>)>;

/// What may be done through a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountAccess {
    /// Everything.
    ReadWrite,
    /// Reading only.
    ReadOnly,
}

impl MountAccess {
    /// What a pod may do with a volume.
    pub fn of(spec: &VolumeSpec) -> Self {
        if spec.is_read_only { Self::ReadOnly } else { Self::ReadWrite }
    }
}

/// Something for `mount(8)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramMount {
    /// The kind of file system.
    pub kind: String,
    /// What is mounted, `server:/path`.
    pub source: String,
    /// Its options.
    pub options: Vec<String>,
}

/// A device to be mounted for the whole node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceMount {
    /// The directory it is mounted in, below that of plugins: `kubernetes.io/local-volume/mounts`.
    pub directory: String,
    /// The volume's name.
    pub name: String,
    /// The device.
    pub device: String,
    /// The file system it has, or gets when it has none.
    pub file_system: String,
    /// Mount options.
    pub options: Vec<String>,
    /// What may be done through it.
    pub access: MountAccess,
}

/// Whom a volume is given to: a pod's `fsGroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsGroupOwner {
    /// The group.
    pub group: u32,
    /// Whether what looks right already is walked through.
    pub policy: FsGroupChangePolicy,
}

/// When the content of a volume is given to its pod's `fsGroup`: the API's `fsGroupChangePolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsGroupChangePolicy {
    /// Each time.
    Always,
    /// Only when the top of the volume does not have it.
    OnRootMismatch,
}

/// Where a driver's volume is kept, and the record of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordPlace {
    /// For one pod: below its own directory.
    Pod(VolumePlace),
    /// For the whole node, once per volume.
    Node {
        /// The driver.
        driver: String,
        /// The hash of the volume's handle.
        hash: String,
    },
    /// A raw device, once per volume.
    Device {
        /// The volume's name.
        name: String,
    },
}
