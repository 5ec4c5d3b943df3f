//! How long to wait before the next try.
//!
//! A crash-looping container waits 0, 10, 20, 40 … 300 seconds. The count is not kept in memory:
//! each container carries the length of the streak it was started in, so the wait survives a
//! restart of the agent.

use std::time::Duration;

use ferrolet_types::{
    Timestamp,
    observed::{ContainerState, Exit, ObservedContainer},
};

/// A container that ran this long has left its crash loop (upstream: twice the longest wait).
const STREAK_ENDS_AFTER: Duration = Duration::from_secs(600);

/// The waits, from configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOffPolicy {
    /// First wait of a crash loop.
    pub crash_initial: Duration,
    /// Longest wait of a crash loop.
    pub crash_max: Duration,
    /// First wait after a failed pull.
    pub image_initial: Duration,
    /// Longest wait after a failed pull.
    pub image_max: Duration,
    /// First wait after any other failure.
    pub retry_initial: Duration,
    /// Longest wait after any other failure.
    pub retry_max: Duration,
}

impl BackOffPolicy {
    /// Upstream's waits, with the crash loop's longest one as configured.
    pub fn upstream(crash_max: Duration) -> Self {
        Self {
            crash_initial: Duration::from_secs(10).min(crash_max),
            crash_max,
            image_initial: Duration::from_secs(10),
            image_max: Duration::from_secs(300),
            retry_initial: Duration::from_secs(1),
            retry_max: Duration::from_secs(10),
        }
    }
}

/// `first`, doubled `times` times, at most `longest`.
pub fn doubling(first: Duration, longest: Duration, times: u32) -> Duration {
    first.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(longest)
}

/// What follows from a container's end: the wait before its successor, and the streak the successor
/// starts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aftermath {
    pub(crate) wait: Duration,
    pub(crate) next_streak: u32,
}

/// The wait after `dead` ended; `is_same_spec` is false when its successor is made from another
/// image.
pub(crate) fn aftermath(
    dead: &ObservedContainer,
    exit: &Exit,
    is_same_spec: bool,
    policy: &BackOffPolicy,
) -> Aftermath {
    let ran = exit.started_at.map_or(Duration::ZERO, |started| exit.finished_at.since(started));
    if !is_same_spec || ran > STREAK_ENDS_AFTER {
        return Aftermath { wait: Duration::ZERO, next_streak: 1 };
    }
    after_streak(own_streak(dead, is_same_spec), policy)
}

/// What follows from a streak that has lasted so long.
pub(crate) fn after_streak(streak: u32, policy: &BackOffPolicy) -> Aftermath {
    let wait = match streak {
        0 => Duration::ZERO,
        crashes => doubling(policy.crash_initial, policy.crash_max, crashes - 1),
    };
    Aftermath { wait, next_streak: streak.saturating_add(1) }
}

/// The streak a container was started in; a successor made from another image begins anew.
fn own_streak(container: &ObservedContainer, is_same_spec: bool) -> u32 {
    // Containers made by upstream's kubelet carry no streak; their restart count is the best guess
    // there is.
    let streak = container.crash_streak.unwrap_or(container.restart_count);
    if is_same_spec { streak } else { 0 }
}

/// The streak that a container which is about to be stopped is in by now; running for long has
/// ended it.
pub(crate) fn streak_by_now(
    container: &ObservedContainer,
    is_same_spec: bool,
    now: Timestamp,
) -> u32 {
    match &container.state {
        ContainerState::Running { started_at } if now.since(*started_at) > STREAK_ENDS_AFTER => 0,
        _ => own_streak(container, is_same_spec),
    }
}
