//! One kind of volumes that the node does not make itself: how they come to the node and to pods,
//! and how they go again.
//!
//! ```text
//!  mounter ─► check ─► (controller has attached) | attach ─► stage ─► publish ─► expand ─► map      for a pod
//!  node_part ─► unpublish ─► unstage                                                             and back
//! ```
//!
//! Implemented by the plugins of engine `volumes` and by engine `rare-volumes`; called by `volumes`
//! alone, which decides which of the steps are to be done, holds the volume's lock meanwhile and
//! keeps what came of them. Each step may be repeated. Refuses: remembering; a plugin asks disk,
//! mount table and drivers.

use ferrolet_types::{PodKey, PodUid};

use crate::{
    DiskKey, Fut, HostError, Retry, VolumeError, VolumeMount, VolumePlace, VolumeSource, VolumeSpec,
};

/// One kind of volumes.
pub trait VolumePlugin: Send + Sync {
    /// True when a volume that a pod should have is of this kind.
    fn serves(&self, source: &VolumeSource) -> bool;
    /// True for the directory of its volumes in pods' directories, `kubernetes.io~csi` and its like.
    fn owns_directory(&self, directory: &str) -> bool;
    /// True when a volume of the node is of this kind.
    fn owns(&self, volume: &NodeVolume) -> bool;
    /// Looks at a volume that a pod should have, and answers with whoever can mount it.
    fn mounter<'a>(
        &'a self,
        ask: MountAsk<'a>,
    ) -> Fut<'a, Result<Box<dyn VolumeMounter + 'a>, VolumeFault>>;
    /// What of the node stands behind a pod's place, and may have to be taken away, too.
    fn node_part<'a>(&'a self, place: PodPlace<'a>) -> Fut<'a, Result<NodePart, VolumeFault>>;
    /// Takes a volume away from a pod. Absent is success.
    fn unpublish<'a>(
        &'a self,
        place: PodPlace<'a>,
        volume: Option<&'a NodeVolume>,
    ) -> Fut<'a, Result<(), VolumeFault>>;
    /// Takes a volume away from the node, unless a pod has it. Absent is success.
    fn unstage<'a>(&'a self, volume: &'a NodeVolume) -> Fut<'a, Result<Unstaged, VolumeFault>>;
    /// What is on the node, for pods that are here or not any more.
    fn on_node(&self) -> Fut<'_, Result<Vec<OnNode>, VolumeFault>>;
}

/// One volume on its way to one pod.
pub trait VolumeMounter: Send + Sync {
    /// What has to be done for it.
    fn needs(&self) -> MountNeeds;
    /// Refuses what may not be done while others have the volume.
    fn check(&self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async { Ok(()) })
    }
    /// The driver that has no room on this node for a volume that is not attached.
    fn full_driver(&self) -> Fut<'_, Option<String>> {
        Box::pin(async { None })
    }
    /// Finds the volume's device, or attaches it; the controller's word for the device comes in
    /// where a controller has attached it.
    fn attach(&mut self, device: String) -> Fut<'_, Result<(), VolumeFault>> {
        drop(device);
        Box::pin(async { Ok(()) })
    }
    /// Makes it ready for the node.
    fn stage(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async { Ok(()) })
    }
    /// Makes it ready for the pod.
    fn publish(&mut self) -> Fut<'_, Result<(), VolumeFault>>;
    /// Has it use what it has become.
    fn expand(&mut self, bytes: GrownBytes) -> Fut<'_, Result<(), ExpandFault>> {
        let _ = bytes;
        Box::pin(async { Ok(()) })
    }
    /// Hands a raw device to the pod; called for those alone.
    fn map(&mut self) -> Fut<'_, Result<(), VolumeFault>> {
        Box::pin(async { Ok(()) })
    }
    /// Its device, where it has one of its own.
    fn device(&self) -> &str {
        ""
    }
    /// What the pod is shown.
    fn mount(&self) -> VolumeMount;
}

/// A volume that a pod should have.
#[derive(Clone, Debug)]
pub struct MountAsk<'a> {
    /// The pod.
    pub uid: &'a PodUid,
    /// Its namespace and name.
    pub key: &'a PodKey,
    /// In whose name it runs.
    pub service_account: &'a str,
    /// Its `fsGroup`.
    pub fs_group: Option<u32>,
    /// The volume.
    pub spec: &'a VolumeSpec,
    /// The SELinux label to mount it with.
    pub label: Option<String>,
    /// The pod has it already, from that device.
    pub published: Option<String>,
}

