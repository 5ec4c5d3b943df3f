//! How pods end when the node goes down.

use std::time::Duration;

use serde_json::Value;

use super::reader::Reader;

/// How long pods from a priority upwards get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownStep {
    /// The lowest priority of this step.
    pub priority: i32,
    /// What its pods get.
    pub grace_period: Duration,
}

/// The plan for a graceful shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// None: pods die with the node.
    Off,
    /// First ordinary pods, then critical ones, within one budget.
    TwoPhases {
        /// The whole budget.
        total: Duration,
        /// The part of it that is kept for critical pods.
        critical: Duration,
    },
    /// Step by step, by priority.
    ByPriority(Vec<ShutdownStep>),
}

impl Shutdown {
    /// How long all pods together get at most.
    pub fn longest(&self) -> Duration {
        match self {
            Shutdown::Off => Duration::ZERO,
            Shutdown::TwoPhases { total, .. } => *total,
            Shutdown::ByPriority(steps) => steps
                .iter()
                .map(|it| it.grace_period)
                .fold(Duration::ZERO, Duration::saturating_add),
        }
    }
}

pub(super) fn read(r: &Reader<'_>) -> Shutdown {
    const TOTAL: &str = "shutdownGracePeriod";
    const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
    const STEPS: &str = "shutdownGracePeriodByPodPriority";
    for path in
        [TOTAL, CRITICAL].into_iter().filter(|path| r.nanos(path).is_some_and(|nanos| nanos != 0))
    {
        r.needs_gate(path, "GracefulNodeShutdown");
        if r.nanos(path).is_some_and(|nanos| nanos < 1_000_000_000) {
            r.refuse(path, "must be 0s, or 1s or more");
        }
    }
    if r.nanos(CRITICAL) > r.nanos(TOTAL) {
        r.refuse(CRITICAL, format!("must not be more than {TOTAL}"));
    }
    let positive = |path: &str| {
        let nanos = r.nanos(path).and_then(|nanos| u64::try_from(nanos).ok());
        Duration::from_nanos(nanos.unwrap_or(0))
    };
    let (total, critical) = (positive(TOTAL), positive(CRITICAL));
    let steps = read_steps(r, STEPS);
    if !steps.is_empty() {
        r.needs_gate(STEPS, "GracefulNodeShutdownBasedOnPodPriority");
        if !total.is_zero() || !critical.is_zero() {
            r.refuse(STEPS, format!("cannot be used together with {TOTAL} or {CRITICAL}"));
        }
        return Shutdown::ByPriority(steps);
    }
    if total.is_zero() { Shutdown::Off } else { Shutdown::TwoPhases { total, critical } }
}

fn read_steps(r: &Reader<'_>, path: &str) -> Vec<ShutdownStep> {
    let items = r.get(path).and_then(Value::as_array).into_iter().flatten();
    let steps = items.enumerate().map(|(i, item)| {
        let number = |name: &str| item.get(name).and_then(Value::as_i64).unwrap_or(0);
        let seconds = number("shutdownGracePeriodSeconds");
        if seconds < 0 {
            r.fault(
                &format!("{path}[{i}].shutdownGracePeriodSeconds"),
                seconds,
                "must not be negative",
            );
        }
        ShutdownStep {
            priority: i32::try_from(number("priority")).unwrap_or(0),
            grace_period: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        }
    });
    steps.collect()
}
