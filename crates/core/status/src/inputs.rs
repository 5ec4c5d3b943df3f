//! The facts that a pod's status is computed from. Owned by the caller; nothing here is looked up
//! or kept.

use std::collections::BTreeMap;

use ferrolet_pod::{EndReason, Waiting};
use ferrolet_types::{
    ContainerName, Timestamp,
    observed::{ObservedResources, PodObservation},
    pod::Phase,
};
use k8s_openapi::api::core::v1::{
    Pod, PodCondition, PodStatus, ResourceRequirements, ResourceStatus, VolumeHealthCondition,
};

/// Everything [`compute`](crate::compute) looks at.
#[derive(Clone, Copy, Debug)]
pub struct StatusInputs<'a> {
    /// The pod with its allocated specification; its `status` is what the API last showed us.
    pub pod: &'a Pod,
    /// What we published last; `None` right after the agent started, when the API's status takes
    /// its place.
    pub previous: Option<&'a PodStatus>,
    /// What the runtime holds of the pod.
    pub observation: &'a PodObservation,
    /// What does not change from pod to pod.
    pub runtime: RuntimeFacts<'a>,
    /// What we know of each container beyond the runtime's word; a missing name means nothing is
    /// known.
    pub containers: &'a BTreeMap<ContainerName, ContainerFact>,
    /// How far the pod's worker is.
    pub stage: Stage,
    /// A verdict from outside that names the phase.
    pub verdict: Option<&'a StatusOverride>,
    /// `PodResizePending` and `PodResizeInProgress`, ready made; not shown once the pod is stopped.
    pub resize: &'a [PodCondition],
    /// Bounds of the pod's own cgroup; `None` on a node that does not read them, the default once
    /// the cgroup is gone.
    pub pod_cgroup: Option<ObservedResources>,
    /// What drivers said last of the pod's volumes, by their names in the pod; nothing is known of
    /// those that are missing.
    pub volume_health: &'a BTreeMap<String, Vec<VolumeHealthCondition>>,
    /// The node's addresses, the primary one first; empty for a node without an API server.
    pub host_ips: &'a [String],
    /// The moment of this computation.
    pub now: Timestamp,
}

/// What is true of the runtime and the gates on this node.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeFacts<'a> {
    /// The runtime's name for itself (`containerd`): the scheme of container ids.
    pub name: &'a str,
    /// True when the pod's runtime handler can make mounts read-only all the way down.
    pub has_recursive_read_only: bool,
    /// True when gate `ContainerStopSignals` is on: statuses then tell the stop signal.
    pub shows_stop_signal: bool,
}

/// What is known of one container besides the observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerFact {
    /// Why its last start did not happen, until one does.
    pub waiting: Option<Waiting>,
    /// Verdict of the startup probe on the container that runs now; `None` before the first or
    /// without a probe.
    pub started: Option<bool>,
    /// Verdict of the readiness probe on the container that runs now; `None` before the first or
    /// without a probe.
    pub ready: Option<bool>,
    /// Resources we last put in force, where a record is kept; stands in for what the runtime does
    /// not tell.
    pub actuated: Option<ResourceRequirements>,
    /// How its devices feel.
    pub devices: Vec<ResourceStatus>,
}

/// How far the pod's worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Containers are kept running.
    Running,
    /// Containers are being stopped.
    Terminating,
    /// Every container has stopped and none will start: exit codes alone name the phase.
    Stopped,
    /// Nothing of the pod is left on the node; what has no end by now never gets one.
    Terminated,
}

/// A verdict from outside that names the phase.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusOverride {
    /// The node never took the pod: it fails with nothing but this said.
    Rejected {
        /// One word: `OutOfcpu`, `NodeAffinity`.
        reason: String,
        /// The admission's sentence, without the words "Pod was rejected".
        message: String,
    },
    /// The node ends the pod: eviction, preemption, shutdown, deadline.
    Ended {
        /// The phase it ends in.
        phase: Phase,
        /// Why.
        reason: EndReason,
        /// A sentence.
        message: String,
        /// Conditions to add, such as `DisruptionTarget`; times and generation are filled in.
        conditions: Vec<PodCondition>,
    },
}

impl StatusInputs<'_> {
    /// The status to build upon: ours, else the API's, else an empty one.
    pub(crate) fn old(&self) -> &PodStatus {
        static EMPTY: std::sync::OnceLock<PodStatus> = std::sync::OnceLock::new();
        self.previous
            .or(self.pod.status.as_ref())
            .unwrap_or_else(|| EMPTY.get_or_init(PodStatus::default))
    }

    /// The pod's generation, where the API counts it.
    pub(crate) fn generation(&self) -> Option<i64> {
        generation_of(self.pod)
    }

    /// What is known of a container.
    pub(crate) fn fact(&self, name: &str) -> Option<&ContainerFact> {
        self.containers.get(name)
    }
}

/// The pod's generation, where the API counts it.
pub(crate) fn generation_of(pod: &Pod) -> Option<i64> {
    pod.metadata.generation.filter(|number| *number != 0)
}
