//! Counters and histograms that a part of the agent adds to while it works, shown as [`Measured`].
//!
//! One lock around a small map; a part that counts holds it for an addition. Refuses: label values
//! without bound; who counts by pod calls [`Tally::forget`] when the pod is gone.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use crate::{Measured, Sample, SampleValue};

/// Figures by family and label values.
#[derive(Debug, Default)]
pub struct Tally {
    kept: Mutex<BTreeMap<(&'static str, Vec<String>), SampleValue>>,
}

impl Tally {
    /// Prometheus' usual upper bounds, in seconds.
    pub const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

    /// An empty one, also for statics.
    pub const fn new() -> Self {
        Self { kept: Mutex::new(BTreeMap::new()) }
    }

    /// Adds to a counter.
    pub fn add(&self, family: &'static str, labels: &[&str], n: f64) {
        let mut kept = self.lock();
        let value = kept.entry(key(family, labels));
        if let SampleValue::Number(number) = value.or_insert(SampleValue::Number(0.0)) {
            *number += n;
        }
    }

    /// Sets a gauge.
    pub fn set(&self, family: &'static str, labels: &[&str], value: f64) {
        let value = SampleValue::Number(value);
        self.lock().insert(key(family, labels), value);
    }

    /// Adds an observation to a histogram with these upper bounds.
    pub fn observe(&self, family: &'static str, labels: &[&str], bounds: &[f64], seen: f64) {
        let mut kept = self.lock();
        let value = kept.entry(key(family, labels)).or_insert_with(|| {
            let buckets = bounds.iter().map(|bound| (*bound, 0)).collect();
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

    /// Forgets everything about which the question is answered with yes.
    pub fn forget(&self, mut is_over: impl FnMut(&'static str, &[String]) -> bool) {
        self.lock().retain(|(family, labels), _| !is_over(family, labels));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(&'static str, Vec<String>), SampleValue>> {
        self.kept.lock().expect("no panic under this lock")
    }
}

fn key(family: &'static str, labels: &[&str]) -> (&'static str, Vec<String>) {
    let labels = labels.iter().map(|it| (*it).to_owned()).collect();
    (family, labels)
}

impl Measured for Tally {
    fn samples(&self) -> Vec<Sample> {
        let kept = self.lock();
        let samples = kept.iter().map(|((family, labels), value)| Sample {
            family,
            labels: labels.clone(),
            value: value.clone(),
        });
        samples.collect()
    }
}

/// Figures that never change.
impl Measured for Vec<Sample> {
    fn samples(&self) -> Vec<Sample> {
        self.clone()
    }
}

/// Somebody else's figures, which others look at, too.
impl<T: Measured> Measured for std::sync::Arc<T> {
    fn samples(&self) -> Vec<Sample> {
        (**self).samples()
    }
}

/// Somebody else's figures, which live as long as the process.
impl<T: Measured> Measured for &'static T {
    fn samples(&self) -> Vec<Sample> {
        (**self).samples()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_shown_until_it_is_forgotten() {
        let tally = Tally::new();
        tally.add("n_total", &["a"], 1.0);
        tally.add("n_total", &["a"], 2.0);
        tally.add("n_total", &["b"], 1.0);
        for seen in [0.5, 1.0, 7.0] {
            tally.observe("took_seconds", &[], &[0.5, 1.0], seen);
        }
        let shown: Vec<(Vec<String>, SampleValue)> =
            tally.samples().into_iter().map(|sample| (sample.labels, sample.value)).collect();
        let histogram =
            SampleValue::Histogram { buckets: vec![(0.5, 1), (1.0, 1)], above: 1, sum: 8.5 };
        let label = |text: &str| vec![text.to_owned()];
        assert_eq!(
            shown,
            [
                (label("a"), SampleValue::Number(3.0)),
                (label("b"), SampleValue::Number(1.0)),
                (Vec::new(), histogram),
            ]
        );
        tally.forget(|_, labels| labels == ["a"]);
        assert_eq!(tally.samples().len(), 2);
    }
}
