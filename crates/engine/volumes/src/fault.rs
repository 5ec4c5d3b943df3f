//! Why a volume is not ready, and how upstream words it: by the step that failed.

use ferrolet_ports::{HostError, Retry, VolumeError};

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Finding out what the volume is.
    Process,
    /// Waiting for it to be attached to this node.
    Attach,
    /// Making sure that the cluster knows it to be here and used.
    Verify,
    /// Making sure that it may be used on this node.
    Affinity,
    /// Making sure that it takes the options that it is to be mounted with.
    MountOptions,
    /// Bringing another machine's disk to this node.
    WaitForAttach,
    /// Mounting it for the node.
    MountDevice,
    /// Mounting it for the pod.
    SetUp,
    /// Bringing another machine's disk to this node to be handed over raw.
    WaitForDevice,
    /// Making a raw device ready for the node.
    SetUpDevice,
    /// Handing a raw device to the pod.
    Map,
    /// Holding and linking a raw device.
    MapBlock,
    /// Taking a raw device away from the pod.
    Unmap,
    /// Taking a raw device away from the node.
    UnmapDevice,
    /// Making it larger.
    Expand,
    /// Taking it away from the node.
    UnmountDevice,
    /// Taking it away from the pod.
    TearDown,
}

/// Why a volume is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) step: Step,
    pub(crate) message: String,
    pub(crate) retry: Retry,
    pub(crate) awaits_objects: bool,
    /// Somebody else failed us; asking again at once would only make them busier.
    pub(crate) wants_pause: bool,
    /// The driver that has no room for another volume on this node.
    pub(crate) full: Option<String>,
}

impl Fault {
    /// The same input gives the same answer.
    pub(crate) fn lasting(message: String) -> Self {
        Self { retry: Retry::Never, ..Self::later(message) }
    }

    /// The cause may pass.
    pub(crate) fn later(message: String) -> Self {
        Self {
            step: Step::SetUp,
            message,
            retry: Retry::Later,
            awaits_objects: false,
            wants_pause: false,
            full: None,
        }
    }

    /// What somebody else was asked for and refused: to be asked again after a pause.
    pub(crate) fn refused(message: String) -> Self {
        Self { wants_pause: true, ..Self::later(message) }
    }

    /// It is not known what the volume is, or it is of no kind we serve.
    pub(crate) fn unprocessed(message: String) -> Self {
        Self::later(message).at(Step::Process)
    }

    /// The same fault at another step.
    pub(crate) fn at(self, step: Step) -> Self {
        Self { step, ..self }
    }

    /// The event's reason.
    pub(crate) fn reason(&self) -> &'static str {
        match self.step {
            Step::Process
            | Step::Affinity
            | Step::MountOptions
            | Step::WaitForAttach
            | Step::MountDevice
            | Step::SetUp => "FailedMount",
            Step::Attach => "FailedAttachVolume",
            Step::Verify => VolumeError::NOT_ATTACHED,
            Step::Expand => "VolumeResizeFailed",
            Step::WaitForDevice | Step::SetUpDevice | Step::Map | Step::MapBlock => {
                "FailedMapVolume"
            }
            Step::Unmap | Step::UnmapDevice => "FailedUnmapDevice",
            Step::UnmountDevice | Step::TearDown => "FailedUnMount",
        }
    }

    /// The event's sentence about the volume of that name.
    pub(crate) fn sentence(&self, name: &str) -> String {
        let why = &self.message;
        let operation = match self.step {
            Step::Process => {
                return format!(
                    "Unable to attach or mount volumes: unmounted volumes=[{name}], unattached volumes=[], failed to process volumes=[{name}]: {why}"
                );
            }
            Step::Attach => "AttachVolume.Attach",
            Step::Verify => "VerifyControllerAttachedVolume",
            Step::Affinity => "MountVolume.NodeAffinity check",
            Step::MountOptions => "MountVolume.MountOptionSupport check",
            Step::Expand => "MountVolume.NodeExpandVolume",
            Step::WaitForAttach => "MountVolume.WaitForAttach",
            Step::MountDevice => "MountVolume.MountDevice",
            Step::SetUp => "MountVolume.SetUp",
            Step::WaitForDevice => "MapVolume.WaitForAttach",
            Step::SetUpDevice => "MapVolume.SetUpDevice",
            Step::Map => "MapVolume.MapPodDevice",
            Step::MapBlock => "MapVolume.MapBlockVolume",
            Step::Unmap => "UnmapVolume.UnmapPodDevice",
            Step::UnmapDevice => "UnmapDevice.TearDownDevice",
            Step::UnmountDevice => "UnmountDevice",
            Step::TearDown => "UnmountVolume.TearDown",
        };
        format!("{operation} failed for volume {name:?} : {why}")
    }
}

impl From<HostError> for Fault {
    fn from(error: HostError) -> Self {
        Self { retry: error.retry, ..Self::later(error.to_string()) }
    }
}
