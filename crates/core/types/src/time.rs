//! Wall time and spans as data. Pure code is handed a [`Timestamp`] and never asks for one.

use std::{fmt, time::Duration};

use jiff::SignedDuration;

/// A moment of wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub jiff::Timestamp);

impl Timestamp {
    /// The moment that many nanoseconds after the epoch; `None` for the zero that CRI uses for
    /// "never".
    pub fn from_nanos(nanos: i64) -> Option<Self> {
        if nanos == 0 {
            None
        } else {
            jiff::Timestamp::from_nanosecond(i128::from(nanos)).ok().map(Self)
        }
    }

    /// The moment that many whole seconds after the epoch.
    pub fn from_second(second: i64) -> Self {
        Self(jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::MAX))
    }

    /// This moment cut to whole seconds, the precision of the API.
    pub fn to_second_precision(self) -> Self {
        Self::from_second(self.0.as_second())
    }

    /// Time that passed since `earlier`; zero when `earlier` lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::try_from(self.0.duration_since(earlier.0)).unwrap_or(Duration::ZERO)
    }

    /// This moment moved ahead by `span`, at most to the end of time.
    pub fn after(self, span: Duration) -> Self {
        let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
        Self(self.0.saturating_add(span).unwrap_or(jiff::Timestamp::MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Time a container gets between the polite signal and the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GracePeriod(pub Duration);

impl GracePeriod {
    /// A grace period of whole seconds; negative input counts as none.
    pub fn from_secs(secs: i64) -> Self {
        Self(Duration::from_secs(u64::try_from(secs).unwrap_or(0)))
    }

    /// Whole seconds, as the API and CRI count.
    pub fn as_secs(self) -> i64 {
        i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX)
    }
}

/// Why a text is not a duration in Go's notation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {text:?}")]
pub struct DurationError {
    text: String,
}

const UNITS: [(&str, u128); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration as Go writes it: `1h2m3.5s`, `300ms`, `0`. Negative ones are refused: nothing
/// here runs backwards.
pub fn parse_go_duration(text: &str) -> Result<Duration, DurationError> {
    let bad = || DurationError { text: text.to_owned() };
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(bad());
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, scale)| *scale)
            .ok_or_else(bad)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(bad());
        }
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| bad())? };
        total =
            whole.checked_mul(scale).and_then(|part| total.checked_add(part)).ok_or_else(bad)?;
        let mut place = scale;
        for digit in fraction.bytes() {
            if !digit.is_ascii_digit() {
                return Err(bad());
            }
            place /= 10;
            total += place * u128::from(digit - b'0');
        }
        rest = tail;
    }
    u64::try_from(total)
        .ok()
        .filter(|nanos| i64::try_from(*nanos).is_ok())
        .map(Duration::from_nanos)
        .ok_or_else(bad)
}

/// Writes a duration as Go does: `1m30s`, `1.5s`, `100ms`, `0s`.
pub fn format_go_duration(span: Duration) -> String {
    let nanos = span.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let decimal = |value: u128, scale: u128, unit: &str| {
        let (whole, rest) = (value / scale, value % scale);
        if rest == 0 {
            return format!("{whole}{unit}");
        }
        let width = scale.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        format!("{whole}.{}{unit}", digits.trim_end_matches('0'))
    };
    match nanos {
        0..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => decimal(nanos, 1_000, "\u{b5}s"),
        1_000_000..1_000_000_000 => decimal(nanos, 1_000_000, "ms"),
        _ => {
            let (hours, rest) = (nanos / 3_600_000_000_000, nanos % 3_600_000_000_000);
            let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
            let seconds = decimal(rest, 1_000_000_000, "s");
            match (hours, minutes) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_read_and_write_alike() {
        let check = |text: &str, nanos: u64, written: &str| {
            let span = parse_go_duration(text).unwrap();
            assert_eq!(span, Duration::from_nanos(nanos), "{text}");
            assert_eq!(format_go_duration(span), written, "{text}");
        };
        check("0", 0, "0s");
        check("0s", 0, "0s");
        check("20s", 20_000_000_000, "20s");
        check("1m", 60_000_000_000, "1m0s");
        check("1h", 3_600_000_000_000, "1h0m0s");
        check("1h2m3.5s", 3_723_500_000_000, "1h2m3.5s");
        check("100ms", 100_000_000, "100ms");
        check("1.5ms", 1_500_000, "1.5ms");
        check(".5s", 500_000_000, "500ms");
        check("10us", 10_000, "10\u{b5}s");
        check("7ns", 7, "7ns");
        check("59.999s", 59_999_000_000, "59.999s");
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in ["", "5", "-1s", "s", "1x", "1s2", ".s", "1..5s", "99999999999h"] {
            assert!(parse_go_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn time_before_its_start_counts_as_none() {
        let (early, late) = (Timestamp::from_second(10), Timestamp::from_second(15));
        assert_eq!(late.since(early), Duration::from_secs(5));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early.after(Duration::from_secs(5)), late);
    }
}
