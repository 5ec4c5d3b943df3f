//! What others see of the pod: its status on the board, and what a static pod's next life needs to
//! know.

use ferrolet_lifecycle::PodState;
use ferrolet_pod::told_by;
use ferrolet_ports::Remains;
use ferrolet_types::{ContainerId, Pod, pod::PodView as _, probe::ProbeReport};
use k8s_openapi::api::core::v1::PodStatus;

use super::Worker;
use crate::{
    answers::Lives,
    metrics,
    probing::has_probes,
    turn::{StatusBasis, compute_status},
};

impl Worker {
    /// Shows the status as it is now.
    pub(super) fn publish(&mut self) {
        let computed = self.with_node(|worker, node| {
            let memory = &worker.memory;
            compute_status(memory, &StatusBasis::of(memory), node, worker.now())
        });
        let Some(status) = computed.map(|it| it.status) else {
            return;
        };
        let remains = match self.memory.state {
            PodState::Running | PodState::Stopping { .. } => Remains::Active,
            PodState::Stopped => Remains::Stopped,
            PodState::Settled | PodState::Gone => Remains::Settled,
        };
        let before = self.memory.shown.status.as_ref();
        if before == Some(&status) && remains == Remains::Active {
            return;
        }
        if let Some(pod) = self.memory.asked.desired() {
            self.show((pod, before), &status, remains);
        }
        let mut statuses = status.container_statuses.iter().flatten();
        if statuses.any(|it| it.started == Some(true) && !it.ready) {
            // The world is about to hear that a container is not ready: let that be the latest
            // news.
            self.world.probing.hurry(self.memory.asked.uid());
        }
        self.memory.shown.status = Some(status);
    }

    /// Shows what probes say while the worker is in the middle of something, which may last: nobody
    /// should be sent to a container that has just said that it is not ready. Answers with the
    /// status that is shown, when it is another than the worker's own.
    pub(super) fn show_reports(
        &self,
        said: &[ProbeReport],
        shown: Option<PodStatus>,
    ) -> Option<PodStatus> {
        let memory = &self.memory;
        if !matches!(memory.state, PodState::Running | PodState::Stopping { .. }) {
            return shown;
        }
        let previous = shown.as_ref().or(memory.shown.status.as_ref());
        let probes = memory.seen.probes_with(said);
        let basis = StatusBasis { probes: &probes, previous, ..StatusBasis::of(memory) };
        let computed = self.with_node(|it, node| compute_status(memory, &basis, node, it.now()));
        let status = computed?.status;
        let pod = memory.asked.desired()?;
        if previous == Some(&status) {
            return shown;
        }
        self.show((pod, previous), &status, Remains::Active);
        Some(status)
    }

    /// Shows a status, and notes what it says of a static pod's containers: nobody else remembers
    /// it for the agent's next life.
    fn show(
        &self,
        (pod, before): (&Pod, Option<&PodStatus>),
        status: &PodStatus,
        remains: Remains,
    ) {
        metrics::published(pod, before, status, self.now());
        self.world.board.publish(pod, status, remains);
        if pod.is_static() && has_probes(pod) {
            let told = told_by(status).map(|(id, told)| (ContainerId::new(id), told));
            let told: Lives = told.collect();
            // Before the first look nothing is known, not even that there is nothing.
            if !told.is_empty() {
                self.world.answers.note(self.memory.asked.uid(), told);
            }
        }
    }
}
