//! A family of metrics, and the handles by which it is counted.

use super::sample::{Sample, SampleValue};
use super::table::{Id, families};

/// Where a family is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/metrics`.
    Metrics,
    /// `/metrics/resource`.
    Resource,
    /// `/metrics/probes`.
    Probes,
    /// `/metrics/slis`.
    Slis,
}

/// A family's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// It only grows.
    Counter,
    /// It moves.
    Gauge,
    /// Observations, by size.
    Histogram,
}

impl Type {
    /// As Prometheus calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// How much a family may still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// At any time.
    Alpha,
    /// After it was announced.
    Beta,
    /// Not at all.
    Stable,
}

impl Stability {
    /// As upstream writes it in front of the help.
    pub fn word(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "STABLE",
        }
    }
}

/// One family: a row of the table, and only that.
#[derive(Debug)]
#[non_exhaustive]
pub struct Family {
    pub(super) id: Id,
    /// Where it is shown.
    pub endpoints: &'static [Endpoint],
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// A histogram's upper bounds, rising; the infinite one is left out.
    pub bounds: &'static [f64],
    /// How much it may still change.
    pub stability: Stability,
    /// Names of its labels, in order.
    pub labels: &'static [&'static str],
    /// What it is, in one sentence.
    pub help: &'static str,
}

impl Family {
    /// The families of an endpoint, by name.
    pub fn shown_at(endpoint: Endpoint) -> impl Iterator<Item = &'static Self> {
        families().iter().filter(move |family| family.endpoints.contains(&endpoint))
    }

    /// How many families there are of each stability, counted once for each endpoint.
    pub fn n_by_stability() -> [(Stability, usize); 3] {
        [Stability::Alpha, Stability::Beta, Stability::Stable].map(|stability| {
            let of = families().iter().filter(|it| it.stability == stability);
            (stability, of.map(|it| it.endpoints.len()).sum())
        })
    }

    /// True for a count of what the agent does, without kinds of it.
    pub fn counts_all(&self) -> bool {
        self.kind == Type::Counter && self.labels.is_empty() && self.name.starts_with("kubelet_")
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Family {}

/// A handle of whatever type.
pub trait Metric: Copy {
    /// Its row in the table.
    fn family(self) -> &'static Family;
}

/// Handles differ in what may be done with them, and are made alike.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<const N_LABELS: usize>(pub(super) Id);

        impl<const N_LABELS: usize> Metric for $name<N_LABELS> {
            fn family(self) -> &'static Family {
                &families()[self.0 as usize]
            }
        }
    )*};
}

handles! {
    /// Something that only grows.
    Counter
    /// Something that moves.
    Gauge
    /// Observations, by size.
    Histogram
}

impl<const N_LABELS: usize> Counter<N_LABELS> {
    /// What was counted by somebody who keeps the count.
    pub fn sample(self, labels: [&str; N_LABELS], counted: f64) -> Sample {
        Sample::new(self.family(), &labels, SampleValue::Number(counted))
    }
}

impl<const N_LABELS: usize> Gauge<N_LABELS> {
    /// How much it is now.
    pub fn sample(self, labels: [&str; N_LABELS], value: f64) -> Sample {
        Sample::new(self.family(), &labels, SampleValue::Number(value))
    }
}

impl<const N_LABELS: usize> Histogram<N_LABELS> {
    /// Observations of somebody who counts them: how many fell into each bucket of the family, how
    /// many above the last bound, and the sum of all.
    pub fn sample(self, labels: [&str; N_LABELS], counts: &[u64], above: u64, sum: f64) -> Sample {
        let bounds = self.family().bounds;
        debug_assert_eq!(bounds.len(), counts.len());
        let buckets = bounds.iter().copied().zip(counts.iter().copied()).collect();
        Sample::new(self.family(), &labels, SampleValue::Histogram { buckets, above, sum })
    }
}
