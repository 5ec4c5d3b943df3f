//! Whole lives of a node that runs short, decided look by look on invented machines.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrolet_config::config::{Signal, Threshold, ThresholdValue};
use ferrolet_types::{PodUid, Quantity, Timestamp};
use proptest::prelude::*;

use crate::*;

const CAPACITY: u64 = 1000;
const SIGNALS: [Signal; 3] =
    [Signal::MemoryAvailable, Signal::NodeFsAvailable, Signal::PidAvailable];

#[derive(Clone, Debug)]
struct Tenant {
    is_critical: bool,
    priority: i32,
    request: i64,
    /// Memory, disk, processes.
    used: [u64; 3],
}

#[derive(Clone, Debug)]
struct Scene {
    tenants: Vec<Tenant>,
    /// What somebody else uses of each signal, from look to look.
    others: Vec<[u64; 3]>,
    thresholds: Vec<Threshold>,
}

fn tenant() -> impl Strategy<Value = Tenant> {
    (any::<bool>(), 0..3_i32, 0..200_i64, prop::array::uniform3(0..200_u64)).prop_map(
        |(is_critical, priority, request, used)| Tenant { is_critical, priority, request, used },
    )
}

fn threshold() -> impl Strategy<Value = Threshold> {
    let amount = |most: i64| {
        (1..most).prop_map(|value| ThresholdValue::Quantity(Quantity::from_bytes(value)))
    };
    let grace = prop::option::of((0..40_u64).prop_map(Duration::from_secs));
    (prop::sample::select(&SIGNALS[..]), amount(400), grace, prop::option::of(amount(200)))
        .prop_map(|(signal, value, grace_period, minimum_reclaim)| Threshold {
            signal,
            value,
            grace_period,
            minimum_reclaim,
        })
}

fn scene() -> impl Strategy<Value = Scene> {
    (
        prop::collection::vec(tenant(), 0..10),
        prop::collection::vec(prop::array::uniform3(0..700_u64), 1..30),
        prop::collection::vec(threshold(), 1..4),
    )
        .prop_map(|(tenants, others, thresholds)| Scene { tenants, others, thresholds })
}

fn candidate(number: usize, tenant: &Tenant) -> Candidate {
    let [memory, bytes, n_processes] = tenant.used;
    let request = Quantity::from_bytes(tenant.request);
    let used = PodUse {
        memory,
        n_processes,
        containers: Vec::new(),
        local_volumes: FileUse { bytes, inodes: 1 },
    };
    Candidate {
        uid: PodUid::from(number.to_string()),
        name: number.to_string(),
        priority: tenant.priority,
        is_critical: tenant.is_critical,
        memory_request: request,
        storage_request: request,
        own_memory_request: None,
        grace: None,
        used: Some(used),
    }
}

/// What happened at one look.
#[derive(Clone, Debug, PartialEq)]
struct Moment {
    available: [u64; 3],
    due: Vec<Threshold>,
    victim: Option<usize>,
    n_may_go: usize,
}

impl Scene {
    /// Lives through it as the loop does: a look every ten seconds, one victim at a time.
    fn live(&self) -> Vec<Moment> {
        let mut here: BTreeSet<usize> = (0..self.tenants.len()).collect();
        let mut memory = Memory::default();
        let mut moments = Vec::new();
        for (step, others) in self.others.iter().enumerate() {
            let now = Timestamp::from_second(10 * i64::try_from(step).unwrap());
            let available = [0, 1, 2].map(|of| {
                let used: u64 = here.iter().map(|it| self.tenants[*it].used[of]).sum();
                CAPACITY.saturating_sub(others[of] + used)
            });
            let observed = SIGNALS.into_iter().zip(available).map(|(signal, available)| {
                (signal, Observation { available, capacity: CAPACITY, at: Some(now) })
            });
            let transition = Duration::from_secs(60);
            let outlook = look(&self.thresholds, transition, &memory, &observed.collect(), now);
            memory = outlook.memory;
            let candidates: Vec<Candidate> =
                here.iter().map(|it| candidate(*it, &self.tenants[*it])).collect();
            let ranked =
                outlook.due.first().map(|it| rank(it.signal, FileSystems::One, &candidates));
            let victim = ranked.iter().flatten().next().map(|it| it.name.parse().unwrap());
            let n_may_go = candidates.iter().filter(|it| !it.is_critical).count();
            if let Some(victim) = victim {
                here.remove(&victim);
            }
            moments.push(Moment { available, due: outlook.due, victim, n_may_go });
        }
        moments
    }
}

fn amount(value: Option<ThresholdValue>) -> u64 {
    let quantity = value.map(|it| threshold_quantity(it, CAPACITY).value());
    u64::try_from(quantity.unwrap_or(0)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_node_never_evicts_a_critical_pod_nor_more_than_it_needs_and_always_gets_on(scene in scene()) {
        let moments = scene.live();
        let mut began = BTreeSet::new();
        for moment in &moments {
            let left = |signal| moment.available[SIGNALS.iter().position(|it| *it == signal).unwrap()];
            if let Some(victim) = moment.victim {
                prop_assert!(!scene.tenants[victim].is_critical);
                let cause = moment.due[0];
                let line = amount(Some(cause.value));
                // Beyond the line itself only what was begun is finished.
                let place = scene.thresholds.iter().position(|it| *it == cause).unwrap();
                let reach = if began.contains(&place) { line + amount(cause.minimum_reclaim) } else { line };
                prop_assert!(left(cause.signal) < reach, "{cause:?} is not short in {moment:?}");
            }
            // A hard threshold that is met costs somebody at once, as long as somebody may go.
            let is_short = scene.thresholds.iter().any(|it| {
                it.grace_period.is_none() && left(it.signal) < amount(Some(it.value))
            });
            if is_short && moment.n_may_go > 0 {
                prop_assert!(moment.victim.is_some(), "nothing is done in {moment:?}");
            }
            for (place, threshold) in scene.thresholds.iter().enumerate() {
                if left(threshold.signal) < amount(Some(threshold.value)) {
                    began.insert(place);
                } else if left(threshold.signal) >= amount(Some(threshold.value)) + amount(threshold.minimum_reclaim) {
                    began.remove(&place);
                }
            }
        }
        let victims: Vec<usize> = moments.iter().filter_map(|it| it.victim).collect();
        prop_assert_eq!(victims.iter().collect::<BTreeSet<_>>().len(), victims.len(), "one went twice");
        prop_assert_eq!(scene.live(), moments, "the same facts, another end");
    }
}
