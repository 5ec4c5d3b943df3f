//! Which pods have a worker and how far each is, in upstream's names.
//!
//! One map for the process (ADR 0067), as large as the set of workers. In: where each worker's pod
//! stands after a turn. Out: [`working_pods`], which counts them when somebody asks, and shows
//! every combination, also those that nobody is in.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use ferrolet_lifecycle::{PodState, Wish};
use ferrolet_ports::{Measured, Sample, metrics::KUBELET_WORKING_PODS};
use ferrolet_types::{Pod, PodUid, pod::PodView};

/// Where a pod stands: its part of life, who wants it, whether it is static.
type Standing = [&'static str; 3];

const LIVES: [&str; 3] = ["sync", "terminated", "terminating"];
const ORIGINS: [[&str; 2]; 5] = [
    ["desired", ""],
    ["desired", "true"],
    ["orphan", ""],
    ["orphan", "true"],
    ["runtime_only", "unknown"],
];

/// The pods that have a worker.
pub struct WorkingPods {
    standings: Mutex<BTreeMap<PodUid, Standing>>,
}

static KEPT: WorkingPods = WorkingPods { standings: Mutex::new(BTreeMap::new()) };

/// The pods of this process that have a worker.
pub fn working_pods() -> &'static WorkingPods {
    &KEPT
}

/// A worker took a turn.
pub(crate) fn stands(uid: &PodUid, state: PodState, pod: Option<&Pod>, wish: Wish) {
    KEPT.note(uid, standing(state, pod, wish));
}

/// A worker is done.
pub(crate) fn gone(uid: &PodUid) {
    KEPT.lock().remove(uid);
}

fn standing(state: PodState, pod: Option<&Pod>, wish: Wish) -> Standing {
    let life = match state {
        PodState::Running => "sync",
        PodState::Stopping { .. } => "terminating",
        PodState::Stopped | PodState::Settled | PodState::Gone => "terminated",
    };
    let [origin, is_static] = match (pod, wish) {
        (None, _) => ["runtime_only", "unknown"],
        (Some(pod), Wish::Forget { .. }) => ["orphan", word(pod)],
        (Some(pod), Wish::Run | Wish::End { .. } | Wish::Renew { .. }) => ["desired", word(pod)],
    };
    [origin, life, is_static]
}

fn word(pod: &Pod) -> &'static str {
    if pod.is_static() { "true" } else { "" }
}

impl WorkingPods {
    fn note(&self, uid: &PodUid, standing: Standing) {
        let mut standings = self.lock();
        match standings.get_mut(uid) {
            Some(known) => *known = standing,
            None => {
                standings.insert(uid.clone(), standing);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PodUid, Standing>> {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measured for WorkingPods {
    fn samples(&self) -> Vec<Sample> {
        let standings = self.lock();
        let all = ORIGINS.iter().flat_map(|[origin, is_static]| {
            LIVES.iter().map(move |life| [*origin, *life, *is_static])
        });
        all.map(|labels| {
            let n = standings.values().filter(|it| **it == labels).count();
            KUBELET_WORKING_PODS.sample(labels, n as f64)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrolet_testkit::pod;
    use ferrolet_types::{GracePeriod, Timestamp};

    #[test]
    fn a_pod_is_counted_where_it_stands() {
        let web = pod("web").uid("u").build();
        let stopping = PodState::Stopping {
            grace: GracePeriod::from_secs(1),
            since: Timestamp::from_second(1),
        };
        let check = |state, pod: Option<&Pod>, wish, expected: &str| {
            assert_eq!(standing(state, pod, wish).join(" "), expected);
        };
        let forget = Wish::Forget { grace: None };
        let end = Wish::End { grace: None };
        check(PodState::Running, Some(&web), Wish::Run, "desired sync ");
        check(stopping, Some(&web), end, "desired terminating ");
        check(PodState::Settled, Some(&web), end, "desired terminated ");
        check(stopping, Some(&web), forget, "orphan terminating ");
        check(stopping, None, forget, "runtime_only terminating unknown");
    }

    #[test]
    fn every_combination_is_shown() {
        let working = WorkingPods { standings: Mutex::new(BTreeMap::new()) };
        working.note(&PodUid::new("u"), ["desired", "sync", "true"]);
        let samples = working.samples();
        assert_eq!(samples.len(), 15);
        assert_eq!(samples.iter().map(|it| it.value.total()).sum::<f64>(), 1.0);
    }
}
