//! What a worker remembers of its pod between two decisions. Lost with the process, and rebuilt by looking.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use ferrolet_lifecycle::{
    Action, Failure, FailureKind, PodState, Presence, Setup, Stage, Waiting, doubling,
};
use ferrolet_ports::VolumeMount;
use ferrolet_resources::{PodResources, started_with, with_resources};
use ferrolet_status::StatusOverride;
use ferrolet_types::{
    ContainerId, ContainerName, Pod, PodKey, PodUid, Timestamp,
    hint::{News, Seen},
    observed::{ContainerState, PodObservation},
    pod::{Phase, PodView},
};
use k8s_openapi::api::core::v1::{PodStatus, VolumeHealthCondition};

use crate::{
    World,
    answers::Lives,
    grants::Assigned,
    left_behind::{LeftBehind, undo_abandoned_start},
    making::Making,
    probing::Probed,
    resizing::Resizing,
    start::StartFailure,
};

/// First and longest pause between repetitions of a step without effect.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One pod, as its worker knows it.
pub(crate) struct Memory {
    pub(crate) uid: PodUid,
    pub(crate) key: Option<PodKey>,
    /// The specification with the resources that were granted.
    pub(crate) pod: Option<Pod>,
    /// The specification as its source wants it.
    pub(crate) desired: Option<Pod>,
    /// What the dispatcher handed over last.
    pub(crate) assigned: Option<Assigned>,
    /// Resources in force; known from the first decision on.
    pub(crate) actuated: Option<PodResources>,
    pub(crate) resizing: Resizing,
    pub(crate) state: PodState,
    pub(crate) seen: PodObservation,
    pub(crate) setup: Setup,
    pub(crate) volumes: BTreeMap<String, VolumeMount>,
    pub(crate) failures: BTreeMap<ContainerName, Failure>,
    pub(crate) pod_failure: Option<Failure>,
    pub(crate) waiting: BTreeMap<ContainerName, Waiting>,
    pub(crate) hold: Option<Waiting>,
    pub(crate) probes: BTreeMap<ContainerName, Probed>,
    /// What an earlier life of the agent told of the containers of a static pod.
    pub(crate) told_before: Lives,
    /// What drivers said last of volumes, by their names in the pod.
    pub(crate) volume_health: BTreeMap<String, Vec<VolumeHealthCondition>>,
    pub(crate) status: Option<PodStatus>,
    /// What somebody outside the pod decided about it.
    pub(crate) verdict: Option<StatusOverride>,
    /// The scheme of container ids; known once the runtime has answered.
    pub(crate) runtime_name: String,
    /// Termination messages by container: read once, when the container is first seen dead.
    pub(crate) last_words: HashMap<ContainerId, String>,
    pub(crate) effort: Effort,
    /// What the runtime refused to remove.
    pub(crate) left_behind: LeftBehind,
    /// What it is making right now.
    pub(crate) making: Making,
    /// It was told that the pod's end takes too long.
    pub(crate) is_overdue_told: bool,
    /// Containers whose end was announced.
    told_ends: BTreeSet<ContainerId>,
    /// Those of the stage that is being executed whose end is news.
    new_ends: BTreeSet<ContainerId>,
}

/// The step that was executed last, and how often in a row. What is repeated again and again has no effect, however well
/// the runtime says that it went.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    stages: Vec<Stage>,
    n_repeated: u32,
}

impl Effort {
    /// Notes what is about to be executed and answers how long to wait before it.
    pub(crate) fn pause_before(&mut self, stages: &[Stage]) -> Duration {
        if self.stages != stages {
            self.stages = stages.to_vec();
            self.n_repeated = 0;
            return Duration::ZERO;
        }
        self.n_repeated = self.n_repeated.saturating_add(1);
        match self.n_repeated {
            // One repetition may be a look that came too early.
            1 => Duration::ZERO,
            n => doubling(FIRST_PAUSE, LONGEST_PAUSE, n - 2),
        }
    }

    /// Forgets: there was nothing to do, or what failed has a back-off of its own.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

impl Memory {
    pub(crate) fn new(uid: PodUid, key: Option<PodKey>, pod: Option<Pod>, now: Timestamp) -> Self {
        let key = pod.as_ref().map(|pod| pod.key()).or(key);
        Self {
            seen: PodObservation::nothing(uid.clone(), now),
            uid,
            key,
            desired: pod.clone(),
            pod,
            assigned: None,
            actuated: None,
            resizing: Resizing::default(),
            state: PodState::Running,
            setup: Setup::default(),
            volumes: BTreeMap::new(),
            failures: BTreeMap::new(),
            pod_failure: None,
            waiting: BTreeMap::new(),
            hold: None,
            probes: BTreeMap::new(),
            told_before: Lives::new(),
            volume_health: BTreeMap::new(),
            status: None,
            verdict: None,
            runtime_name: String::new(),
            last_words: HashMap::new(),
            effort: Effort::default(),
            left_behind: LeftBehind::default(),
            making: Making::default(),
            is_overdue_told: false,
            told_ends: BTreeSet::new(),
            new_ends: BTreeSet::new(),
        }
    }

