//! The container runtime: sandboxes, containers, and what happens to them.

use std::time::Duration;

use ferrolet_node::{RuntimeStatus, RuntimeVersion};
use ferrolet_spec::{ContainerSpec, LinuxResources, SandboxSpec};
use ferrolet_types::observed::PodObservation;
use ferrolet_types::{
    ContainerId, ContainerName, GracePeriod, PodKey, PodUid, SandboxId, Timestamp,
};

use crate::{Fut, Retry};

/// A container runtime. Every call has a deadline of the adapter's; every call may be repeated.
pub trait Runtime: Send + Sync {
    /// Who it is.
    fn version(&self) -> Fut<'_, Result<RuntimeVersion, RuntimeError>>;
    /// How it feels.
    fn status(&self) -> Fut<'_, Result<RuntimeStatus, RuntimeError>>;
    /// Every sandbox and container it knows, in brief.
    fn list(&self) -> Fut<'_, Result<RuntimeListing, RuntimeError>>;
    /// Everything it knows of one pod.
    fn observe_pod<'a>(&'a self, uid: &'a PodUid) -> Fut<'a, Result<PodObservation, RuntimeError>>;
    /// Opens the stream of container events; `Unimplemented` when the runtime has none.
    fn events(&self) -> Fut<'_, Result<Box<dyn RuntimeEvents>, RuntimeError>>;
    /// Makes and starts a sandbox.
    fn run_sandbox<'a>(&'a self, spec: &'a SandboxSpec)
    -> Fut<'a, Result<SandboxId, RuntimeError>>;
    /// Stops a sandbox and everything in it. Not found is success.
    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> Fut<'a, Result<(), RuntimeError>>;
    /// Removes a sandbox and what is left in it. Not found is success.
    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> Fut<'a, Result<(), RuntimeError>>;
    /// Makes a container in a sandbox.
    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        sandbox_spec: &'a SandboxSpec,
        spec: &'a ContainerSpec,
    ) -> Fut<'a, Result<ContainerId, RuntimeError>>;
    /// Starts a container that was made.
    fn start_container<'a>(&'a self, id: &'a ContainerId) -> Fut<'a, Result<(), RuntimeError>>;
    /// Signals a container and kills it after the grace. Not found is success.
    fn stop_container<'a>(
        &'a self,
        id: &'a ContainerId,
        grace: GracePeriod,
    ) -> Fut<'a, Result<(), RuntimeError>>;
    /// Removes a container that does not run. Not found is success.
    fn remove_container<'a>(&'a self, id: &'a ContainerId) -> Fut<'a, Result<(), RuntimeError>>;
    /// Bounds a running container anew.
    fn update_container<'a>(
        &'a self,
        id: &'a ContainerId,
        resources: &'a LinuxResources,
    ) -> Fut<'a, Result<(), RuntimeError>>;
    /// Tells the runtime what bounds a pod's cgroup is about to get; `Unimplemented` when it does
    /// not want to know.
    fn announce_resources<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        resources: PodBounds<'a>,
    ) -> Fut<'a, Result<(), RuntimeError>>;
    /// Runs a command in a container and waits for its end; output is bounded by the adapter.
    fn exec<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        timeout: Duration,
    ) -> Fut<'a, Result<ExecOutput, RuntimeError>>;
    /// Tells the runtime the node's pod network range.
    fn set_pod_cidr<'a>(&'a self, cidr: &'a str) -> Fut<'a, Result<(), RuntimeError>>;
}

/// What bounds a pod's cgroup gets, as a runtime is told.
#[derive(Clone, Copy, Debug)]
pub struct PodBounds<'a> {
    /// The containers' part.
    pub resources: &'a LinuxResources,
    /// The sandbox's own part.
    pub overhead: &'a LinuxResources,
}

/// A stream of container events. Dropping it closes the stream.
pub trait RuntimeEvents: Send {
    /// The next event; an error or `None` ends the stream. Cancel-safe.
    fn next(&mut self) -> Fut<'_, Option<Result<RuntimeEvent, RuntimeError>>>;
}

/// Something happened to a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// The pod it belongs to.
    pub uid: PodUid,
    /// The container's or sandbox's id.
    pub id: String,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a container or sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was made.
    Created,
    /// It was started.
    Started,
    /// It ended.
    Stopped,
    /// It was removed.
    Deleted,
}

/// Everything the runtime knows, in brief.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RuntimeListing {
    /// Sandboxes.
    pub sandboxes: Vec<ListedSandbox>,
    /// Containers.
    pub containers: Vec<ListedContainer>,
}

/// A sandbox in a listing. Only those that carry a kubelet's labels are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSandbox {
    /// Its handle.
    pub id: SandboxId,
    /// Its pod.
    pub uid: PodUid,
    /// Its pod's namespace and name.
    pub key: PodKey,
    /// True while it can host containers.
    pub is_ready: bool,
    /// When it was made.
    pub created_at: Option<Timestamp>,
}

/// A container in a listing. Only those that carry a kubelet's labels are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedContainer {
    /// Its handle.
    pub id: ContainerId,
    /// Its pod.
    pub uid: PodUid,
    /// Its name in the pod.
    pub name: ContainerName,
    /// Its sandbox.
    pub sandbox: SandboxId,
    /// What it is doing.
    pub state: ListedState,
    /// The image it was made from, by reference.
    pub image_ref: String,
    /// When it was made.
    pub created_at: Option<Timestamp>,
}

/// What a listed container is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListedState {
    /// Made, not started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
    /// Lost.
    Unknown,
}

/// The outcome of a command in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// Exit code.
    pub code: i32,
    /// Standard output, bounded.
    pub stdout: Vec<u8>,
    /// Standard error, bounded.
    pub stderr: Vec<u8>,
}

/// A call that the runtime refused or never answered. `Display` is the text users know from
/// upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rpc error: code = {} desc = {message}", kind.code_name())]
pub struct RuntimeError {
    /// The call, by its CRI name.
    pub call: &'static str,
    /// What kind of failure.
    pub kind: RuntimeErrorKind,
    /// The runtime's own words.
    pub message: String,
}

/// Kinds of failure that callers treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeErrorKind {
    /// Nobody answers at the socket.
    Unavailable,
    /// No answer in time.
    DeadlineExceeded,
    /// No such thing.
    NotFound,
    /// It is there already.
    AlreadyExists,
    /// The runtime has no such call.
    Unimplemented,
    /// The request makes no sense to it.
    InvalidArgument,
    /// Not now.
    FailedPrecondition,
    /// Not with these credentials.
    PermissionDenied,
    /// Too much of something.
    ResourceExhausted,
    /// The call was abandoned.
    Canceled,
    /// Its own fault.
    Internal,
    /// Anything else.
    Unknown,
}

impl RuntimeErrorKind {
    /// The name of the gRPC code.
    pub fn code_name(self) -> &'static str {
        match self {
            Self::Unavailable => "Unavailable",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Unimplemented => "Unimplemented",
            Self::InvalidArgument => "InvalidArgument",
            Self::FailedPrecondition => "FailedPrecondition",
            Self::PermissionDenied => "PermissionDenied",
            Self::ResourceExhausted => "ResourceExhausted",
            Self::Canceled => "Canceled",
            Self::Internal => "Internal",
            Self::Unknown => "Unknown",
        }
    }
}

impl RuntimeError {
    /// When to try again.
    pub fn retry(&self) -> Retry {
        match self.kind {
            RuntimeErrorKind::Unimplemented => Retry::Never,
            RuntimeErrorKind::Canceled => Retry::Now,
            _ => Retry::Later,
        }
    }
}
