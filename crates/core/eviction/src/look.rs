//! One look at the node: which thresholds are met, for how long, and what follows.
//!
//! ```text
//!  observed ─► met ──┐                    ┌► pressures: a condition lasts its transition period
//!  due last time ────┴► held ─► since when ┴► due: the grace period is over ─► with news: to be reclaimed
//! ```
//!
//! A threshold that was being reclaimed is held until its minimum reclaim is met too, so that a
//! node does not swing around the line.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferrolet_config::config::{Signal, Threshold};
use ferrolet_types::{Quantity, Timestamp};

use crate::{Pressure, pressure_of, threshold_quantity};

/// What was measured of one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What is left.
    pub available: u64,
    /// What there is in all.
    pub capacity: u64,
    /// When it was measured; without a time every look counts as news.
    pub at: Option<Timestamp>,
}

/// What was measured, by signal. A signal that could not be measured is not in it and meets no
/// threshold.
pub type Observations = BTreeMap<Signal, Observation>;

/// What has to be remembered between two looks. Thresholds are known by their place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Since when each threshold is met without a break.
    pub met_since: BTreeMap<usize, Timestamp>,
    /// Whose grace period was over at the last look.
    pub due: BTreeSet<usize>,
    /// When each condition was last seen.
    pub seen_at: BTreeMap<Pressure, Timestamp>,
    /// When each signal was last measured.
    pub measured_at: BTreeMap<Signal, Option<Timestamp>>,
}

/// What a look says.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// For the next look.
    pub memory: Memory,
    /// The conditions of the node.
    pub pressures: BTreeSet<Pressure>,
    /// Thresholds whose grace is over and whose figures are news, memory first: the first one is
    /// reclaimed.
    pub due: Vec<Threshold>,
}

/// Looks at the node.
pub fn look(
    thresholds: &[Threshold],
    transition: Duration,
    memory: &Memory,
    observations: &Observations,
    now: Timestamp,
) -> Outlook {
    let is_held = |at: usize, threshold: &Threshold| {
        is_met(threshold, observations, Reclaim::Ignored)
            || (memory.due.contains(&at) && is_met(threshold, observations, Reclaim::Demanded))
    };
    let held = || thresholds.iter().enumerate().filter(|(at, it)| is_held(*at, it));
    let met_since: BTreeMap<usize, Timestamp> =
        held().map(|(at, _)| (at, memory.met_since.get(&at).copied().unwrap_or(now))).collect();

    let mut seen_at = memory.seen_at.clone();
    seen_at.extend(held().map(|(_, it)| (pressure_of(it.signal), now)));
    let lasts = |at: Timestamp| now.since(at) < transition || at == now;
    let pressures = seen_at.iter().filter(|(_, at)| lasts(**at)).map(|(it, _)| *it).collect();

    let is_over = |(at, it): &(usize, &Threshold)| {
        now.since(met_since[at]) >= it.grace_period.unwrap_or_default()
    };
    let due: BTreeSet<usize> = held().filter(is_over).map(|(at, _)| at).collect();
    let has_news = |it: &&Threshold| {
        let measured = observations.get(&it.signal).and_then(|it| it.at);
        match (measured, memory.measured_at.get(&it.signal)) {
            (Some(now), Some(Some(before))) => now > *before,
            _ => true,
        }
    };
    let mut actionable: Vec<Threshold> =
        due.iter().map(|at| &thresholds[*at]).filter(has_news).copied().collect();
    // A node without memory stops; one without disk only complains.
    actionable.sort_by_key(|it| pressure_of(it.signal) != Pressure::Memory);

    let measured_at = observations.iter().map(|(signal, it)| (*signal, it.at)).collect();
    let memory = Memory { met_since, due, seen_at, measured_at };
    Outlook { memory, pressures, due: actionable }
}