    /// Notes whose end is to be announced with a stage: a stop that is repeated, or interrupted by a shorter grace, is no news.
    pub(crate) fn note_ends(&mut self, stage: &Stage) {
        self.new_ends.clear();
        for action in stage {
            if let Action::StopContainer { id, .. } = action
                && self.told_ends.insert(id.clone())
            {
                self.new_ends.insert(id.clone());
            }
        }
    }

    /// True when nobody was told of this container's end yet.
    pub(crate) fn is_new_end(&self, id: &ContainerId) -> bool {
        self.new_ends.contains(id)
    }

    /// The node does not take the pod: it never runs, and only its status is left to tell.
    pub(crate) fn reject(&mut self, reason: String, message: String) {
        self.verdict = Some(StatusOverride::Rejected { reason, message });
        self.state = PodState::Settled;
    }

    /// The node took the pod and cannot have it after all: it fails, and what was made for it is taken away.
    pub(crate) fn reject_late(&mut self, reason: &str, message: &str) {
        self.verdict = Some(StatusOverride::Ended {
            phase: Phase::Failed,
            reason: reason.to_owned(),
            message: format!("Pod was rejected: {message}"),
            conditions: Vec::new(),
        });
    }

    /// Takes in what the runtime told.
    pub(crate) fn look_at(&mut self, mut seen: PodObservation) {
        // Addresses of a sandbox that just went down are still the pod's, as far as its status goes.
        if let (Some(new), Some(old)) = (seen.sandboxes.first_mut(), self.seen.sandboxes.first())
            && new.id == old.id
            && new.ips.is_empty()
            && !new.is_ready
        {
            new.ips = old.ips.clone();
        }
        self.key = self.key.take().or_else(|| seen.key.clone());
        let is_there = |id: &ContainerId| seen.containers.iter().any(|it| it.id == *id);
        self.last_words.retain(|id, _| is_there(id));
        self.told_ends.retain(is_there);
        seen.containers.iter_mut().for_each(undo_abandoned_start);
        self.left_behind.take_from(&mut seen);
        self.seen = seen;
        self.forget_old_verdicts();
        self.recall_verdicts();
    }

    /// True when a hint tells something that the last look did not show.
    pub(crate) fn is_news(&self, news: &News) -> bool {
        let sandbox = self.seen.sandboxes.iter().find(|it| it.id.as_str() == news.id);
        let known = match sandbox {
            Some(it) if it.is_ready => Some(Seen::Running),
            Some(_) => Some(Seen::Ended),
            None => {
                self.seen.containers.iter().find(|it| it.id.as_str() == news.id).map(|it| match it
                    .state
                {
                    ContainerState::Created => Seen::Created,
                    ContainerState::Running { .. } => Seen::Running,
                    ContainerState::Exited(_) => Seen::Ended,
                    ContainerState::Unknown => Seen::Unknown,
                })
            }
        };
        match (known, news.now) {
            (None, Seen::Removed) => false,
            // A look may be ahead of the hint: what runs was created, what ended had run.
            (Some(Seen::Running), Seen::Created)
            | (Some(Seen::Ended), Seen::Created | Seen::Running) => false,
            (known, now) => known != Some(now),
        }
    }

    /// Notes that a container's start failed.
    pub(crate) fn note_start_failure(
        &mut self,
        container: &ContainerName,
        failure: StartFailure,
        now: Timestamp,
    ) {
        let same = |old: &&Failure| old.kind == failure.kind;
        let count =
            self.failures.get(container).filter(same).map_or(1, |old| old.count.saturating_add(1));
        let StartFailure { kind, reason, message } = failure;
        self.failures.insert(container.clone(), Failure { kind, reason, message, count, at: now });
    }

    /// Notes that something about the pod as a whole failed.
    pub(crate) fn note_pod_failure(
        &mut self,
        reason: &'static str,
        message: String,
        now: Timestamp,
    ) {
        let count = self.pod_failure.as_ref().map_or(1, |old| old.count.saturating_add(1));
        self.pod_failure =
            Some(Failure { kind: FailureKind::Other, reason, message, count, at: now });
    }

