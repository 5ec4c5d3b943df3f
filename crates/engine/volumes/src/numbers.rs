//! How many volumes pods should have and how many they have, by plugin: upstream's `volume_manager_total_volumes`.
//!
//! One count for the process (ADR 0018). In: what the engine begins, finishes and takes away. Out: [`volume_numbers`]. What is taken away
//! from a pod is wanted no more from the first attempt on, and is there until the last one succeeds. Refuses: names of volumes as labels.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use ferrolet_ports::{Measured, Sample, SampleValue};
use ferrolet_types::PodUid;

const FAMILY: &str = "volume_manager_total_volumes";

static KEPT: VolumeNumbers = VolumeNumbers::new();

/// Volumes of pods on this node, counted.
pub fn volume_numbers() -> &'static VolumeNumbers {
    &KEPT
}

/// Volumes by pod and name.
pub struct VolumeNumbers {
    known: Mutex<BTreeMap<(PodUid, String), Known>>,
}

struct Known {
    plugin: String,
    is_wanted: bool,
    is_here: bool,
}

impl VolumeNumbers {
    const fn new() -> Self {
        Self { known: Mutex::new(BTreeMap::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(PodUid, String), Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pod should have this volume.
    pub(crate) fn wanted(&self, uid: &PodUid, volume: &str, plugin: String) {
        let key = (uid.clone(), volume.to_owned());
        let mut known = self.lock();
        let is_here = known.get(&key).is_some_and(|it| it.is_here);
        let one = Known { plugin, is_wanted: true, is_here };
        known.insert(key, one);
    }

    /// It has it.
    pub(crate) fn here(&self, uid: &PodUid, volume: &str) {
        let key = (uid.clone(), volume.to_owned());
        if let Some(known) = self.lock().get_mut(&key) {
            known.is_here = true;
        }
    }

    /// A pod should have none any more.
    pub(crate) fn leaving(&self, uid: &PodUid) {
        let mut known = self.lock();
        let own = known.iter_mut().filter(|((owner, _), _)| owner == uid);
        own.for_each(|(_, it)| it.is_wanted = false);
    }

    /// It has none.
    pub(crate) fn gone(&self, uid: &PodUid) {
        self.lock().retain(|(owner, _), _| owner != uid);
    }
}

impl Measured for VolumeNumbers {
    fn samples(&self) -> Vec<Sample> {
        let mut counted: BTreeMap<(String, &str), u32> = BTreeMap::new();
        for known in self.lock().values() {
            let states = [
                (known.is_here, "actual_state_of_world"),
                (known.is_wanted, "desired_state_of_world"),
            ];
            for (_, state) in states.into_iter().filter(|(holds, _)| *holds) {
                *counted.entry((known.plugin.clone(), state)).or_default() += 1;
            }
        }
        let samples = counted.into_iter().map(|((plugin, state), n)| Sample {
            family: FAMILY,
            labels: vec![plugin, state.to_owned()],
            value: SampleValue::Number(f64::from(n)),
        });
        samples.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_counted_as_wanted_and_as_there() {
        let numbers = VolumeNumbers::new();
        let check = |expected: &[(&str, &str, f64)]| {
            let shown = numbers.samples();
            let shown: Vec<(&str, &str, f64)> = shown
                .iter()
                .map(|it| match it.value {
                    SampleValue::Number(n) => (it.labels[0].as_str(), it.labels[1].as_str(), n),
                    SampleValue::Histogram { .. } => panic!("a gauge is a number"),
                })
                .collect();
            assert_eq!(shown, expected);
        };
        let (first, second) = (PodUid::from("1"), PodUid::from("2"));
        let (actual, desired) = ("actual_state_of_world", "desired_state_of_world");
        check(&[]);
        numbers.wanted(&first, "a", "secret".to_owned());
        numbers.wanted(&first, "b", "nfs".to_owned());
        numbers.wanted(&second, "a", "secret".to_owned());
        numbers.here(&first, "a");
        // It is made again, and nobody counts it twice.
        numbers.wanted(&first, "a", "secret".to_owned());
        let all = [("nfs", desired, 1.0), ("secret", actual, 1.0), ("secret", desired, 2.0)];
        check(&all);
        numbers.leaving(&first);
        check(&[("secret", actual, 1.0), ("secret", desired, 1.0)]);
        numbers.gone(&first);
        check(&[("secret", desired, 1.0)]);
        numbers.here(&first, "a");
        check(&[("secret", desired, 1.0)]);
    }
}