impl MountAsk<'_> {
    /// Where it stands below the pod's directory.
    pub fn place(&self, directory: &str) -> VolumePlace {
        VolumePlace {
            uid: self.uid.clone(),
            plugin: directory.to_owned(),
            name: self.spec.name.clone(),
        }
    }
}

/// What has to be done for a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountNeeds {
    /// What of it belongs to the node and may be shared by pods.
    pub node_volume: Option<NodeVolume>,
    /// Who attaches it.
    pub attached_by: AttachedBy,
    /// It is made ready for the node before it is made ready for pods.
    pub stages: bool,
    /// How often the steps are done.
    pub repeats: Repeats,
    /// Its claim may be told to grow while the pod runs; nobody announces that.
    pub may_grow: bool,
    /// Who gives it to the pod's `fsGroup`.
    pub ownership: Ownership,
}

/// Who attaches a volume to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachedBy {
    /// Its own plugin, if anybody has to.
    Plugin,
    /// A controller of the cluster, which has this name for it and says so in the node's status.
    Controller {
        /// The name.
        unique_name: String,
    },
}

/// How often a volume's steps are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// With each look at the pod: who finds them done does nothing.
    EachTime,
    /// Once; then only attaching is asked for again.
    Once,
    /// Once, but publishing again and again, because the driver wants that.
    Republish,
    /// Once, and attaching not again either.
    OnceAttached,
}

/// Who gives a volume to the pod's `fsGroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Nobody here.
    NotOurs,
    /// The node; a pod does not start without it.
    Required,
    /// The node; a pod starts without it, too, as upstream has it for some.
    BestEffort,
}

/// The sizes of a volume that has become larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrownBytes {
    /// What it is to have.
    pub now: i64,
    /// What its claim was told to have until now.
    pub before: i64,
}

/// A volume of the node, which pods may share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeVolume {
    /// Files of a CSI driver.
    Csi {
        /// The driver.
        driver: String,
        /// Its name for the volume.
        handle: String,
    },
    /// A raw device of a CSI driver.
    CsiDevice {
        /// The driver.
        driver: String,
        /// Its name for the volume.
        handle: String,
        /// The persistent volume's name.
        name: String,
    },
    /// A flexVolume driver's.
    Flex {
        /// The driver.
        driver: String,
        /// The volume's name.
        name: String,
    },
    /// A disk of another machine.
    Disk(DiskKey),
    /// A directory or device of the node that an administrator set aside.
    Local {
        /// The persistent volume's name.
        name: String,
    },
}

/// What of the node stands behind a volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePart {
    /// This volume.
    Volume(NodeVolume),
    /// Nothing that has to be taken away.
    Nothing,
    /// Something, but the place does not tell what.
    Unknown,
}

/// A volume's place in a pod's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPlace<'a> {
    /// Files.
    Files(&'a VolumePlace),
    /// A raw device.
    Device(&'a VolumePlace),
}

impl<'a> PodPlace<'a> {
    /// The place.
    pub fn place(self) -> &'a VolumePlace {
        match self {
            Self::Files(place) | Self::Device(place) => place,
        }
    }
}

/// What became of a volume that was to be taken away from the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstaged {
    /// It is not here any more.
    Gone,
    /// Some pod has it.
    Used,
}

/// Something that is on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnNode {
    /// The volume.
    pub volume: NodeVolume,
    /// What the cluster may call it in a node's status; empty where no controller attaches it.
    pub unique_names: Vec<String>,
    /// Nobody is seen to have it, so it is to be taken away.
    pub is_left_over: bool,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeStep {
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

/// Why a volume is not ready, or not gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFault {
    /// The step that failed.
    pub step: VolumeStep,
    /// One sentence.
    pub message: String,
    /// When to try again.
    pub retry: Retry,
    /// Nothing will change before an object of the API does.
    pub awaits_objects: bool,
    /// Somebody else failed us; asking again at once would only make them busier.
    pub wants_pause: bool,
    /// The driver that has no room for another volume on this node.
    pub full: Option<String>,
}

