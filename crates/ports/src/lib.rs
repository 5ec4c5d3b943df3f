//! The few narrow traits the engine needs from the world, and their plain data.
//!
//! Every trait is object-safe ([`Fut`] instead of `async fn`): the engine holds `Arc<dyn …>`, so a
//! new port never changes the type of a loop. Errors answer [`Retry`]. Refuses: implementations;
//! they live in adapters and in `testkit`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod certificates;
mod checkpoints;
mod claims;
mod clock;
mod cluster;
mod credential_files;
mod csi;
mod devices;
mod disk_copy;
mod disks;
mod events;
mod feeds;
mod figures;
mod flex;
mod given;
mod host;
mod images;
mod kernel_log;
mod logs;
mod lookups;
mod manifests;
mod means;
pub mod metrics;
mod node;
mod node_mounts;
mod object_change;
mod offline;
mod outbound;
mod packet_filter;
mod part;
mod placing;
mod power;
mod probing;
mod profiles;
mod pulls;
mod reclaim;
mod reviews;
mod runtime;
mod runtime_disk;
mod slices;
mod state_files;
mod status;
mod storage;
mod streams;
mod system_logs;
mod traced;
mod usage;
mod views;
mod volume_files;
mod volume_plugin;
mod volume_spec;
mod volumes;

use std::{future::Future, pin::Pin};

pub use certificates::{CertStore, Pair, PairName};
pub use checkpoints::Checkpoints;
pub use claims::{ClaimDrivers, ClaimObjects, DriverCallError, DriverNews, PodClaims};
pub use clock::Clock;
pub use cluster::{ApiError, ApiErrorKind, ClusterApi, ClusterObjects, Token, TokenAsk};
pub use credential_files::{ChangeHints, CredentialFiles, Gone, ProgramAsk, ReadFile};
pub use csi::{
    CsiAbilities, CsiAilment, CsiCapability, CsiDrivers, CsiError, CsiExpand, CsiFate, CsiForm,
    CsiHealthAsk, CsiPublish, CsiStage, RegisteredDriver,
};
pub use devices::{
    DeviceAnswer, DeviceError, DevicePlugins, NoDevices, PluginCallError, PluginNews, PodDevices,
};
pub use disk_copy::DiskCopy;
pub use disks::{Detached, Disk, DiskForm, DiskKey, DiskKind, FcDisk, IscsiDisk};
pub use events::{Event, EventKind, EventObject, Events};
pub use feeds::ClusterFeeds;
pub use ferrolet_node::{
    CgroupDriver, RuntimeCondition, RuntimeHandler, RuntimeStatus, RuntimeVersion,
};
pub use figures::{
    CgroupFigures, CpuFigures, DeviceFigures, DiskFigures, DiskUsage, FileRoom, InUse,
    InterfaceFigures, MemoryFigures, Pressure, ProcessFigures, ProcessRoom, Stall, Stalls,
    TrafficFigures, UsageFigures, VolumeUsage, Whose,
};
pub use flex::{
    FlexAbilities, FlexAnswer, FlexCall, FlexCommand, FlexDrivers, FlexError, FlexPlace, FlexStand,
};
pub use given::{Given, GivenClaim, GivenClaimDevice, GivenDevices, GivenMemory, GivenView};
pub use host::{HostError, NodeCgroups, NodeNames, PodCgroups, PodFiles, StoredPod};
pub use images::{ImageError, ImageInfo, Images, PullRequest, RegistryAuth};
pub use kernel_log::KernelLog;
pub use logs::{LogAsk, LogFiles, LogOutput, LogPieces, StillWritten};
pub use lookups::ClusterLookups;
pub use manifests::{ManifestFile, ManifestFiles};
pub use means::{
    AlarmLine, AlarmScope, FileSystemMeans, MeansReading, MemoryAlarm, MemoryMeans, NodeMeans,
    StorePlaces,
};
pub use metrics::{Measured, Sample, SampleValue, Tally};
pub use node::{MachineHost, NodeCopies, NodeHost};
pub use node_mounts::{
    DeviceMount, FsGroupChangePolicy, FsGroupOwner, MountAccess, NodeMounts, ProgramMount, Record,
    RecordPlace, Records,
};
pub use object_change::{ObjectChange, ObjectKind};
pub use offline::{OfflineStore, StoredCopy};
pub use outbound::Outbound;
pub use packet_filter::{FilterAnswer, IpFamily, PacketFilter};
pub use part::{Part, once_open};
pub use placing::{PlacedContainer, Placing};
pub use power::{Power, PowerError, PowerNews, PowerSession};
pub use probing::{HookCall, HookError, HookMoment, Hooks, Probing};
pub use profiles::{CodeMapping, Profile, ProfileSample, Profiler, Threads};
pub use pulls::{NamedFile, NodeDockerConfig, PluginCall, PullFile, PullFiles, RegistryLogins};
pub use reclaim::{Collectors, DiskSpace, Disks, ImagePlace, LogReopen, LogSize, LogStore};
pub use reviews::{AccessAsk, AccessVerdict, Reviews, Subject, TokenVerdict};
pub use runtime::{
    EventKind as RuntimeEventKind, ExecOutput, ListedContainer, ListedSandbox, ListedState,
    PodBounds, Runtime, RuntimeError, RuntimeErrorKind, RuntimeEvent, RuntimeEvents,
    RuntimeListing,
};
pub use runtime_disk::{LayerUsage, RuntimeDisk, RuntimeStores, StoreUsage};
pub use slices::{Slice, SliceProperty, Slices};
pub use state_files::StateFiles;
pub use status::{Remains, StaticPodsSink, StatusBacklog, StatusSink, StatusUpdate};
pub use storage::{CertificateAsk, RequestedCertificate, StorageObjects, TrustAsk};
pub use streams::{Streams, WantedStreams};
pub use system_logs::{JournalAsk, SystemLog, SystemLogFiles};
pub use traced::{TRACE_PARENT, TRACED, TraceParent};
pub use usage::{CgroupUsage, Detail, MemoryUsage, PodUsage, Usage, UsageSnapshot};
pub use views::{GrantsView, HealthCheck, NodeView, PodsView};
pub use volume_files::{
    EmptyDir, Medium, PathKind, Payload, PayloadFile, StoredVolumes, SubPathBind, VolumeFiles,
    VolumePlace, Written,
};
pub use volume_plugin::{
    AttachedBy, ExpandFault, GrownBytes, MountAsk, MountNeeds, NodePart, NodeVolume, OnNode,
    Ownership, PodPlace, Repeats, Unstaged, VolumeFault, VolumeMounter, VolumePlugin, VolumeStep,
};
pub use volume_spec::{
    BoundClaim, CsiVolume, DiskVolume, FlexVolume, HostPathType, SecretReference, VolumeMode,
    VolumeSource, VolumeSpec,
};
pub use volumes::{PodVolumes, SubPath, VolumeError, VolumeMount};

/// A boxed future, so that ports can be trait objects.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// When it makes sense to try the same thing again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// At once: the cause has passed.
    Now,
    /// After a pause: the cause may pass.
    Later,
    /// Never: the same input gives the same answer.
    Never,
}
