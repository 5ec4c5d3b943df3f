//! How often the same step was tried without effect.

use std::time::Duration;

use ferrolet_lifecycle::{Stage, doubling};

/// First and longest pause between repetitions of a step without effect.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The step that was executed last, and how often in a row. What is repeated again and again has no
/// effect, however well the runtime says that it went.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    stages: Vec<Stage>,
    n_repeated: u32,
}

impl Effort {
    /// Notes what is about to be executed and answers how long to wait before it.
    pub(crate) fn pause_before(&mut self, stages: &[Stage]) -> Duration {
        if self.stages != stages {
            self.stages = stages.to_vec();
            self.n_repeated = 0;
            return Duration::ZERO;
        }
        self.n_repeated = self.n_repeated.saturating_add(1);
        match self.n_repeated {
            // One repetition may be a look that came too early.
            1 => Duration::ZERO,
            n => doubling(FIRST_PAUSE, LONGEST_PAUSE, n - 2),
        }
    }

    /// Forgets: there was nothing to do, or what failed has a back-off of its own.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_effect_is_repeated_ever_more_slowly() {
        let mut effort = Effort::default();
        let stages =
            |id: &str| vec![vec![ferrolet_lifecycle::Action::StopSandbox { id: id.into() }]];
        let pauses: Vec<u128> = ["a", "b", "b", "b", "b", "b", "a"]
            .map(|id| effort.pause_before(&stages(id)).as_millis())
            .into();
        assert_eq!(pauses, [0, 0, 0, 100, 200, 400, 0]);
        for _ in 0..20 {
            effort.pause_before(&stages("a"));
        }
        assert_eq!(effort.pause_before(&stages("a")), LONGEST_PAUSE);
        effort.reset();
        assert_eq!(effort.pause_before(&stages("a")), Duration::ZERO);
    }
}
