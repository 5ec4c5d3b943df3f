//! Counters, gauges and histograms that somebody adds to while they work, shown as [`Measured`].
//!
//! One lock around a small map; a part that counts holds it for an addition. Refuses: label values
//! without bound; who counts by pod calls [`Tally::forget`] when the pod is gone.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::family::{Counter, Family, Gauge, Histogram, Metric};
use super::sample::{Measured, Sample, SampleValue};
use super::table::{Id, families};

/// What is counted deep inside, where nobody is handed a tally: one for the process, as one agent
/// runs on a node. Every scrape shows it. A test that looks at it looks at differences only.
pub fn process() -> &'static Tally {
    static PROCESS: Tally = Tally::new();
    &PROCESS
}

/// Figures by family and label values.
#[derive(Debug, Default)]
pub struct Tally {
    counted: Mutex<BTreeMap<(Id, Vec<String>), SampleValue>>,
}

impl Tally {
    /// An empty one.
    pub const fn new() -> Self {
        Self { counted: Mutex::new(BTreeMap::new()) }
    }

    /// Adds to a counter; nothing, and it is shown from now on.
    pub fn add<const N: usize>(&self, counter: Counter<N>, labels: [&str; N], n: f64) {
        debug_assert!(n >= 0.0, "a counter grows");
        self.move_by(counter.0, &labels, n);
    }

    /// Adds to a gauge, or takes from it.
    pub fn adjust<const N: usize>(&self, gauge: Gauge<N>, labels: [&str; N], by: f64) {
        self.move_by(gauge.0, &labels, by);
    }

    /// Sets a gauge.
    pub fn set<const N: usize>(&self, gauge: Gauge<N>, labels: [&str; N], value: f64) {
        self.lock().insert(key(gauge.0, &labels), SampleValue::Number(value));
    }

    /// Adds an observation to a histogram.
    pub fn observe<const N: usize>(&self, histogram: Histogram<N>, labels: [&str; N], seen: f64) {
        let mut counted = self.lock();
        let value = counted.entry(key(histogram.0, &labels)).or_insert_with(|| {
            let bounds = histogram.family().bounds.iter();
            let buckets = bounds.map(|bound| (*bound, 0)).collect();
            SampleValue::Histogram { buckets, above: 0, sum: 0.0 }
        });
        if let SampleValue::Histogram { buckets, above, sum } = value {
            *sum += seen;
            match buckets.iter_mut().find(|(bound, _)| seen <= *bound) {
                Some((_, n)) => *n += 1,
                None => *above += 1,
            }
        }
    }

    /// What was counted for this family.
    pub fn samples_of(&self, metric: impl Metric) -> Vec<Sample> {
        let mut samples = self.samples();
        samples.retain(|it| it.is_of(metric));
        samples
    }

    /// Forgets what was counted for these label values of a family.
    pub fn forget(&self, metric: impl Metric, mut is_over: impl FnMut(&[String]) -> bool) {
        let family = metric.family().id;
        self.lock().retain(|(id, labels), _| *id != family || !is_over(labels));
    }

    /// Begins anew.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn move_by(&self, family: Id, labels: &[&str], n: f64) {
        let mut counted = self.lock();
        let value = counted.entry(key(family, labels));
        if let SampleValue::Number(number) = value.or_insert(SampleValue::Number(0.0)) {
            *number += n;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Id, Vec<String>), SampleValue>> {
        self.counted.lock().expect("no panic under this lock")
    }
}

fn key(family: Id, labels: &[&str]) -> (Id, Vec<String>) {
    (family, labels.iter().map(|it| (*it).to_owned()).collect())
}

impl Measured for Tally {
    fn samples(&self) -> Vec<Sample> {
        let counted = self.lock();
        let samples = counted.iter().map(|((id, labels), value)| {
            let family: &'static Family = &families()[*id as usize];
            Sample { family, labels: labels.clone(), value: value.clone() }
        });
        samples.collect()
    }
}
