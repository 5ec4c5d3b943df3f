//! What a step leaves waiting, and what of that is news.
//!
//! In: a step that was decided, and what was shown before. Out: the same step with everything that
//! the status shows as waiting, and with the events that tell of what newly holds the pod back.

use ferrolet_pod::WaitingReason;
use ferrolet_types::ContainerName;

use crate::{Action, Facts, FailureKind, Step, StepEvent};

/// Completes what waits, and tells what is new about it.
pub(crate) fn tell_waiting(mut step: Step, facts: &Facts<'_>) -> Step {
    // A failure that is being retried right now is still what the container waits for.
    for (name, failure) in facts.failures {
        step.waiting.entry(name.clone()).or_insert_with(|| failure.error.waiting());
    }
    // A container whose wait is over still waits until it runs.
    for action in step.stages.iter().flatten() {
        if let Action::Start { container, .. } = action
            && let Some(was) = facts.waiting.get(container)
            && was.reason == WaitingReason::CrashLoopBackOff
        {
            step.waiting.entry(container.clone()).or_insert_with(|| was.clone());
        }
    }
    for (name, why) in &step.waiting {
        if facts.waiting.get(name).is_none_or(|was| was.reason != why.reason) {
            step.events.extend(news(name, why.reason, facts));
        }
    }
    if let Some(hold) = step.hold.as_ref().filter(|hold| facts.hold != Some(*hold)) {
        step.events.push(StepEvent::Held(hold.clone()));
    }
    step
}

/// The event that tells of a container's wait; other waits were told when they began.
fn news(name: &ContainerName, reason: WaitingReason, facts: &Facts<'_>) -> Option<StepEvent> {
    let container = name.clone();
    match reason {
        WaitingReason::CrashLoopBackOff => Some(StepEvent::RestartBackOff { container }),
        WaitingReason::ImagePullBackOff => {
            let failure = facts.failures.get(name).map(|it| &it.error.kind);
            let image = match failure {
                Some(FailureKind::ImagePull { image }) => image.clone(),
                Some(FailureKind::Other) | None => String::new(),
            };
            Some(StepEvent::PullBackOff { container, image })
        }
        WaitingReason::ErrImagePull
        | WaitingReason::ErrImageNeverPull
        | WaitingReason::InvalidImageName
        | WaitingReason::ImageInspectError
        | WaitingReason::RegistryUnavailable
        | WaitingReason::SignatureValidationFailed
        | WaitingReason::CreateContainerConfigError
        | WaitingReason::CreateContainerError
        | WaitingReason::RunContainerError
        | WaitingReason::PostStartHookError => None,
    }
}
