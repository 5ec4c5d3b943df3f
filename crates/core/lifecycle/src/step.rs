//! What a decision says: the next state, what to do now, and when to look again.

use std::{collections::BTreeMap, time::Duration};

use ferrolet_pod::{Ending, Waiting};
use ferrolet_types::{
    ContainerId, ContainerName, GracePeriod, SandboxId, Timestamp, pod::ContainerKind,
};

/// Where a pod stands on this node. Containers start only in `Running`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodState {
    /// Containers may start.
    Running,
    /// Containers are being stopped; the grace only shrinks.
    Stopping {
        /// What each container gets.
        grace: GracePeriod,
        /// When stopping began.
        since: Timestamp,
    },
    /// Nothing runs; volumes and cgroup are being taken away.
    Stopped,
    /// Ended and cleaned up; only what logs and status need is kept.
    Settled,
    /// Nothing of it is left on the node.
    Gone,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The state after this step.
    pub next: PodState,
    /// What to do, stage by stage; the next stage waits for all of the one before, and is dropped
    /// when one of it fails.
    pub stages: Vec<Stage>,
    /// When to decide again even if nothing happens.
    pub wake_at: Option<Timestamp>,
    /// Containers that are held back, and why: what status shows.
    pub waiting: BTreeMap<ContainerName, Waiting>,
    /// What holds the pod as a whole back: an event, not a status.
    pub hold: Option<Hold>,
    /// That the node ends the pod, when that was decided just now.
    pub verdict: Option<Ending>,
    /// What is to be told.
    pub events: Vec<StepEvent>,
}

/// What holds a pod as a whole back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The runtime cannot connect pods, for this reason.
    NetworkNotReady(String),
}

/// Something that a step gives to tell. The words are the worker's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepEvent {
    /// The node ends the pod.
    Ends(Ending),
    /// A container that keeps failing waits before it is started again.
    RestartBackOff {
        /// Which.
        container: ContainerName,
    },
    /// A container whose image cannot be pulled waits before the next try.
    PullBackOff {
        /// Which.
        container: ContainerName,
        /// As the specification names it.
        image: String,
    },
    /// Something holds the pod back.
    Held(Hold),
}

/// Actions that do not depend on one another.
pub type Stage = Vec<Action>;

/// One thing to do. Every action may be repeated; every teardown is safe without its setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give the pod's containers the devices they ask for.
    AllocateDevices,
    /// Make the pod's cgroup.
    EnsureCgroup,
    /// Make the pod's directories.
    EnsureFiles,
    /// Mount the pod's volumes.
    EnsureVolumes,
    /// Have the pod's claims of dynamic resources prepared, for a new sandbox.
    PrepareClaims,
    /// Make sure that the pod's claims are known, for a sandbox that an earlier life made.
    EnsureClaims,
    /// Make the pod's sandbox.
    CreateSandbox {
        /// Counts the sandboxes of this pod.
        attempt: u32,
        /// True when it takes the place of another one.
        replaces: bool,
    },
    /// Put the granted resources in force, for the pod and for containers that run.
    Resize {
        /// The sandbox they run in.
        sandbox: SandboxId,
        /// Which containers; the pod's own bounds follow from all of them.
        containers: Vec<(ContainerName, ContainerId)>,
    },
    /// Make and start a container, after fetching its image.
    Start {
        /// Which.
        container: ContainerName,
        /// In which part of the specification.
        kind: ContainerKind,
        /// The sandbox it joins.
        sandbox: SandboxId,
        /// Its restart count.
        restarts: RestartCount,
        /// The crash streak it starts in.
        crash_streak: u32,
    },
    /// Signal a container and kill it after the grace.
    StopContainer {
        /// Which one.
        id: ContainerId,
        /// Its name.
        container: ContainerName,
        /// How long it gets.
        grace: GracePeriod,
        /// Why.
        cause: StopCause,
        /// Who of the same stage must have ended before this one is signalled, for as long as its
        /// grace lasts; its hook does not wait.
        after: Vec<ContainerId>,
    },
    /// Stop a sandbox with everything in it.
    StopSandbox {
        /// Which one.
        id: SandboxId,
    },
    /// Remove a dead container.
    RemoveContainer {
        /// Which one.
        id: ContainerId,
        /// Its name.
        container: ContainerName,
        /// Where its log is, to be removed with it; `None` keeps the log.
        log_path: Option<String>,
    },
    /// Remove a dead sandbox.
    RemoveSandbox {
        /// Which one.
        id: SandboxId,
    },
    /// Give what may still run in the pod's cgroup as little of the processors as can be.
    LowerCpu,
    /// Have the pod's claims of dynamic resources taken back.
    UnprepareClaims,
    /// Unmount the pod's volumes.
    ReleaseVolumes {
        /// When that takes longer than this, what may still run in the pod's cgroup is slowed down
        /// meanwhile.
        lower_after: Duration,
    },
    /// Remove the pod's cgroup.
    RemoveCgroup,
    /// Remove the pod's directories.
    RemoveFiles,
    /// Remove the pod's logs.
    RemoveLogs,
}

/// A container's restart count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartCount {
    /// Known from the container before it.
    Exactly(u32),
    /// No container is left to tell: one more than the newest log file says.
    FromLogs,
}

/// Why a container is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// The pod ends, or its sandbox is replaced.
    PodEnds,
    /// Its specification changed.
    Changed,
    /// Its liveness probe failed.
    NotLive,
    /// Its startup probe failed.
    NotStarted,
    /// Its resources changed, and its policy asks for a restart then.
    Resized,
    /// Another container's exit asks for all of them to start anew.
    AllRestart,
    /// The runtime lost sight of it.
    Unknown,
}

impl StopCause {
    /// The sentence of the `Killing` event.
    pub fn message(&self, container: &str, kind: ContainerKind, restarts: bool) -> String {
        let subject = match kind {
            ContainerKind::Init | ContainerKind::Sidecar => "Init container",
            ContainerKind::Regular | ContainerKind::Ephemeral => "Container",
        };
        let tail =
            if restarts && kind == ContainerKind::Regular { ", will be restarted" } else { "" };
        match self {
            Self::PodEnds => format!("Stopping container {container}"),
            Self::Changed => format!("{subject} {container} definition changed{tail}"),
            Self::NotLive => format!("{subject} {container} failed liveness probe{tail}"),
            Self::NotStarted => format!("{subject} {container} failed startup probe{tail}"),
            Self::Resized => format!("Container {container} resize requires restart"),
            Self::AllRestart => "killing".to_owned(),
            Self::Unknown => {
                format!("{subject} is in \"unknown\" state, try killing it before restart")
            }
        }
    }
}

impl Step {
    /// Nothing to do for a pod that shall run.
    pub fn idle() -> Self {
        Self::rest(PodState::Running)
    }

    /// Nothing to do in this state.
    pub(crate) fn rest(next: PodState) -> Self {
        Self {
            next,
            stages: Vec::new(),
            wake_at: None,
            waiting: BTreeMap::new(),
            hold: None,
            verdict: None,
            events: Vec::new(),
        }
    }

    /// Adds a stage, unless it is empty.
    pub(crate) fn then(mut self, stage: Stage) -> Self {
        if !stage.is_empty() {
            self.stages.push(stage);
        }
        self
    }

    /// Asks to be woken at `when`, or earlier.
    pub(crate) fn wake(&mut self, when: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(when, |already| already.min(when)));
    }
}
