//! What the volumes engine needs from the node's file systems and mount table.
//!
//! Owned by the adapter `host`, faked by `testkit`. Names are a pod's uid, a plugin's directory and
//! a volume's name; paths are made from them by the adapter alone. Every call is idempotent, safe
//! to repeat after a crash, and has a deadline. Refuses: policy. What a volume should hold and who
//! owns it is decided by the engine.

use std::{collections::BTreeMap, path::PathBuf};

use ferrolet_types::PodUid;

use crate::{Fut, HostError};

/// The volumes of pods on disk and in the mount table.
pub trait VolumeFiles: Send + Sync {
    /// Where a volume stands on the node.
    fn volume_path(&self, place: &VolumePlace) -> PathBuf;
    /// Makes the volume's directory on its medium, with group and marker. What is ready already is
    /// left as it is.
    fn ensure_empty_dir<'a>(
        &'a self,
        place: &'a VolumePlace,
        directory: &'a EmptyDir,
    ) -> Fut<'a, Result<(), HostError>>;
    /// Replaces everything the volume holds in one step, unless it holds exactly that already.
    fn write_payload<'a>(
        &'a self,
        place: &'a VolumePlace,
        payload: &'a Payload,
    ) -> Fut<'a, Result<Written, HostError>>;
    /// What stands at a path of the node, links followed; `None` when nothing does.
    fn path_kind<'a>(&'a self, path: &'a str) -> Fut<'a, Result<Option<PathKind>, HostError>>;
    /// Makes a directory of the node with its parents, mode 0755.
    fn make_directory<'a>(&'a self, path: &'a str) -> Fut<'a, Result<(), HostError>>;
    /// Makes an empty file of the node, mode 0644; its directory must be there.
    fn make_file<'a>(&'a self, path: &'a str) -> Fut<'a, Result<(), HostError>>;
    /// Mounts a part of a volume at a place of its own and answers with that place. Nothing outside
    /// the volume is ever reached, whatever is swapped underneath; what is missing is made like the
    /// volume's own directory.
    fn bind_sub_path<'a>(&'a self, part: &'a SubPathBind) -> Fut<'a, Result<PathBuf, HostError>>;
    /// What is left of a pod's volumes on disk.
    fn stored<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<StoredVolumes, HostError>>;
    /// Takes a volume away: what is mounted in it, its content, its marker. Absent is success.
    fn remove_volume<'a>(&'a self, place: &'a VolumePlace) -> Fut<'a, Result<(), HostError>>;
    /// Takes away every part of the volume that was mounted on its own. Absent is success.
    fn remove_sub_paths<'a>(
        &'a self,
        uid: &'a PodUid,
        volume: &'a str,
    ) -> Fut<'a, Result<(), HostError>>;
}

/// One volume of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumePlace {
    /// Whose it is.
    pub uid: PodUid,
    /// The plugin's directory, `kubernetes.io~empty-dir` and its like.
    pub plugin: String,
    /// The volume's name in the pod.
    pub name: String,
}

/// A directory for a volume: an `emptyDir`, or what files are wrapped in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyDir {
    /// The name of the marker that says it is ready.
    pub marker: String,
    /// What it lives on.
    pub medium: Medium,
    /// The group that may write to it.
    pub group: Option<u32>,
    /// The file system is to keep account of what is in it, where it can.
    pub is_metered: bool,
    /// Its permissions when it is made, sticky bit included; the file system of a medium in memory
    /// brings its own.
    pub mode: u32,
}

impl EmptyDir {
    /// Whoever asks for nothing gets a directory that is open to everybody.
    pub const OPEN_TO_ALL: u32 = 0o777;
}

/// What a volume lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The node's disk.
    Disk,
    /// Memory, at most that many bytes; `None` leaves the bound to the kernel.
    Memory {
        /// Bytes.
        size: Option<u64>,
    },
    /// Huge pages.
    HugePages {
        /// Bytes of one page.
        page_size: u64,
    },
}

/// Everything a volume should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Files by their relative path; never `..`, never absolute.
    pub files: BTreeMap<String, PayloadFile>,
    /// Directories that other volumes are mounted on.
    pub mount_points: Vec<String>,
    /// The group that may read it.
    pub group: Option<u32>,
}

/// One file of a payload.
#[derive(Clone, PartialEq, Eq)]
pub struct PayloadFile {
    /// Its content.
    pub content: Vec<u8>,
    /// Its mode.
    pub mode: u32,
    /// Its owner, when it is not us.
    pub owner: Option<u32>,
}

impl std::fmt::Debug for PayloadFile {
    // Content may be a secret: never in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PayloadFile")
            .field("n_bytes", &self.content.len())
            .field("mode", &format_args!("{:o}", self.mode))
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// Whether a payload had to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The volume held it already.
    Unchanged,
    /// It is there now.
    Replaced,
}

/// What stands at a path of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// Something that no volume may be, a FIFO for one.
    Other,
}

/// A part of a volume to be mounted at a place of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPathBind {
    /// Whose volume it is.
    pub uid: PodUid,
    /// The volume's name in the pod.
    pub volume: String,
    /// Where the volume stands.
    pub volume_path: PathBuf,
    /// The path inside the volume: relative, without steps back.
    pub path: String,
    /// The container that mounts it.
    pub container: String,
    /// Which of the container's mounts it is.
    pub index: usize,
}

/// What is left of a pod's volumes on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredVolumes {
    /// Volumes that have a directory, by plugin and name.
    pub volumes: Vec<VolumePlace>,
    /// Raw devices that were handed to the pod, by plugin and name.
    pub devices: Vec<VolumePlace>,
    /// Volumes that have parts mounted on their own.
    pub sub_paths: Vec<String>,
}