    /// Notes that a container was started with what it was granted.
    pub(crate) fn note_in_force(&mut self, container: &ContainerName, world: &World) {
        let (Some(pod), Some(actuated)) = (&self.pod, &mut self.actuated) else {
            return;
        };
        if let Some((_, spec)) = pod.find_container(container.as_str()) {
            let granted = started_with(pod, spec);
            actuated.containers.insert(container.to_string(), granted);
            world.records.put_in_force(&self.uid, actuated);
        }
    }

    /// Replaces the specification; what was set up for the old one is looked at again.
    pub(crate) fn take_pod(&mut self, pod: Pod) {
        if let Some(old) = &self.pod {
            // Other resources are put in force step by step, in an order of their own.
            let granted = PodResources::of(old);
            let as_before = with_resources(&pod, &granted);
            if old.spec != as_before.as_ref().unwrap_or(&pod).spec {
                self.setup.cgroup = Presence::Unknown;
                self.setup.volumes = Presence::Unknown;
            }
            let (was, is) = (&old.metadata, &pod.metadata);
            // Volumes may show labels and annotations as files.
            if was.labels != is.labels || was.annotations != is.annotations {
                self.setup.volumes = Presence::Unknown;
            }
        }
        self.key = Some(pod.key());
        self.pod = Some(pod);
    }
}

/// What an earlier life of the agent decided about a pod that it did not take: its status tells of no containers.
pub(crate) fn earlier_rejection(pod: &Pod) -> Option<StatusOverride> {
    let status = pod.status.as_ref()?;
    let has_containers = status.container_statuses.as_ref().is_some_and(|it| !it.is_empty());
    if status.phase.as_deref() != Some("Failed") || has_containers {
        return None;
    }
    let message = status.message.as_deref()?;
    Some(StatusOverride::Rejected {
        reason: status.reason.clone()?,
        message: message.strip_prefix("Pod was rejected: ")?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_effect_is_repeated_ever_more_slowly() {
        let mut effort = Effort::default();
        let stages =
            |id: &str| vec![vec![ferrolet_lifecycle::Action::StopSandbox { id: id.into() }]];
        let pauses: Vec<u128> = ["a", "b", "b", "b", "b", "b", "a"]
            .map(|id| effort.pause_before(&stages(id)).as_millis())
            .into();
        assert_eq!(pauses, [0, 0, 0, 100, 200, 400, 0]);
        for _ in 0..20 {
            effort.pause_before(&stages("a"));
        }
        assert_eq!(effort.pause_before(&stages("a")), LONGEST_PAUSE);
        effort.reset();
        assert_eq!(effort.pause_before(&stages("a")), Duration::ZERO);
    }

    #[test]
    fn who_was_rejected_before_stays_rejected() {
        let check = |status: serde_json::Value, expected: Option<(&str, &str)>| {
            let pod = serde_json::json!({"metadata": {"name": "p"}, "status": status});
            let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
            let expected = expected.map(|(reason, message)| StatusOverride::Rejected {
                reason: reason.to_owned(),
                message: message.to_owned(),
            });
            assert_eq!(earlier_rejection(&pod.into()), expected);
        };
        let rejected = |phase: &str, message: &str| serde_json::json!({"phase": phase, "reason": "OutOfcpu", "message": message});
        check(rejected("Failed", "Pod was rejected: too much"), Some(("OutOfcpu", "too much")));
        check(rejected("Pending", "Pod was rejected: too much"), None);
        check(rejected("Failed", "The node was low on memory"), None);
        let mut ran = rejected("Failed", "Pod was rejected: by its own words");
        ran["containerStatuses"] = serde_json::json!([{"name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": ""}]);
        check(ran, None);
        check(serde_json::json!({}), None);
    }

    #[test]
    fn an_end_is_announced_once() {
        let stop = |id: &str| Action::StopContainer {
            id: ContainerId::new(id),
            container: ContainerName::new("c"),
            grace: ferrolet_types::GracePeriod::from_secs(1),
            cause: ferrolet_lifecycle::StopCause::PodEnds,
            after: Vec::new(),
        };
        let mut memory = Memory::new(PodUid::new("u"), None, None, Timestamp::from_second(0));
        let news = |memory: &Memory| ["a", "b"].map(|id| memory.is_new_end(&ContainerId::new(id)));
        memory.note_ends(&vec![stop("a")]);
        assert_eq!(news(&memory), [true, false]);
        memory.note_ends(&vec![stop("a"), stop("b")]);
        assert_eq!(news(&memory), [false, true]);
        memory.note_ends(&vec![stop("a"), stop("b")]);
        assert_eq!(news(&memory), [false, false]);
    }
}
