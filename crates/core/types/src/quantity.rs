//! Resource quantities with Go's rules: what parses, how it rounds, and how it is written back.

use std::{cmp::Ordering, fmt};

/// An exact amount, held in billionths, as the API's `resource.Quantity` does.
///
/// The text it came from is not kept: [`Quantity::milli`] and [`Quantity::value`] round up, as
/// upstream's do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid quantity {text:?}")]
pub struct QuantityError {
    text: String,
}

const NANO: i128 = 1_000_000_000;
/// Upstream caps at the largest signed 64-bit number; larger amounts saturate there.
const CAP: i128 = i64::MAX as i128 * NANO;

const BINARY: [(&str, u32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

impl Quantity {
    /// Nothing at all.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// A whole amount of bytes or pieces, written in binary units.
    pub fn from_bytes(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANO, format: Format::BinarySi }
    }

    /// A whole amount, written in decimal units.
    pub fn from_value(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANO, format: Format::DecimalSi }
    }

    /// Thousandths, the unit of CPU arithmetic.
    pub fn from_milli(milli: i64) -> Self {
        Self { nanos: i128::from(milli) * (NANO / 1000), format: Format::DecimalSi }
    }

    /// Reads a quantity as the API writes it: `100m`, `1.5`, `64Mi`, `1e3`.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let bad = || QuantityError { text: text.to_owned() };
        let (sign, rest) = match text.as_bytes().first() {
            Some(b'-') => (-1, &text[1..]),
            Some(b'+') => (1, &text[1..]),
            _ => (1, text),
        };
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || number.len() > 64 {
            return Err(bad());
        }
        let (format, power, factor) =
            if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
                (Format::BinarySi, 0, 1_i128 << bits)
            } else if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
                (Format::DecimalSi, *power, 1)
            } else if let Some(exponent) = suffix.strip_prefix(['e', 'E']) {
                (
                    Format::DecimalExponent,
                    exponent.parse::<i32>().ok().filter(|e| e.abs() <= 64).ok_or_else(bad)?,
                    1,
                )
            } else {
                return Err(bad());
            };
        let nanos = scale(whole, fraction, power + 9, factor);
        Ok(Self { nanos: sign * nanos.min(CAP), format })
    }

    /// The amount in whole units, rounded up (away from zero), as upstream's `Value`.
    pub fn value(self) -> i64 {
        self.rounded(NANO)
    }

    /// The amount in thousandths, rounded up, as upstream's `MilliValue`.
    pub fn milli(self) -> i64 {
        self.rounded(NANO / 1000)
    }

    /// True when it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The sum, in the notation of `self` unless `self` is zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos: (self.nanos + other.nanos).clamp(-CAP, CAP), format }
    }

    /// The difference, in the notation of `self` unless `self` is zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let negated = Self { nanos: -other.nanos, format: other.format };
        self.plus(negated)
    }

    fn rounded(self, unit: i128) -> i64 {
        let (quotient, rest) = (self.nanos / unit, self.nanos % unit);
        let rounded = quotient + rest.signum();
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }
}

