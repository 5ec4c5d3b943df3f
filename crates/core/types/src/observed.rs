//! What really runs, as the runtime tells it: plain data that the adapters fill and core reads.
//!
//! An observation is complete for its pod: every sandbox and container the runtime still knows,
//! newest first.

use crate::{ContainerId, ContainerName, PodKey, PodUid, SandboxId, Timestamp};

/// Everything the runtime knows of one pod, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodObservation {
    /// Whose it is.
    pub uid: PodUid,
    /// Namespace and name, from the runtime's labels; `None` when nothing is there.
    pub key: Option<PodKey>,
    /// Sandboxes, the newest first.
    pub sandboxes: Vec<ObservedSandbox>,
    /// Containers of every name, the newest first.
    pub containers: Vec<ObservedContainer>,
    /// When the question was asked; whatever happened later may be missing.
    pub at: Timestamp,
}

/// One pod sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedSandbox {
    /// The runtime's handle.
    pub id: SandboxId,
    /// Counts the sandboxes of a pod, from 0.
    pub attempt: u32,
    /// True while the sandbox can host containers.
    pub is_ready: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its addresses, the primary one first; empty for host network or when the network is gone.
    pub ips: Vec<String>,
    /// Whose network namespace it uses.
    pub network: NetworkMode,
}

/// Whose network namespace a sandbox uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkMode {
    /// One of its own.
    Pod,
    /// The node's.
    Node,
}

/// One container, running or dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedContainer {
    /// The runtime's handle.
    pub id: ContainerId,
    /// Its name in the pod's specification.
    pub name: ContainerName,
    /// The sandbox it lives in.
    pub sandbox: SandboxId,
    /// What it is doing.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: Timestamp,
    /// How often this container was restarted before, from its annotation.
    pub restart_count: u32,
    /// The specification hash it was made from, in hex, from its annotation.
    pub spec_hash: Option<String>,
    /// Consecutive crashes before this one started, from our own annotation; `None` when somebody
    /// else made it.
    pub crash_streak: Option<u32>,
    /// Where a termination message may be found, from its annotations.
    pub termination_message: TerminationMessageSource,
    /// The image as the specification names it.
    pub image: String,
    /// The image by content, for the API's `imageID`.
    pub image_ref: String,
    /// The runtime's id of the image.
    pub image_id: String,
    /// Path of its log file on the node; empty when the runtime gives none.
    pub log_path: String,
    /// What bind mounts it was made with.
    pub mounts: Vec<ObservedMount>,
    /// The user the process first ran as, where the runtime tells.
    pub user: Option<ObservedUser>,
    /// Resources in force, where the runtime tells.
    pub resources: Option<ObservedResources>,
    /// The signal that asks it to stop, where the runtime tells.
    pub stop_signal: Option<String>,
}

/// What a container is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Made, never started.
    Created,
    /// Running since then.
    Running {
        /// When its process began.
        started_at: Timestamp,
    },
    /// Ended.
    Exited(Exit),
    /// The runtime lost sight of it.
    Unknown,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// When its process began; `None` when it never did.
    pub started_at: Option<Timestamp>,
    /// When its process ended.
    pub finished_at: Timestamp,
    /// The process's exit code, or 128 plus the signal.
    pub code: i32,
    /// The runtime's word: `Completed`, `Error`, `OOMKilled`, `StartError`.
    pub reason: String,
    /// The runtime's sentence, or the termination message once it was read.
    pub message: String,
}

/// Where a container leaves its last words.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TerminationMessageSource {
    /// The path inside the container; empty when unknown.
    pub path: String,
    /// True when the log's tail may stand in for an empty file after an error.
    pub falls_back_to_logs: bool,
}

/// One bind mount of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedMount {
    /// Where it appears in the container.
    pub container_path: String,
    /// Where it comes from on the node.
    pub host_path: String,
    /// True when it cannot be written through.
    pub is_read_only: bool,
}

/// The user and groups of a container's first process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedUser {
    /// User id.
    pub uid: i64,
    /// Primary group id.
    pub gid: i64,
    /// All supplementary groups.
    pub supplemental_groups: Vec<i64>,
}

/// CPU and memory bounds in force; zero means none was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ObservedResources {
    /// Scheduler weight.
    pub cpu_shares: i64,
    /// Microseconds per period.
    pub cpu_quota: i64,
    /// Length of a period in microseconds.
    pub cpu_period: i64,
    /// Bytes.
    pub memory_limit: i64,
}

impl PodObservation {
    /// A pod the runtime knows nothing of.
    pub fn nothing(uid: PodUid, at: Timestamp) -> Self {
        Self { uid, key: None, sandboxes: Vec::new(), containers: Vec::new(), at }
    }

    /// True when the runtime holds nothing of this pod.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// The newest sandbox, ready or not.
    pub fn newest_sandbox(&self) -> Option<&ObservedSandbox> {
        self.sandboxes.first()
    }

    /// Every container of that name, the newest first.
    pub fn containers_named<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = &'a ObservedContainer> {
        self.containers.iter().filter(move |container| container.name.as_str() == name)
    }

    /// The newest container of that name.
    pub fn newest_container(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers.iter().find(|container| container.name.as_str() == name)
    }

    /// Every container that is running.
    pub fn running(&self) -> impl Iterator<Item = &ObservedContainer> {
        self.containers.iter().filter(|container| container.state.is_running())
    }
}

impl ContainerState {
    /// True while its process runs.
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

    /// How it ended, if it did.
    pub fn exit(&self) -> Option<&Exit> {
        match self {
            Self::Exited(exit) => Some(exit),
            Self::Created | Self::Running { .. } | Self::Unknown => None,
        }
    }
}

impl Exit {
    /// True for exit code 0 of a process that was not killed for memory.
    pub fn is_success(&self) -> bool {
        self.code == 0 && self.reason != "OOMKilled"
    }
}
