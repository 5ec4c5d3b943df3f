//! Carries out a step, stage by stage, and listens meanwhile.

use ferrolet_lifecycle::{PodState, Stage, Step, Wish, kill_is_overdue_at};
use ferrolet_ports::EventKind;
use tokio::time::{Instant, sleep, sleep_until};

use super::Worker;
use crate::{
    execute::{Outcome, execute_stage},
    inbox::Heard,
    tell::say_of_pod,
};

impl Worker {
    /// Executes a step, stage by stage, until it is done, one of it fails, or the wish tightens.
    pub(super) async fn execute(&mut self, step: Step, wish: Wish) {
        let (inbox, state) = (self.inbox.clone(), step.next);
        let pause = self.memory.made.effort.pause_before(&step.stages);
        if !pause.is_zero() {
            tokio::select! {
                biased;
                // The wish is looked at, not taken, and a timer loses nothing.
                () = inbox.tightened(wish, state) => return,
                () = sleep(pause) => {}
            }
        }
        let overdue = self.overdue_in(state);
        for stage in step.stages {
            let Some(outcomes) = self.execute_listening(stage, (wish, state), overdue).await else {
                tracing::debug!(pod = %self.memory.name(), "Interrupted: the pod is to end");
                return;
            };
            let is_ok = outcomes.iter().all(|outcome| outcome.is_ok());
            let (world, now) = (self.world.clone(), self.now());
            for outcome in outcomes {
                outcome.remember(&mut self.memory, &world, now);
            }
            if !is_ok {
                self.memory.made.effort.reset();
                return;
            }
        }
        self.memory.made.forget_pod_failure();
    }

    /// Executes one stage and hears what is said meanwhile; `None` when it was interrupted.
    async fn execute_listening(
        &mut self,
        stage: Stage,
        (wish, state): (Wish, PodState),
        overdue: Option<Instant>,
    ) -> Option<Vec<Outcome>> {
        let (world, inbox) = (self.world.clone(), self.inbox.clone());
        self.memory.shown.note_ends(&stage);
        let (mut is_told, mut reports) = (self.memory.shown.is_overdue_told, Vec::new());
        let mut shown = None;
        let outcomes = {
            let mut work = std::pin::pin!(execute_stage(&world, &self.memory, stage));
            loop {
                tokio::select! {
                    // First: a wish that came while we looked must not find its pod being started.
                    biased;
                    heard = inbox.heard(wish, state, &reports) => match heard {
                        Heard::Tightened => break tokio::select! {
                            // The work goes on until the runtime has made what it is making, and is
                            // not even begun where it makes nothing.
                            biased;
                            () = self.memory.made.making.over() => None,
                            outcomes = &mut work => Some(outcomes),
                        },
                        Heard::Reports(said) => {
                            shown = self.show_reports(&said, shown);
                            reports = said;
                        }
                    },
                    // Interrupting drops calls whose effects the next look finds; here the same
                    // work is waited for again.
                    outcomes = &mut work => break Some(outcomes),
                    // A timer loses nothing.
                    () = until(overdue), if !is_told => {
                        self.say_overdue();
                        is_told = true;
                    }
                }
            }
        };
        self.memory.shown.is_overdue_told = is_told;
        self.memory.shown.status = shown.or(self.memory.shown.status.take());
        outcomes
    }

    /// When somebody loses patience with the end of a pod that was evicted.
    fn overdue_in(&self, state: PodState) -> Option<Instant> {
        let PodState::Stopping { grace, since } = state else {
            return None;
        };
        let due = self.memory.asked.is_evicted().then(|| kill_is_overdue_at(since, grace))?;
        Some(Instant::now() + due.since(self.now()))
    }

    fn say_overdue(&self) {
        if let Some(pod) = self.memory.asked.pod() {
            let message = "Container runtime did not kill the pod within specified grace period.";
            let events = self.world.events.as_ref();
            let reason = "ExceededGracePeriod";
            say_of_pod(events, pod, EventKind::Warning, reason, message.to_owned());
        }
    }
}

/// Waits for a moment, or for ever when there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
