//! What was made for the pod, what could not be made, and what the runtime will not let go of.

use std::collections::BTreeMap;

use ferrolet_lifecycle::{Failure, Presence, Setup, StartError, StartFailure};
use ferrolet_pod::WaitingReason;
use ferrolet_ports::VolumeMount;
use ferrolet_resources::{PodResources, started_with};
use ferrolet_types::{ContainerName, Pod, Timestamp, observed::PodObservation, pod::PodView};

use super::Effort;
use crate::{
    left_behind::{LeftBehind, undo_abandoned_start},
    making::Making,
    resizing::Resizing,
};

/// What this process made for one pod.
#[derive(Default)]
pub(crate) struct Made {
    pub(super) setup: Setup,
    volumes: BTreeMap<String, VolumeMount>,
    /// Resources in force; known from the first decision on.
    actuated: Option<PodResources>,
    pub(crate) resizing: Resizing,
    failures: BTreeMap<ContainerName, StartFailure>,
    pod_failure: Option<Failure>,
    pub(crate) effort: Effort,
    /// What the runtime refused to remove.
    pub(super) left_behind: LeftBehind,
    /// What it is making right now.
    pub(crate) making: Making,
}

/// A part of a pod's set-up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Cgroup,
    Files,
    Volumes,
    Devices,
    Claims,
    Logs,
}

impl Made {
    pub(crate) fn setup(&self) -> Setup {
        self.setup
    }

    /// Volumes that are mounted, by their names in the pod.
    pub(crate) fn volumes(&self) -> &BTreeMap<String, VolumeMount> {
        &self.volumes
    }

    pub(crate) fn actuated(&self) -> Option<&PodResources> {
        self.actuated.as_ref()
    }

    pub(crate) fn failures(&self) -> &BTreeMap<ContainerName, StartFailure> {
        &self.failures
    }

    pub(crate) fn pod_failure(&self) -> Option<&Failure> {
        self.pod_failure.as_ref()
    }

    /// Notes that a part of the set-up is there, or gone, for certain.
    pub(crate) fn note_setup(&mut self, part: Part, presence: Presence) {
        match part {
            Part::Cgroup => self.setup.cgroup = presence,
            Part::Files => self.setup.files = presence,
            Part::Volumes => self.setup.volumes = presence,
            Part::Devices => self.setup.devices = presence,
            Part::Claims => self.setup.claims = presence,
            Part::Logs => self.setup.logs = presence,
        }
    }

    /// What is there may have been taken away meanwhile: before it is used again, it is made sure
    /// of.
    pub(crate) fn doubt(&mut self) {
        for presence in [&mut self.setup.cgroup, &mut self.setup.files, &mut self.setup.volumes] {
            if *presence == Presence::Present {
                *presence = Presence::Unknown;
            }
        }
    }

    pub(crate) fn note_volumes(&mut self, volumes: BTreeMap<String, VolumeMount>) {
        self.volumes = volumes;
        self.setup.volumes = Presence::Present;
    }

    /// Notes which resources are in force.
    pub(crate) fn note_actuated(&mut self, actuated: Option<PodResources>) {
        self.actuated = actuated;
    }

    /// Notes that a container was started, with what it was granted; answers what is in force now,
    /// when that was known before.
    pub(crate) fn note_started(
        &mut self,
        pod: Option<&Pod>,
        container: &ContainerName,
    ) -> Option<&PodResources> {
        self.failures.remove(container);
        let (pod, actuated) = (pod?, self.actuated.as_mut()?);
        let (_, spec) = pod.find_container(container.as_str())?;
        actuated.containers.insert(container.to_string(), started_with(pod, spec));
        Some(actuated)
    }

    /// Notes that a container's start failed.
    pub(crate) fn note_start_failure(
        &mut self,
        container: &ContainerName,
        error: StartError,
        now: Timestamp,
    ) {
        let same = |old: &&StartFailure| old.error.kind == error.kind;
        let count =
            self.failures.get(container).filter(same).map_or(1, |old| old.count.saturating_add(1));
        self.failures.insert(container.clone(), StartFailure { error, count, at: now });
    }

    /// Notes that something about the pod as a whole failed.
    pub(crate) fn note_pod_failure(&mut self, message: String, now: Timestamp) {
        let count = self.pod_failure.as_ref().map_or(1, |old| old.count.saturating_add(1));
        self.pod_failure = Some(Failure { message, count, at: now });
    }

    /// What failed was done, or has no reason to fail any longer.
    pub(crate) fn forget_pod_failure(&mut self) {
        self.pod_failure = None;
    }

    /// What a container could not be made with may be there now.
    pub(crate) fn forget_config_failures(&mut self) {
        let is_config =
            |it: &StartFailure| it.error.reason == WaitingReason::CreateContainerConfigError;
        self.failures.retain(|_, failure| !is_config(failure));
    }

    /// How many containers of this name never ran and still hold a name that one restarted so often
    /// would get.
    pub(crate) fn n_left_behind(
        &self,
        observation: &PodObservation,
        container: &ContainerName,
        restart_count: u32,
    ) -> u32 {
        self.left_behind.count(observation, container, restart_count)
    }

    pub(super) fn put_left_behind_aside(&mut self, observation: &mut PodObservation) {
        observation.containers.iter_mut().for_each(undo_abandoned_start);
        self.left_behind.take_from(observation);
    }
}
