//! A few numbers that stand for many.

use std::fmt;

/// Median, 90th and 99th percentile and maximum, in the unit of the values; shown as milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    pub(super) median: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) last: f64,
}

impl Figures {
    /// Nearest-rank percentiles; of nothing, zeros.
    pub(super) fn of(mut values: Vec<f64>) -> Figures {
        values.sort_by(f64::total_cmp);
        let rank = |percent: usize| {
            let index = (values.len() * percent).div_ceil(100).saturating_sub(1);
            values.get(index).copied().unwrap_or(0.0)
        };
        Figures { median: rank(50), p90: rank(90), p99: rank(99), last: rank(100) }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:7.1} ms {:7.1} ms {:7.1} ms {:7.1} ms",
            self.median, self.p90, self.p99, self.last
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values = (1..=100).map(f64::from).collect();
        assert_eq!(
            Figures::of(values),
            Figures { median: 50.0, p90: 90.0, p99: 99.0, last: 100.0 }
        );
        assert_eq!(Figures::of(vec![7.0]), Figures { median: 7.0, p90: 7.0, p99: 7.0, last: 7.0 });
        assert_eq!(Figures::of(Vec::new()).last, 0.0);
    }
}
