//! The numbers of one probe, with the API's defaults where the specification is silent, and the
//! grid of its ticks.

use std::time::Duration;

use ferrolet_types::GracePeriod;
use k8s_openapi::api::core::v1::Probe;

/// Time that passed since the agent began. Never runs backwards, whatever happens to the wall
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Moment(pub(crate) Duration);

impl Moment {
    pub(crate) fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

/// The numbers of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) initial_delay: Duration,
    pub(crate) period: Duration,
    pub(crate) n_failures: u32,
    pub(crate) n_successes: u32,
    pub(crate) grace: Option<GracePeriod>,
}

impl Rule {
    pub(crate) fn of(probe: &Probe) -> Self {
        let at_least_one = |given: Option<i32>, default: u32| {
            let given = given.and_then(|it| u32::try_from(it).ok());
            given.filter(|it| *it > 0).unwrap_or(default)
        };
        let seconds = |n: u32| Duration::from_secs(u64::from(n));
        let delay = probe.initial_delay_seconds.unwrap_or(0);
        Self {
            initial_delay: seconds(u32::try_from(delay).unwrap_or(0)),
            period: seconds(at_least_one(probe.period_seconds, 10)),
            n_failures: at_least_one(probe.failure_threshold, 3),
            n_successes: at_least_one(probe.success_threshold, 1),
            grace: probe.termination_grace_period_seconds.map(GracePeriod::from_secs),
        }
    }

    /// The first tick of the grid that begins at `anchor` which is not before `earliest`.
    pub(crate) fn tick(&self, anchor: Moment, earliest: Moment) -> Moment {
        let Some(gone) = earliest.0.checked_sub(anchor.0) else {
            return anchor;
        };
        // Periods are whole seconds of 32 bits and moments lie within an agent's life, so nothing
        // here overflows.
        let n = gone.as_nanos().div_ceil(self.period.as_nanos());
        anchor.after(self.period.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX)))
    }
}

/// How long one try may take.
pub(crate) fn timeout(probe: &Probe) -> Duration {
    let given = probe.timeout_seconds.and_then(|it| u64::try_from(it).ok());
    Duration::from_secs(given.filter(|it| *it > 0).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_means_the_apis_defaults() {
        let rule = Rule::of(&Probe::default());
        let expected = Rule {
            initial_delay: Duration::ZERO,
            period: Duration::from_secs(10),
            n_failures: 3,
            n_successes: 1,
            grace: None,
        };
        assert_eq!(rule, expected);
        assert_eq!(timeout(&Probe::default()), Duration::from_secs(1));
    }

    #[test]
    fn ticks_stay_on_their_grid() {
        let rule = Rule::of(&Probe { period_seconds: Some(5), ..Default::default() });
        let at = |millis| Moment(Duration::from_millis(millis));
        for (anchor, earliest, tick) in [
            (2_000, 0, 2_000),
            (2_000, 2_000, 2_000),
            (2_000, 2_001, 7_000),
            (2_000, 7_000, 7_000),
            (2_000, 58_321, 62_000),
        ] {
            assert_eq!(rule.tick(at(anchor), at(earliest)), at(tick), "{earliest}");
        }
    }
}
