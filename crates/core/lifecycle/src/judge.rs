//! Whether the node ends a pod by itself now: it was evicted, or it outlived its deadline.
//!
//! In: facts and the time. Out: the verdict, once, for a pod that is at work; and what the rest of
//! the decision has to take for true because of it.

use ferrolet_pod::{EndReason, Ending};
use ferrolet_types::{Timestamp, pod::Phase};

use crate::{Facts, KeptContainers, PodState, deadline};

/// The verdict over a pod that is at work and has none yet.
pub(crate) fn judge(state: PodState, facts: &Facts<'_>, now: Timestamp) -> Option<Ending> {
    if facts.is_judged || state != PodState::Running || facts.pod.is_none() {
        return None;
    }
    if let Some(eviction) = facts.eviction {
        return Some(Ending {
            reason: EndReason::parse(eviction.reason.as_str()),
            message: eviction.message.clone(),
            disruption: eviction.disruption.clone(),
            annotations: eviction.annotations.clone(),
        });
    }
    let is_over = due(facts).is_some_and(|due| due <= now);
    let message = "Pod was active on the node longer than the specified deadline";
    is_over.then(|| Ending::new(EndReason::DeadlineExceeded, message))
}

/// When the pod must have ended, if that is still to come.
pub(crate) fn deadline_ahead(facts: &Facts<'_>, now: Timestamp) -> Option<Timestamp> {
    due(facts).filter(|due| *due > now)
}

fn due(facts: &Facts<'_>) -> Option<Timestamp> {
    deadline(facts.pod?, facts.started_at?)
}

/// The facts as they are after a verdict.
pub(crate) fn judged<'a>(facts: &Facts<'a>, verdict: Option<&Ending>) -> Facts<'a> {
    match verdict.map(|it| &it.reason) {
        None => *facts,
        Some(EndReason::Evicted | EndReason::Preempting) => {
            Facts { phase: Phase::Failed, kept: KeptContainers::None, ..*facts }
        }
        Some(EndReason::Terminated | EndReason::DeadlineExceeded | EndReason::Other(_)) => {
            Facts { phase: Phase::Failed, ..*facts }
        }
    }
}
