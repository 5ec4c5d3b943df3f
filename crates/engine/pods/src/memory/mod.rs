//! What a worker remembers of its pod between two decisions. Lost with the process, and rebuilt by
//! looking.
//!
//! Four parts, by whose word it is: what was [`Asked`] by sources and the dispatcher, what was
//! [`Made`] for the pod, what was [`Seen`] of it, and what was [`Shown`] to others.

mod asked;
mod effort;
mod made;
mod seen;
mod shown;

use ferrolet_lifecycle::{PodState, Presence};
use ferrolet_resources::{PodResources, with_resources};
use ferrolet_types::{Pod, PodKey, PodUid, Timestamp, observed::PodObservation};

pub(crate) use self::{
    asked::{Asked, earlier_rejection},
    effort::Effort,
    made::{Made, Part},
    seen::Seen,
    shown::Shown,
};
use crate::grants::Assigned;

/// One pod, as its worker knows it.
pub(crate) struct Memory {
    pub(crate) state: PodState,
    pub(crate) asked: Asked,
    pub(crate) made: Made,
    pub(crate) seen: Seen,
    pub(crate) shown: Shown,
}

impl Memory {
    pub(crate) fn new(uid: PodUid, key: Option<PodKey>, pod: Option<Pod>, now: Timestamp) -> Self {
        Self {
            state: PodState::Running,
            seen: Seen::new(PodObservation::nothing(uid.clone(), now)),
            asked: Asked::new(uid, key, pod),
            made: Made::default(),
            shown: Shown::default(),
        }
    }

    /// The node does not take the pod: it never runs, and only its status is left to tell.
    pub(crate) fn reject(&mut self, reason: String, message: String) {
        self.asked.reject(reason, message);
        self.state = PodState::Settled;
    }

    /// Takes in what the runtime told.
    pub(crate) fn look_at(&mut self, mut observation: PodObservation, runtime_name: String) {
        self.asked.note_key(observation.key.as_ref());
        self.shown.retain_ends(&observation);
        self.made.put_left_behind_aside(&mut observation);
        self.seen.look_at(observation, runtime_name);
    }

    /// Puts aside what the runtime refused to remove.
    pub(crate) fn leave_behind(&mut self, id: &str) {
        self.made.left_behind.put_aside(id, self.seen.observation_mut());
    }

    /// Takes another version of the pod; what was set up for the old one is looked at again.
    pub(crate) fn take_assigned(&mut self, assigned: Assigned) {
        if let Some(old) = self.asked.pod() {
            let pod = &assigned.pod;
            // Other resources are put in force step by step, in an order of their own.
            let granted = PodResources::of(old);
            let as_before = with_resources(pod, &granted);
            if old.spec != as_before.as_ref().unwrap_or(pod).spec {
                self.made.setup.cgroup = Presence::Unknown;
                self.made.setup.volumes = Presence::Unknown;
            }
            let (was, is) = (&old.metadata, &pod.metadata);
            // Volumes may show labels and annotations as files.
            if was.labels != is.labels || was.annotations != is.annotations {
                self.made.setup.volumes = Presence::Unknown;
            }
        }
        self.asked.take(assigned);
    }

    /// The pod's name for log lines; its UID where nobody knows its name.
    pub(crate) fn name(&self) -> String {
        self.asked.key().map_or_else(|| self.asked.uid().to_string(), ToString::to_string)
    }
}
