//! One figure at one moment, and who has figures to show.

use super::family::{Family, Metric};

/// Something that has figures to show.
pub trait Measured: Send + Sync {
    /// All of them, now. Called at each scrape; must not block.
    fn samples(&self) -> Vec<Sample>;
}

/// One figure. Only handles of the table make one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// Its family.
    pub family: &'static Family,
    /// Label values, in the family's order of labels.
    pub labels: Vec<String>,
    /// How much.
    pub value: SampleValue,
}

impl Sample {
    pub(super) fn new(family: &'static Family, labels: &[&str], value: SampleValue) -> Self {
        let labels = labels.iter().map(|it| (*it).to_owned()).collect();
        Self { family, labels, value }
    }

    /// True for a figure of this family.
    pub fn is_of(&self, metric: impl Metric) -> bool {
        self.family == metric.family()
    }
}

/// How much of something.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A counter's or gauge's number.
    Number(f64),
    /// A histogram.
    Histogram {
        /// Upper bounds, rising, and how many observations fell at or below each (not cumulated),
        /// without the infinite one.
        buckets: Vec<(f64, u64)>,
        /// Observations above the last bound.
        above: u64,
        /// Sum of all observations.
        sum: f64,
    },
}

impl SampleValue {
    /// A counter's or gauge's number, or the sum of a histogram.
    pub fn total(&self) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Histogram { sum, .. } => *sum,
        }
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
