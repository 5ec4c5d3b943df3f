//! Figures that a part of the agent keeps about itself, for whoever scrapes them.
//!
//! A source names families of the server's table of metrics; type, help, stability and label names
//! are the server's business. Refuses: formats, and label values without bound (a source answers
//! for its own).

/// Something that has figures to show.
pub trait Measured: Send + Sync {
    /// All of them, now. Called at each scrape; must not block.
    fn samples(&self) -> Vec<Sample>;
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The family, by its name in the table.
    pub family: &'static str,
    /// Label values, in the table's order of labels.
    pub labels: Vec<String>,
    /// How much.
    pub value: SampleValue,
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