/// Whether anything is still short after the node gave up what it could, minimum reclaim included.
pub fn still_met(thresholds: &[Threshold], observations: &Observations) -> bool {
    thresholds.iter().any(|it| is_met(it, observations, Reclaim::Demanded))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reclaim {
    Ignored,
    Demanded,
}

fn is_met(threshold: &Threshold, observations: &Observations, reclaim: Reclaim) -> bool {
    let Some(observed) = observations.get(&threshold.signal) else {
        return false;
    };
    let mut line = threshold_quantity(threshold.value, observed.capacity);
    if let Some(more) = threshold.minimum_reclaim.filter(|_| reclaim == Reclaim::Demanded) {
        line = line.plus(threshold_quantity(more, observed.capacity));
    }
    line > Quantity::from_bytes(i64::try_from(observed.available).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use ferrolet_config::config::ThresholdValue;

    use super::*;

    const TRANSITION: Duration = Duration::from_secs(300);

    fn bytes(value: i64) -> ThresholdValue {
        ThresholdValue::Quantity(Quantity::from_bytes(value))
    }

    fn hard(signal: Signal, value: i64) -> Threshold {
        Threshold { signal, value: bytes(value), grace_period: None, minimum_reclaim: None }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second)
    }

    fn seen(signal: Signal, available: u64, second: i64) -> Observations {
        let observation = Observation { available, capacity: 1000, at: Some(at(second)) };
        Observations::from([(signal, observation)])
    }

    fn due(outlook: &Outlook) -> Vec<&'static str> {
        outlook.due.iter().map(|it| it.signal.as_str()).collect()
    }

    /// Looks at `available` bytes of memory at the given seconds, one after the other.
    fn looks(threshold: Threshold, series: &[(i64, u64)]) -> Vec<(Vec<Pressure>, usize)> {
        let mut memory = Memory::default();
        let look_at = |(second, available): &(i64, u64)| {
            let seen = seen(Signal::MemoryAvailable, *available, *second);
            let outlook = look(&[threshold], TRANSITION, &memory, &seen, at(*second));
            memory = outlook.memory;
            (outlook.pressures.into_iter().collect(), outlook.due.len())
        };
        series.iter().map(look_at).collect()
    }

    #[test]
    fn a_hard_threshold_is_due_at_once_and_only_below_its_line() {
        let threshold = hard(Signal::MemoryAvailable, 100);
        let none: Vec<Pressure> = vec![];
        assert_eq!(looks(threshold, &[(0, 100)]), [(none, 0)]);
        assert_eq!(looks(threshold, &[(0, 99)]), [(vec![Pressure::Memory], 1)]);
    }

    #[test]
    fn a_soft_threshold_waits_for_its_grace_without_a_break() {
        let grace_period = Some(Duration::from_secs(30));
        let threshold = Threshold { grace_period, ..hard(Signal::MemoryAvailable, 100) };
        let due: Vec<usize> = looks(threshold, &[(0, 50), (29, 50), (30, 50)])
            .into_iter()
            .map(|(_, n_due)| n_due)
            .collect();
        assert_eq!(due, [0, 0, 1]);
        let broken = looks(threshold, &[(0, 50), (20, 200), (30, 50), (59, 50), (60, 50)]);
        assert_eq!(broken.iter().map(|it| it.1).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_condition_outlives_its_cause_by_the_transition_period() {
        let series = [(0, 50), (1, 500), (299, 500), (300, 500)];
        let pressed: Vec<bool> = looks(hard(Signal::MemoryAvailable, 100), &series)
            .into_iter()
            .map(|(pressures, _)| !pressures.is_empty())
            .collect();
        assert_eq!(pressed, [true, true, true, false]);
    }

    #[test]
    fn once_begun_the_minimum_reclaim_counts_too() {
        let threshold =
            Threshold { minimum_reclaim: Some(bytes(50)), ..hard(Signal::MemoryAvailable, 100) };
        let n_due = |series: &[(i64, u64)]| -> Vec<usize> {
            looks(threshold, series).into_iter().map(|it| it.1).collect()
        };
        assert_eq!(n_due(&[(0, 120)]), [0], "nothing began");
        assert_eq!(n_due(&[(0, 99), (1, 120), (2, 149), (3, 150), (4, 120)]), [1, 1, 1, 0, 0]);
    }

    #[test]
    fn nothing_is_reclaimed_twice_on_the_same_figures() {
        let threshold = hard(Signal::MemoryAvailable, 100);
        let first = look(
            &[threshold],
            TRANSITION,
            &Memory::default(),
            &seen(Signal::MemoryAvailable, 50, 0),
            at(0),
        );
        assert_eq!(due(&first), ["memory.available"]);
        let stale = look(
            &[threshold],
            TRANSITION,
            &first.memory,
            &seen(Signal::MemoryAvailable, 50, 0),
            at(5),
        );
        assert!(stale.due.is_empty());
        assert_eq!(stale.pressures, BTreeSet::from([Pressure::Memory]));
    }

    #[test]
    fn memory_comes_before_everything_else() {
        let thresholds = [
            hard(Signal::NodeFsAvailable, 100),
            hard(Signal::PidAvailable, 100),
            hard(Signal::AllocatableMemoryAvailable, 100),
            hard(Signal::MemoryAvailable, 100),
        ];
        let mut observations = Observations::new();
        for threshold in &thresholds {
            observations.extend(seen(threshold.signal, 10, 0));
        }
        let outlook = look(&thresholds, TRANSITION, &Memory::default(), &observations, at(0));
        let expected = [
            "allocatableMemory.available",
            "memory.available",
            "nodefs.available",
            "pid.available",
        ];
        assert_eq!(due(&outlook), expected);
    }

    #[test]
    fn a_signal_that_could_not_be_measured_meets_nothing() {
        let threshold = hard(Signal::MemoryAvailable, 100);
        let outlook =
            look(&[threshold], TRANSITION, &Memory::default(), &Observations::new(), at(0));
        assert_eq!(outlook.due, []);
        assert!(outlook.pressures.is_empty());
    }

    #[test]
    fn a_clock_that_jumps_back_ends_no_condition_and_begins_no_eviction() {
        let grace_period = Some(Duration::from_secs(30));
        let threshold = Threshold { grace_period, ..hard(Signal::MemoryAvailable, 100) };
        let found = looks(threshold, &[(1000, 50), (500, 50)]);
        assert_eq!(found[1], (vec![Pressure::Memory], 0));
    }
}
