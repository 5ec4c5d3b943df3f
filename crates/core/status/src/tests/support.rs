//! A small world to compute statuses in: facts with sensible defaults, changed one at a time.

use std::collections::BTreeMap;

use crate::{ContainerFact, RuntimeFacts, Stage, StatusInputs, StatusOverride, compute};
use ferrolet_pod::{Waiting, WaitingReason};
use ferrolet_types::{
    ContainerName, Timestamp,
    observed::{
        ContainerState, Exit, NetworkMode, ObservedContainer, ObservedResources, ObservedSandbox,
        PodObservation, TerminationMessageSource,
    },
};
use k8s_openapi::api::core::v1::{
    ContainerStatus, Pod, PodCondition, PodStatus, VolumeHealthCondition,
};
use serde_json::{Value, json};

/// Everything a status is computed from.
pub(super) struct World {
    pub(super) pod: Pod,
    pub(super) previous: Option<PodStatus>,
    pub(super) observation: PodObservation,
    pub(super) runtime: RuntimeFacts<'static>,
    pub(super) containers: BTreeMap<ContainerName, ContainerFact>,
    pub(super) stage: Stage,
    pub(super) verdict: Option<StatusOverride>,
    pub(super) resize: Vec<PodCondition>,
    pub(super) pod_cgroup: Option<ObservedResources>,
    pub(super) volume_health: BTreeMap<String, Vec<VolumeHealthCondition>>,
    pub(super) host_ips: Vec<String>,
    pub(super) now: Timestamp,
}

impl World {
    /// A pod of this specification, with a ready sandbox and nothing in it.
    pub(super) fn new(spec: Value) -> Self {
        let pod = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "generation": 1 },
            "spec": spec,
        });
        let at = Timestamp::from_second(100);
        Self {
            pod: serde_json::from_value(pod).unwrap(),
            previous: None,
            observation: PodObservation {
                sandboxes: vec![sandbox(true)],
                ..PodObservation::nothing("u".into(), at)
            },
            runtime: RuntimeFacts {
                name: "containerd",
                has_recursive_read_only: true,
                shows_stop_signal: false,
            },
            containers: BTreeMap::new(),
            stage: Stage::Running,
            verdict: None,
            resize: Vec::new(),
            pod_cgroup: None,
            volume_health: BTreeMap::new(),
            host_ips: vec!["10.87.0.1".to_owned()],
            now: at,
        }
    }

    /// A pod of one regular container `c`.
    pub(super) fn of_one(policy: &str) -> Self {
        Self::new(json!({ "restartPolicy": policy, "containers": [{ "name": "c", "image": "i" }] }))
    }

    /// With these containers in the runtime, the newest first.
    pub(super) fn seeing(mut self, containers: Vec<ObservedContainer>) -> Self {
        self.observation.containers = containers;
        self
    }

    /// With what was published before.
    pub(super) fn after(mut self, previous: PodStatus) -> Self {
        self.previous = Some(previous);
        self
    }

    /// With the worker at this stage.
    pub(super) fn at(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// With a start that failed.
    pub(super) fn waiting(mut self, name: &str, reason: &str) -> Self {
        self.fact(name).waiting =
            Some(Waiting { reason: waiting_reason(reason), message: "why".to_owned() });
        self
    }

    /// With deletion asked for.
    pub(super) fn deleted(mut self) -> Self {
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now.0);
        self.pod.metadata.deletion_timestamp = Some(time);
        self
    }

    /// What is known of a container.
    pub(super) fn fact(&mut self, name: &str) -> &mut ContainerFact {
        self.containers.entry(name.into()).or_default()
    }

    /// The status of this world.
    pub(super) fn status(&self) -> PodStatus {
        compute(&StatusInputs {
            pod: &self.pod,
            previous: self.previous.as_ref(),
            observation: &self.observation,
            runtime: self.runtime,
            containers: &self.containers,
            stage: self.stage,
            verdict: self.verdict.as_ref(),
            resize: &self.resize,
            pod_cgroup: self.pod_cgroup,
            volume_health: &self.volume_health,
            host_ips: &self.host_ips,
            now: self.now,
        })
        .status
    }

    /// The phase of this world.
    pub(super) fn phase(&self) -> String {
        self.status().phase.unwrap()
    }
}

/// A sandbox.
pub(super) fn sandbox(is_ready: bool) -> ObservedSandbox {
    ObservedSandbox {
        id: "box".into(),
        attempt: 0,
        is_ready,
        created_at: Timestamp::from_second(1),
        ips: if is_ready { vec!["10.88.0.7".to_owned()] } else { Vec::new() },
        network: NetworkMode::Pod,
    }
}

/// A container in any state.
pub(super) fn container(name: &str, count: u32, state: ContainerState) -> ObservedContainer {
    ObservedContainer {
        id: format!("{name}-{count}").into(),
        name: name.into(),
        sandbox: "box".into(),
        state,
        created_at: Timestamp::from_second(10),
        restart_count: count,
        spec_hash: None,
        crash_streak: None,
        termination_message: TerminationMessageSource::default(),
        image: "image".to_owned(),
        image_ref: "ref".to_owned(),
        image_id: "id".to_owned(),
        log_path: String::new(),
        mounts: Vec::new(),
        user: None,
        resources: None,
        stop_signal: Some("SIGTERM".to_owned()),
    }
}

/// A container that runs.
pub(super) fn running(name: &str, count: u32) -> ObservedContainer {
    let started_at = Timestamp::from_second(11);
    container(name, count, ContainerState::Running { started_at })
}

/// A container that ended.
pub(super) fn exited(name: &str, count: u32, code: i32) -> ObservedContainer {
    let exit = Exit {
        started_at: Some(Timestamp::from_second(11)),
        finished_at: Timestamp::from_second(12),
        code,
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: String::new(),
    };
    container(name, count, ContainerState::Exited(exit))
}

/// The status of one container.
pub(super) fn of<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let lists = [
        &status.init_container_statuses,
        &status.container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let mut all = lists.into_iter().flatten().flatten();
    all.find(|status| status.name == name).unwrap()
}

/// A container's status on one line: state, last state, count.
pub(super) fn brief(status: &ContainerStatus) -> String {
    let state = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
        let state = state.clone().unwrap_or_default();
        let wait = state.waiting.map(|w| format!("waiting {}", w.reason.unwrap_or_default()));
        let run = state.running.map(|_| "running".to_owned());
        let end = state.terminated.map(|end| {
            let reason = end.reason.unwrap_or_default();
            format!("{reason} {}", end.exit_code)
        });
        wait.or(run).or(end).unwrap_or_else(|| "-".to_owned())
    };
    let (now, last) = (state(&status.state), state(&status.last_state));
    format!("{now}, {last}, {}", status.restart_count)
}

/// A condition on one line: status, reason, message.
pub(super) fn said(status: &PodStatus, kind: &str) -> String {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == kind);
    let Some(condition) = condition else {
        return "absent".to_owned();
    };
    let part = |text: &Option<String>| text.clone().map_or(String::new(), |it| format!(" {it}"));
    format!("{}{}{}", condition.status, part(&condition.reason), part(&condition.message))
}

/// The reason with this word.
pub(super) fn waiting_reason(word: &str) -> WaitingReason {
    let mut all = WaitingReason::ALL.into_iter();
    all.find(|it| it.as_str() == word).unwrap_or_else(|| panic!("no reason {word}"))
}
