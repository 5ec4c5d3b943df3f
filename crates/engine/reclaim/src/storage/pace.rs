//! How often a pod is measured: the more its walk costs, the rarer. Pure.

use std::{collections::BTreeMap, time::Duration};

use ferrolet_types::PodUid;
use tokio::time::Instant;

/// Upstream's period.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// A pod's walks take at most one part in so many of the time.
const SHARE: u32 = 50;
/// However expensive, a pod is measured this often.
const RAREST: Duration = Duration::from_secs(300);

/// When each pod may be measured again.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next: BTreeMap<PodUid, Instant>,
}

impl Pace {
    /// True when the pod's turn has come.
    pub(super) fn is_due(&self, uid: &PodUid, now: Instant) -> bool {
        self.next.get(uid).is_none_or(|next| *next <= now)
    }

    /// Notes what measuring cost.
    pub(super) fn measured(&mut self, uid: &PodUid, now: Instant, cost: Duration) {
        let wait = (cost * SHARE).min(RAREST);
        self.next.insert(uid.clone(), now + wait);
    }

    /// Forgets pods that are not among these.
    pub(super) fn retain(&mut self, is_there: impl Fn(&PodUid) -> bool) {
        self.next.retain(|uid, _| is_there(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expensive_walks_are_rare_and_none_is_given_up() {
        let (uid, now) = (PodUid::new("u"), Instant::now());
        let check = |cost: Duration, wait: Duration| {
            let mut pace = Pace::default();
            assert!(pace.is_due(&uid, now));
            pace.measured(&uid, now, cost);
            assert!(pace.is_due(&uid, now + wait), "{cost:?}");
            assert_eq!(
                pace.is_due(&uid, now + wait.saturating_sub(Duration::from_millis(1))),
                wait.is_zero(),
                "{cost:?}"
            );
            pace.retain(|_| false);
            assert!(pace.is_due(&uid, now));
        };
        check(Duration::ZERO, Duration::ZERO);
        check(Duration::from_millis(100), Duration::from_secs(5));
        check(Duration::from_secs(2), Duration::from_secs(100));
        check(Duration::from_secs(60), RAREST);
    }
}
