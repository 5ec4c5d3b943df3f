//! What was shown of the pod: its status, and what was told so that it is not told again.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet_lifecycle::{Action, Hold, Stage, Step};
use ferrolet_pod::Waiting;
use ferrolet_types::{ContainerId, ContainerName, observed::PodObservation};
use k8s_openapi::api::core::v1::PodStatus;

/// What was shown of one pod.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) status: Option<PodStatus>,
    waiting: BTreeMap<ContainerName, Waiting>,
    hold: Option<Hold>,
    /// It was told that the pod's end takes too long.
    pub(crate) is_overdue_told: bool,
    /// Containers whose end was announced.
    told_ends: BTreeSet<ContainerId>,
    /// Those of the stage that is being executed whose end is news.
    new_ends: BTreeSet<ContainerId>,
}

impl Shown {
    /// Containers that are shown as waiting, and why.
    pub(crate) fn waiting(&self) -> &BTreeMap<ContainerName, Waiting> {
        &self.waiting
    }

    pub(crate) fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    /// Takes over what a step leaves waiting.
    pub(crate) fn take_waiting(&mut self, step: &Step) {
        self.waiting.clone_from(&step.waiting);
        self.hold.clone_from(&step.hold);
    }

    /// A container was started: should it have to wait again, that is news.
    pub(crate) fn forget_waiting(&mut self, container: &ContainerName) {
        self.waiting.remove(container);
    }

    /// Notes whose end is to be announced with a stage: a stop that is repeated, or interrupted by
    /// a shorter grace, is no news.
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

    /// Forgets the ends of containers that are gone.
    pub(super) fn retain_ends(&mut self, observation: &PodObservation) {
        self.told_ends.retain(|id| observation.containers.iter().any(|it| it.id == *id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_announced_once() {
        let stop = |id: &str| Action::StopContainer {
            id: ContainerId::new(id),
            container: ContainerName::new("c"),
            grace: ferrolet_types::GracePeriod::from_secs(1),
            cause: ferrolet_lifecycle::StopCause::PodEnds,
            after: Vec::new(),
        };
        let mut shown = Shown::default();
        let news = |shown: &Shown| ["a", "b"].map(|id| shown.is_new_end(&ContainerId::new(id)));
        shown.note_ends(&vec![stop("a")]);
        assert_eq!(news(&shown), [true, false]);
        shown.note_ends(&vec![stop("a"), stop("b")]);
        assert_eq!(news(&shown), [false, true]);
        shown.note_ends(&vec![stop("a"), stop("b")]);
        assert_eq!(news(&shown), [false, false]);
    }
}