/// `whole.fraction × 10^power × factor`, with what lies below one rounded up.
fn scale(whole: &str, fraction: &str, power: i32, factor: i128) -> i128 {
    let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect();
    // The decimal point stands this many digits from the left.
    let point = i64::try_from(whole.len()).unwrap_or(i64::MAX) + i64::from(power);
    let point = usize::try_from(point.max(0)).unwrap_or(0);
    if digits.len() < point {
        digits.resize(point.min(80), 0);
    }
    let (kept, dropped) = digits.split_at(point.min(digits.len()));
    let value = kept
        .iter()
        .fold(0_i128, |sum, digit| sum.saturating_mul(10).saturating_add(i128::from(*digit)));
    let tail_is_zero = dropped.iter().all(|digit| *digit == 0);
    if factor == 1 {
        return value.saturating_add(i128::from(!tail_is_zero));
    }
    // Binary suffixes scale the fraction too; nine further digits are as exact as the API is.
    let mut fine = value.saturating_mul(factor);
    let mut rest = 0_i128;
    let mut place = 1_i128;
    for digit in dropped.iter().take(18) {
        rest = rest * 10 + i128::from(*digit);
        place *= 10;
    }
    let product = rest.saturating_mul(factor);
    fine = fine.saturating_add(product / place + i128::from(product % place != 0));
    fine
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest unit that keeps it exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && self.nanos % NANO == 0
            && (self.nanos / NANO).abs() >= 1024
        {
            let mut value = self.nanos / NANO;
            let mut unit = "";
            for (name, _) in BINARY {
                if value % 1024 != 0 {
                    break;
                }
                value /= 1024;
                unit = name;
            }
            return write!(f, "{value}{unit}");
        }
        let mut value = self.nanos;
        let mut exponent = -9;
        while exponent < 18 && value % 1000 == 0 {
            value /= 1000;
            exponent += 3;
        }
        if self.format == Format::DecimalExponent && exponent != 0 {
            return write!(f, "{value}e{exponent}");
        }
        let unit =
            DECIMAL.iter().find(|(_, power)| *power == exponent).map_or("", |(name, _)| *name);
        write!(f, "{value}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums and notation keep the amount, for every notation and near every border.
    #[test]
    fn amounts_survive_arithmetic_and_being_written() {
        let mut all = Vec::new();
        for number in ["0", "1", "3", "999", "1000", "1023", "1024", "1025", "1.5", "0.25"] {
            for unit in ["n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "e-3"] {
                for sign in ["", "-"] {
                    all.push(Quantity::parse(&format!("{sign}{number}{unit}")).unwrap());
                }
            }
        }
        for a in &all {
            assert_eq!(Quantity::parse(&a.to_string()).unwrap().nanos, a.nanos, "{a}");
            assert!(i128::from(a.value()) * NANO >= a.nanos || a.nanos < 0, "{a}");
            assert!(a.minus(*a).is_zero());
            for b in &all {
                assert_eq!(a.plus(*b).cmp(&b.plus(*a)), Ordering::Equal, "{a} {b}");
                assert_eq!(a.plus(*b).minus(*b).nanos, a.nanos, "{a} {b}");
                assert_eq!(a < b, a.minus(*b).nanos < 0, "{a} {b}");
            }
        }
    }

    #[test]
    fn quantities_read_round_and_write_as_the_api_does() {
        let check = |text: &str, value: i64, milli: i64, written: &str| {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!((quantity.value(), quantity.milli()), (value, milli), "{text}");
            assert_eq!(quantity.to_string(), written, "{text}");
        };
        check("0", 0, 0, "0");
        check("1", 1, 1000, "1");
        check("100m", 1, 100, "100m");
        check("1.5", 2, 1500, "1500m");
        check("0.1", 1, 100, "100m");
        check("64Mi", 67_108_864, 67_108_864_000, "64Mi");
        check("1.5Gi", 1_610_612_736, 1_610_612_736_000, "1536Mi");
        check("1000k", 1_000_000, 1_000_000_000, "1M");
        check("1e3", 1000, 1_000_000, "1e3");
        check("1E", 1_000_000_000_000_000_000, i64::MAX, "1E");
        check("500u", 1, 1, "500u");
        check("-2", -2, -2000, "-2");
        check("1023", 1023, 1_023_000, "1023");
        check("9007199254740988Ki", 9_223_372_036_854_771_712, i64::MAX, "9007199254740988Ki");
    }

    #[test]
    fn a_difference_keeps_the_notation_it_began_with() {
        let check = |from: &str, less: &str, written: &str| {
            let (from, less) = (Quantity::parse(from).unwrap(), Quantity::parse(less).unwrap());
            assert_eq!(from.minus(less).to_string(), written);
        };
        check("1Gi", "512Mi", "512Mi");
        check("2", "500m", "1500m");
        check("1000", "1Ki", "-24");
        check("5", "5", "0");
    }

    #[test]
    fn what_is_not_a_quantity_is_refused() {
        for text in ["", "m", "1.2.3", "1 Mi", "1kb", "abc", "--1", "1e", "0x10"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
    }
}
