//! What the worker of a pod tells the probes, and what they tell it: plain data for both sides.
//!
//! A worker says what runs ([`PodProbes`]) whenever that changes, first of all before it starts any
//! container; the probes answer with a [`ProbeReport`] whenever a result changes. A worker begins
//! each new container with every result at [`ProbeResult::Pending`] and needs no report to get
//! there.

use crate::{ContainerId, ContainerName, GracePeriod, Pod, PodUid, Timestamp, pod::ProbeKind};

/// A pod to be probed, as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct PodProbes {
    /// The pod; its specification names the probes.
    pub pod: Pod,
    /// Its addresses, the primary one first. For a pod on the node's network: the node's.
    pub pod_ips: Vec<String>,
    /// Those of its containers that run now. Who is missing here is not probed.
    pub running: Vec<RunningContainer>,
    /// How far the pod is.
    pub stage: ProbeStage,
}

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningContainer {
    /// Its name in the pod.
    pub name: ContainerName,
    /// Its handle; another one means another life, and results begin anew.
    pub id: ContainerId,
    /// When its process began.
    pub started_at: Timestamp,
    /// What the last status that was published said of this very container; `None` when it said
    /// nothing.
    pub told: Option<Told>,
}

/// What a published status said of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Told {
    /// It had started.
    pub started: bool,
    /// It was ready.
    pub ready: bool,
}

/// How far a probed pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeStage {
    /// Its containers shall run: every probe counts.
    Running,
    /// Its containers are being stopped: only readiness still matters.
    Terminating,
}

/// A probe's result changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// Whose container.
    pub uid: PodUid,
    /// Which container.
    pub container: ContainerName,
    /// Which life of it; a report about another one is old news.
    pub container_id: ContainerId,
    /// Which probe.
    pub kind: ProbeKind,
    /// What it says now.
    pub result: ProbeResult,
}

/// What a probe says of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
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
