//! What was seen of the pod: by the runtime, by probes, by volume drivers.

use std::collections::{BTreeMap, HashMap};

use ferrolet_types::{
    ContainerId, ContainerName,
    hint::{News, Seen as SeenDoing},
    observed::{ContainerState, PodObservation},
};
use k8s_openapi::api::core::v1::{ResourceStatus, VolumeHealthCondition};

use crate::{answers::Lives, probing::Probes};

/// What was seen of one pod.
pub(crate) struct Seen {
    observation: PodObservation,
    /// The scheme of container ids; known once the runtime has answered.
    runtime_name: String,
    /// Termination messages by container: read once, when the container is first seen dead.
    termination_messages: HashMap<ContainerId, String>,
    pub(crate) probes: Probes,
    /// What an earlier life of the agent told of the containers of a static pod.
    pub(crate) told_before: Lives,
    /// What drivers said last of volumes, by their names in the pod.
    volume_health: BTreeMap<String, Vec<VolumeHealthCondition>>,
    /// How devices feel, by container.
    devices: BTreeMap<ContainerName, Vec<ResourceStatus>>,
}

impl Seen {
    pub(super) fn new(observation: PodObservation) -> Self {
        Self {
            observation,
            runtime_name: String::new(),
            termination_messages: HashMap::new(),
            probes: BTreeMap::new(),
            told_before: Lives::new(),
            volume_health: BTreeMap::new(),
            devices: BTreeMap::new(),
        }
    }

    /// What the runtime told last.
    pub(crate) fn observation(&self) -> &PodObservation {
        &self.observation
    }

    pub(super) fn observation_mut(&mut self) -> &mut PodObservation {
        &mut self.observation
    }

    pub(crate) fn runtime_name(&self) -> &str {
        &self.runtime_name
    }

    pub(crate) fn volume_health(&self) -> &BTreeMap<String, Vec<VolumeHealthCondition>> {
        &self.volume_health
    }

    pub(crate) fn devices(&self) -> &BTreeMap<ContainerName, Vec<ResourceStatus>> {
        &self.devices
    }

    /// Takes how devices feel.
    pub(crate) fn note_devices(&mut self, devices: BTreeMap<ContainerName, Vec<ResourceStatus>>) {
        self.devices = devices;
    }

    /// Takes what a driver says of a volume.
    pub(crate) fn note_volume_health(
        &mut self,
        volume: String,
        conditions: Vec<VolumeHealthCondition>,
    ) {
        self.volume_health.insert(volume, conditions);
    }

    pub(super) fn look_at(&mut self, mut observation: PodObservation, runtime_name: String) {
        let old = self.observation.sandboxes.first();
        // Addresses of a sandbox that just went down are still the pod's, as far as its status
        // goes.
        if let (Some(new), Some(old)) = (observation.sandboxes.first_mut(), old)
            && new.id == old.id
            && new.ips.is_empty()
            && !new.is_ready
        {
            new.ips = old.ips.clone();
        }
        let is_there = |id: &ContainerId| observation.containers.iter().any(|it| it.id == *id);
        self.termination_messages.retain(|id, _| is_there(id));
        self.observation = observation;
        self.runtime_name = runtime_name;
        self.forget_old_verdicts();
        self.recall_verdicts();
    }

    /// True when a hint tells something that the last look did not show.
    pub(crate) fn is_news(&self, news: &News) -> bool {
        let seen = &self.observation;
        let sandbox = seen.sandboxes.iter().find(|it| it.id.as_str() == news.id);
        let container = seen.containers.iter().find(|it| it.id.as_str() == news.id);
        let known = match (sandbox, container.map(|it| &it.state)) {
            (Some(it), _) if it.is_ready => Some(SeenDoing::Running),
            (Some(_), _) => Some(SeenDoing::Ended),
            (None, Some(ContainerState::Created)) => Some(SeenDoing::Created),
            (None, Some(ContainerState::Running { .. })) => Some(SeenDoing::Running),
            (None, Some(ContainerState::Exited(_))) => Some(SeenDoing::Ended),
            (None, Some(ContainerState::Unknown)) => Some(SeenDoing::Unknown),
            (None, None) => None,
        };
        match (known, news.now) {
            (None, SeenDoing::Removed) => false,
            // A look may be ahead of the hint: what runs was created, what ended had run.
            (Some(SeenDoing::Running), SeenDoing::Created)
            | (Some(SeenDoing::Ended), SeenDoing::Created | SeenDoing::Running) => false,
            (known, now) => known != Some(now),
        }
    }

    /// The dead containers whose termination message was not read yet.
    pub(crate) fn without_termination_message(&self) -> Vec<ContainerId> {
        let dead = self.observation.containers.iter().filter(|it| it.state.exit().is_some());
        let unread = dead.filter(|it| !self.termination_messages.contains_key(&it.id));
        unread.map(|it| it.id.clone()).collect()
    }

    /// Notes what a dead container had to say.
    pub(crate) fn note_termination_message(&mut self, id: ContainerId, message: String) {
        self.termination_messages.insert(id, message);
    }

    /// Puts the termination messages where the runtime's message is.
    pub(crate) fn add_termination_messages(&mut self) {
        for container in &mut self.observation.containers {
            if let ContainerState::Exited(exit) = &mut container.state
                && let Some(message) = self.termination_messages.get(&container.id)
            {
                exit.message = crate::termination_message::joined(&exit.message, message);
            }
        }
    }
}
