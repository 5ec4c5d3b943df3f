//! flexVolume drivers: programs of the administrator that are started
//! anew for each call, and the places that their volumes have.
//!
//! Owned by the adapter `host`, faked by `testkit`. A driver is known by its name, `vendor/driver`;
//! whether it is there is looked at with each call, so one that is installed while pods wait is
//! found. Each call has a deadline. Refuses: retries, policy, and deleting what a volume holds.

use std::path::PathBuf;

use ferrolet_types::PodUid;

use crate::{Fut, HostError, VolumePlace};

/// The drivers of this node, and where their volumes stand.
pub trait FlexDrivers: Send + Sync {
    /// What a driver can do. It is asked once, and again when its program has changed.
    fn abilities<'a>(&'a self, driver: &'a str) -> Fut<'a, Result<FlexAbilities, FlexError>>;
    /// One call of the driver's program. Dropping it ends the program.
    fn call<'a>(
        &'a self,
        driver: &'a str,
        call: &'a FlexCall,
    ) -> Fut<'a, Result<FlexAnswer, FlexError>>;
    /// Makes the directory that a driver mounts on.
    fn make_place<'a>(&'a self, place: &'a FlexPlace) -> Fut<'a, Result<FlexStand, HostError>>;
    /// What stands there; `None` when the directory is not there.
    fn look_at<'a>(&'a self, place: &'a FlexPlace)
    -> Fut<'a, Result<Option<FlexStand>, HostError>>;
    /// Unmounts what is still mounted there and removes the empty directory. Absent is success.
    fn clear_place<'a>(&'a self, place: &'a FlexPlace) -> Fut<'a, Result<(), HostError>>;
    /// Pods that have a directory for the volume.
    fn users<'a>(
        &'a self,
        driver: &'a str,
        volume: &'a str,
    ) -> Fut<'a, Result<Vec<PodUid>, HostError>>;
    /// Volumes that have a directory for the whole node: driver and name.
    fn stored(&self) -> Fut<'_, Result<Vec<(String, String)>, HostError>>;
}

/// What a driver can do, with the protocol's defaults where it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlexAbilities {
    /// Volumes are attached, and mounted for the node before they are for pods.
    pub attaches: bool,
    /// Its volumes may be relabelled.
    pub relabels: bool,
    /// Its volumes may be given to a group.
    pub takes_group: bool,
    /// File systems of volumes that grow have to be told.
    pub grows_files: bool,
}

impl Default for FlexAbilities {
    fn default() -> Self {
        Self { attaches: true, relabels: true, takes_group: true, grows_files: true }
    }
}

/// What a driver can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlexCommand {
    /// Say what you can do.
    Init,
    /// Say what the volume is called.
    GetVolumeName,
    /// Attach the volume to a node.
    Attach,
    /// Wait until it is, and say where.
    WaitForAttach,
    /// Mount it for the node.
    MountDevice,
    /// Mount it for a pod.
    Mount,
    /// Take it away from a pod.
    Unmount,
    /// Take it away from the node.
    UnmountDevice,
    /// Detach it.
    Detach,
    /// Have its file system use what it has become.
    ExpandFs,
}

impl FlexCommand {
    /// The protocol's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::GetVolumeName => "getvolumename",
            Self::Attach => "attach",
            Self::WaitForAttach => "waitforattach",
            Self::MountDevice => "mountdevice",
            Self::Mount => "mount",
            Self::Unmount => "unmount",
            Self::UnmountDevice => "unmountdevice",
            Self::Detach => "detach",
            Self::ExpandFs => "expandfs",
        }
    }
}

/// A command and the words after it.
#[derive(Clone, PartialEq, Eq)]
pub struct FlexCall {
    /// What is to be done.
    pub command: FlexCommand,
    /// With what; options for a volume are one word of JSON.
    pub words: Vec<String>,
}

// Options hold secrets, which never reach a log.
impl std::fmt::Debug for FlexCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlexCall").field("command", &self.command).finish_non_exhaustive()
    }
}

/// What a driver answered when it did what it was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlexAnswer {
    /// The device, after attaching and waiting for it.
    pub device: String,
}

/// Why a driver did not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlexError {
    /// There is none of that name.
    #[error("no volume plugin matched")]
    Missing,
    /// There is one, and it does not say what it can do.
    #[error("no volume plugin matched: {0}")]
    Broken(String),
    /// It leaves that to us.
    #[error("Not supported")]
    NotSupported,
    /// It failed; one sentence, as upstream shows it.
    #[error("{0}")]
    Failed(String),
}

/// Where a volume of a driver stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlexPlace {
    /// Below the directory of its pod.
    Pod(VolumePlace),
    /// Once for the whole node.
    Node {
        /// The driver.
        driver: String,
        /// The volume.
        volume: String,
    },
}

/// A directory that drivers mount on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlexStand {
    /// Where it is.
    pub path: PathBuf,
    /// Something is mounted on it.
    pub is_mounted: bool,
}
