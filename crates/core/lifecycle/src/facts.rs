//! Everything a decision rests on.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ferrolet_pod::{Waiting, WaitingReason};
use ferrolet_types::{
    ContainerName, Eviction, GracePeriod, Timestamp, observed::PodObservation, pod::Phase,
};
use k8s_openapi::api::core::v1::Pod;

use crate::{BackOffPolicy, Hold};

/// What a decision about one pod rests on. Gathered by the worker, complete before `decide` is
/// called.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The specification; `None` for something the runtime runs and nobody asked for.
    pub pod: Option<&'a Pod>,
    /// What is wanted of it.
    pub wish: Wish,
    /// What the runtime runs.
    pub seen: &'a PodObservation,
    /// The phase that follows from what was seen.
    pub phase: Phase,
    /// What this process has set up for the pod so far.
    pub setup: Setup,
    /// Drivers of dynamic resources hold something for the pod, whoever had them prepare it.
    pub holds_claims: bool,
    /// When the pod began, as its status says.
    pub started_at: Option<Timestamp>,
    /// True when it was decided already that the node ends the pod.
    pub is_judged: bool,
    /// That the node cannot afford the pod any longer, once.
    pub eviction: Option<&'a Eviction>,
    /// What is shown as waiting.
    pub waiting: &'a BTreeMap<ContainerName, Waiting>,
    /// What was told to hold the pod back.
    pub hold: Option<&'a Hold>,
    /// What went wrong with a container's last start.
    pub failures: &'a BTreeMap<ContainerName, StartFailure>,
    /// What went wrong with the pod as a whole.
    pub pod_failure: Option<&'a Failure>,
    /// What probes say, for containers that have any.
    pub probes: &'a BTreeMap<ContainerName, ContainerProbes>,
    /// Where granted resources are not in force yet.
    pub resize: &'a ResizeFacts,
    /// True while a container's exit asks for every container of the pod to start anew, in place.
    pub is_restarting_all: bool,
    /// Why the runtime cannot connect pods; `None` when it can.
    pub network_trouble: Option<&'a str>,
    /// How long to wait after crashes and failed pulls.
    pub back_off: BackOffPolicy,
    /// What stays of containers that ended.
    pub kept: KeptContainers,
}

/// What stays of a pod's containers that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptContainers {
    /// So many of each name, the newest, with their logs.
    Newest(usize),
    /// None, only the status: the node ended the pod because it could not afford it.
    None,
}

impl KeptContainers {
    /// What the node's limit leaves of a pod that ended by itself. Without a limit the newest
    /// stays, as upstream has it: what is older is of no use to anybody who looks at the pod.
    pub fn within(limit: Option<usize>) -> Self {
        Self::Newest(limit.unwrap_or(1).max(1))
    }
}

/// Where granted resources are not in force, whether the container runs or not.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ResizeFacts {
    /// Containers that take new bounds while they run.
    pub updates: BTreeSet<ContainerName>,
    /// Containers whose policy asks for a restart.
    pub restarts: BTreeSet<ContainerName>,
    /// The pod's own resources.
    pub is_pod_level: bool,
    /// What went wrong the last time.
    pub failure: Option<Failure>,
}

/// What is wanted of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It shall run.
    Run,
    /// It shall end and stay known: evicted, past its deadline, or being deleted through the API.
    End {
        /// Shorter than the specification's, when somebody asked for that.
        grace: Option<GracePeriod>,
    },
    /// It shall end and leave nothing behind.
    Forget {
        /// Shorter than the specification's, when somebody asked for that.
        grace: Option<GracePeriod>,
    },
    /// It shall end and then begin anew: its source took it away and brought it back. What tells of
    /// its containers stays for that life, which counts on from there.
    Renew {
        /// Shorter than the specification's, when somebody asked for that.
        grace: Option<GracePeriod>,
    },
}

/// What this process has set up for a pod, or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Setup {
    /// Its cgroup is there with the right bounds.
    pub cgroup: Presence,
    /// Its directories are there.
    pub files: Presence,
    /// Its volumes are mounted.
    pub volumes: Presence,
    /// It has the devices it asks for; of no interest where it asks for none.
    pub devices: Presence,
    /// Its claims are prepared; of no interest where it uses none.
    pub claims: Presence,
    /// Its logs are gone.
    pub logs: Presence,
}

/// Whether something of a pod is there, as far as this process made sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Presence {
    /// Nobody looked yet.
    #[default]
    Unknown,
    /// Made sure that it is there.
    Present,
    /// Made sure that it is not.
    Absent,
}

/// Something about the pod as a whole that went wrong, and when: the fact a back-off is computed
/// from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One sentence.
    pub message: String,
    /// How often in a row, at least 1.
    pub count: u32,
    /// When it happened last.
    pub at: Timestamp,
}

/// A container that could not be started, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// Why.
    pub error: StartError,
    /// How often in a row, at least 1.
    pub count: u32,
    /// When it happened last.
    pub at: Timestamp,
}

/// Why a container could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    /// How it is waited out.
    pub kind: FailureKind,
    /// As users know it.
    pub reason: WaitingReason,
    /// The sentence under it.
    pub message: String,
}

/// Kinds of failure that are waited out differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// An image could not be pulled; the wait is counted per image.
    ImagePull {
        /// The image, as the specification names it.
        image: String,
    },
    /// Anything else that a later try may cure.
    Other,
}

/// What the probes of one container say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerProbes {
    /// Its startup probe succeeded, or it has none.
    pub started: Verdict,
    /// Its liveness probe.
    pub live: Verdict,
    /// Its readiness probe.
    pub ready: Verdict,
}

/// What a probe says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Pending,
    /// Well.
    Success,
    /// Not well.
    Failure {
        /// The probe's own grace for the stop that follows.
        grace: Option<GracePeriod>,
    },
}

impl Setup {
    /// True when everything a container needs is there.
    pub(crate) fn is_complete(self) -> bool {
        self.cgroup == Presence::Present
            && self.files == Presence::Present
            && self.volumes == Presence::Present
    }
}

impl Failure {
    /// When the next try may begin.
    pub(crate) fn retry_at(&self, policy: &BackOffPolicy) -> Timestamp {
        retry_at((self.at, self.count), (policy.retry_initial, policy.retry_max))
    }
}

impl StartFailure {
    /// When the next try may begin.
    pub(crate) fn retry_at(&self, policy: &BackOffPolicy) -> Timestamp {
        let waits = match self.error.kind {
            FailureKind::ImagePull { .. } => (policy.image_initial, policy.image_max),
            FailureKind::Other => (policy.retry_initial, policy.retry_max),
        };
        retry_at((self.at, self.count), waits)
    }
}

impl StartError {
    /// A failure that has nothing to do with an image's pull.
    pub fn other(reason: WaitingReason, message: String) -> Self {
        Self { kind: FailureKind::Other, reason, message }
    }

    /// What the status shows.
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting { reason: self.reason, message: self.message.clone() }
    }
}

fn retry_at((at, count): (Timestamp, u32), (first, longest): (Duration, Duration)) -> Timestamp {
    at.after(crate::doubling(first, longest, count.saturating_sub(1)))
}