impl VolumeFault {
    /// The same input gives the same answer.
    pub fn lasting(message: String) -> Self {
        Self { retry: Retry::Never, ..Self::later(message) }
    }

    /// The cause may pass.
    pub fn later(message: String) -> Self {
        Self {
            step: VolumeStep::SetUp,
            message,
            retry: Retry::Later,
            awaits_objects: false,
            wants_pause: false,
            full: None,
        }
    }

    /// What somebody else was asked for and refused: to be asked again after a pause.
    pub fn refused(message: String) -> Self {
        Self { wants_pause: true, ..Self::later(message) }
    }

    /// It is not known what the volume is, or it is of no kind we serve.
    pub fn unprocessed(message: String) -> Self {
        Self::later(message).at(VolumeStep::Process)
    }

    /// The same fault at another step.
    #[must_use]
    pub fn at(self, step: VolumeStep) -> Self {
        Self { step, ..self }
    }

    /// The event's reason.
    pub fn reason(&self) -> &'static str {
        match self.step {
            VolumeStep::Process
            | VolumeStep::Affinity
            | VolumeStep::MountOptions
            | VolumeStep::WaitForAttach
            | VolumeStep::MountDevice
            | VolumeStep::SetUp => "FailedMount",
            VolumeStep::Attach => "FailedAttachVolume",
            VolumeStep::Verify => VolumeError::NOT_ATTACHED,
            VolumeStep::Expand => "VolumeResizeFailed",
            VolumeStep::WaitForDevice
            | VolumeStep::SetUpDevice
            | VolumeStep::Map
            | VolumeStep::MapBlock => "FailedMapVolume",
            VolumeStep::Unmap | VolumeStep::UnmapDevice => "FailedUnmapDevice",
            VolumeStep::UnmountDevice | VolumeStep::TearDown => "FailedUnMount",
        }
    }

    /// The event's sentence about the volume of that name.
    pub fn sentence(&self, name: &str) -> String {
        let why = &self.message;
        let operation = match self.step {
            VolumeStep::Process => {
                return format!(
                    "Unable to attach or mount volumes: unmounted volumes=[{name}], unattached volumes=[], failed to process volumes=[{name}]: {why}"
                );
            }
            VolumeStep::Attach => "AttachVolume.Attach",
            VolumeStep::Verify => "VerifyControllerAttachedVolume",
            VolumeStep::Affinity => "MountVolume.NodeAffinity check",
            VolumeStep::MountOptions => "MountVolume.MountOptionSupport check",
            VolumeStep::Expand => "MountVolume.NodeExpandVolume",
            VolumeStep::WaitForAttach => "MountVolume.WaitForAttach",
            VolumeStep::MountDevice => "MountVolume.MountDevice",
            VolumeStep::SetUp => "MountVolume.SetUp",
            VolumeStep::WaitForDevice => "MapVolume.WaitForAttach",
            VolumeStep::SetUpDevice => "MapVolume.SetUpDevice",
            VolumeStep::Map => "MapVolume.MapPodDevice",
            VolumeStep::MapBlock => "MapVolume.MapBlockVolume",
            VolumeStep::Unmap => "UnmapVolume.UnmapPodDevice",
            VolumeStep::UnmapDevice => "UnmapDevice.TearDownDevice",
            VolumeStep::UnmountDevice => "UnmountDevice",
            VolumeStep::TearDown => "UnmountVolume.TearDown",
        };
        format!("{operation} failed for volume {name:?} : {why}")
    }
}

impl From<HostError> for VolumeFault {
    fn from(error: HostError) -> Self {
        Self { retry: error.retry, ..Self::later(error.to_string()) }
    }
}

/// Why a volume does not use what it has become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpandFault {
    /// It may yet come of it; the claim is told nothing.
    Open(VolumeFault),
    /// It came to nothing this time, which the claim is told.
    Failed(VolumeFault),
    /// It never will, which the claim is told: the control plane may try another size.
    Infeasible(VolumeFault),
    /// Not as the volume is used here: no reason to keep the pod from it, nor to ask again.
    Unfit(VolumeFault),
}

impl ExpandFault {
    /// The fault.
    pub fn fault(&self) -> &VolumeFault {
        match self {
            Self::Open(fault)
            | Self::Failed(fault)
            | Self::Infeasible(fault)
            | Self::Unfit(fault) => fault,
        }
    }
}
