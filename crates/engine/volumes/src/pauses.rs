//! Pauses after operations that failed: half a second, doubled up to two minutes and two seconds, as upstream's operations do.
//!
//! Only what somebody else had to do for us is paused, a driver's call or a mount program: asking again at once would only
//! make them busier. Who asks within the pause hears the same refusal again. Refuses: waiting; whoever asks comes back.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use ferrolet_ports::VolumeError;
use ferrolet_types::{PodUid, Timestamp};

use crate::renewal::back_off;

/// The pauses of all volumes, by pod and the volume's name in it.
#[derive(Default)]
pub(crate) struct Pauses {
    known: Mutex<BTreeMap<(PodUid, String), Pause>>,
}

#[derive(Clone, Debug)]
struct Pause {
    n_failures: u32,
    until: Timestamp,
    refusal: VolumeError,
}

impl Pauses {
    fn known(&self) -> MutexGuard<'_, BTreeMap<(PodUid, String), Pause>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The refusal that stands until its pause is over.
    pub(crate) fn refusal(
        &self,
        uid: &PodUid,
        volume: &str,
        now: Timestamp,
    ) -> Option<VolumeError> {
        let known = self.known();
        let pause = known.get(&(uid.clone(), volume.to_owned()))?;
        (now < pause.until).then(|| pause.refusal.clone())
    }

    /// Begins the next pause.
    pub(crate) fn failed(&self, uid: &PodUid, volume: &str, refusal: &VolumeError, now: Timestamp) {
        let mut known = self.known();
        let key = (uid.clone(), volume.to_owned());
        let n_failures = known.get(&key).map_or(0, |it| it.n_failures) + 1;
        let pause =
            Pause { n_failures, until: now.after(back_off(n_failures)), refusal: refusal.clone() };
        known.insert(key, pause);
    }

    /// Forgets the failures of a volume.
    pub(crate) fn succeeded(&self, uid: &PodUid, volume: &str) {
        self.known().remove(&(uid.clone(), volume.to_owned()));
    }

    /// Forgets a pod.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.known().retain(|(owner, _), _| owner != uid);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ferrolet_ports::Retry;

    use super::*;

    #[test]
    fn a_refusal_stands_for_its_pause_and_pauses_double() {
        let (pauses, uid) = (Pauses::default(), PodUid::new("u"));
        let refusal = VolumeError {
            volume: None,
            reason: "FailedMount",
            message: "no".to_owned(),
            retry: Retry::Later,
        };
        let mut now = Timestamp::from_second(1000);
        assert_eq!(pauses.refusal(&uid, "v", now), None);
        for wait in [500, 1000, 2000] {
            pauses.failed(&uid, "v", &refusal, now);
            let almost = now.after(Duration::from_millis(wait - 1));
            assert_eq!(pauses.refusal(&uid, "v", almost), Some(refusal.clone()));
            assert_eq!(pauses.refusal(&uid, "other", almost), None);
            now = now.after(Duration::from_millis(wait));
            assert_eq!(pauses.refusal(&uid, "v", now), None);
        }
        pauses.succeeded(&uid, "v");
        pauses.failed(&uid, "v", &refusal, now);
        let later = now.after(Duration::from_millis(500));
        assert_eq!(pauses.refusal(&uid, "v", later), None);
    }
}
