//! The entry point: which state's rules apply.

use ferrolet_types::{GracePeriod, Timestamp, pod::PodView};

use crate::{
    Facts, PodState, Step, StepEvent, Wish,
    end::{held_back, is_running_anything, settle, stop, take_down},
    judge::{deadline_ahead, judge, judged},
    run::run,
    waiting::tell_waiting,
};

/// What something that nobody asked for gets before it is killed.
const ORPHAN_GRACE_SECS: i64 = 1;

/// Decides what to do with a pod now.
pub fn decide(state: PodState, facts: &Facts<'_>, now: Timestamp) -> Step {
    let verdict = judge(state, facts, now);
    let mut step = next_step(state, &judged(facts, verdict.as_ref()), now);
    if let Some(due) = deadline_ahead(facts, now) {
        step.wake(due);
    }
    step.events.extend(verdict.clone().map(StepEvent::Ends));
    tell_waiting(Step { verdict, ..step }, facts)
}

fn next_step(state: PodState, facts: &Facts<'_>, now: Timestamp) -> Step {
    match state {
        PodState::Running => match (facts.pod, facts.wish) {
            (Some(pod), Wish::Run)
                if pod.deletion_time().is_none() && !facts.phase.is_terminal() =>
            {
                held_back(run(pod, facts, now), facts, now)
            }
            // Trouble with the start is no reason to be late with the end.
            _ => {
                let facts = Facts { pod_failure: None, ..*facts };
                stop(&facts, grace_of(&facts), now, now)
            }
        },
        // A later request may shorten the wait, never lengthen it.
        PodState::Stopping { grace, since } => stop(facts, grace_of(facts).min(grace), since, now),
        PodState::Stopped => take_down(facts, now),
        // What the node did not take, or had ended, and what runs nevertheless: it was started in
        // an earlier life that nobody remembers, or by a call that was given up. Claims that are
        // still prepared for it are left from such a life, too.
        PodState::Settled if is_running_anything(facts.seen) || facts.holds_claims => {
            stop(facts, grace_of(facts), now, now)
        }
        PodState::Settled => settle(facts, now),
        PodState::Gone => Step::rest(PodState::Gone),
    }
}

/// The grace that applies: what was asked for, else what the deletion says, else the
/// specification's.
fn grace_of(facts: &Facts<'_>) -> GracePeriod {
    let asked = match facts.wish {
        Wish::Run => None,
        Wish::End { grace } | Wish::Forget { grace } | Wish::Renew { grace } => grace,
    };
    let spec = match facts.pod {
        Some(pod) => pod.deletion_grace().unwrap_or_else(|| pod.grace_period()),
        None => GracePeriod::from_secs(ORPHAN_GRACE_SECS),
    };
    asked.map_or(spec, |asked| asked.min(spec)).max(GracePeriod::from_secs(1))
}
