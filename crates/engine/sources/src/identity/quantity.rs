//! Quantities as upstream holds them in memory: which of its two representations, with which scale,
//! and whether it keeps the text.
//!
//! Needed only because a static pod's UID is a hash over that memory. Arithmetic on quantities is
//! `ferrolet_types::Quantity`'s. Matches `ParseQuantity` and `RoundUp` of
//! `k8s.io/apimachinery/pkg/api/resource`.

/// Most decimal digits that the fast representation takes.
const MAX_FAST_DIGITS: usize = 18;
/// Billionths: the finest scale.
const NANO: i32 = -9;
/// Thousandths: the scale that resource lists are rounded to.
const MILLI: i32 = -3;

/// A quantity as upstream holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InMemory {
    pub(crate) amount: Amount,
    /// The text, where it was canonical already and is kept.
    pub(crate) text: String,
    /// The name of the notation.
    pub(crate) format: &'static str,
}

/// The number of a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// `value × 10^scale`.
    Fast { value: i64, scale: i32 },
    /// `unscaled × 10^-scale`, of any size upstream, of 128 bits here.
    Big { is_negative: bool, unscaled: u128, scale: i32 },
}

const DECIMAL_SI: &str = "DecimalSI";
const BINARY_SI: &str = "BinarySI";
const DECIMAL_EXPONENT: &str = "DecimalExponent";

struct Parts<'t> {
    is_negative: bool,
    /// Sign, digits and fraction: what is left without the suffix.
    value: &'t str,
    whole: &'t str,
    fraction: &'t str,
    suffix: &'t str,
}

/// Reads `text`; `None` when it is no quantity.
pub(crate) fn parse(text: &str) -> Option<InMemory> {
    if text.is_empty() {
        return None;
    }
    if text == "0" {
        return Some(fast(0, 0, DECIMAL_SI, text));
    }
    let parts = split(text)?;
    let (is_binary, exponent, format) = interpret(parts.suffix)?;
    let n_digits = parts.whole.len() + parts.fraction.len();
    let mut scale = 0;
    let mut factor = 1_i64;
    let takes_fast = if is_binary {
        // As upstream estimates it: three decimal digits per ten binary ones.
        factor = 1 << exponent;
        let room = 14 - i32::try_from(parts.whole.len()).ok()? - exponent * 3 / 10;
        parts.fraction.is_empty() && room >= 0
    } else {
        scale = exponent;
        n_digits <= MAX_FAST_DIGITS
    };
    scale -= i32::try_from(parts.fraction.len()).ok()?;
    if takes_fast && scale >= NANO {
        let digits = format!("{}{}", parts.whole, parts.fraction);
        let number: i64 = digits.parse().ok()?;
        if let Some(value) = number.checked_mul(factor) {
            let value = if parts.is_negative { -value } else { value };
            let is_canonical = if is_binary {
                exponent % 10 == 0 && number & 7 != 0
            } else {
                scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
            };
            return Some(fast(value, scale, format, if is_canonical { text } else { "" }));
        }
    }
    Some(big(&parts, is_binary, exponent, format))
}

impl InMemory {
    /// Rounded up to thousandths, as the API's defaults do to every resource list.
    pub(crate) fn rounded_to_milli(self) -> Self {
        match self.amount {
            Amount::Fast { scale, .. } if scale >= MILLI => self,
            Amount::Fast { value, scale } => {
                let divisor = 10_i64.pow((MILLI - scale).unsigned_abs().min(18));
                let value = value / divisor + (value % divisor).signum();
                fast(value, MILLI, self.format, "")
            }
            Amount::Big { is_negative, unscaled, scale } => Self {
                amount: Amount::Big {
                    is_negative,
                    unscaled: rescale(unscaled, scale, -MILLI),
                    scale: -MILLI,
                },
                text: String::new(),
                format: self.format,
            },
        }
    }
}

fn fast(value: i64, scale: i32, format: &'static str, text: &str) -> InMemory {
    InMemory { amount: Amount::Fast { value, scale }, text: text.to_owned(), format }
}

/// The slow representation: exact, rounded up to billionths, capped where the notation is binary.
fn big(parts: &Parts<'_>, is_binary: bool, exponent: i32, format: &'static str) -> InMemory {
    let digits = parts.value.trim_start_matches(['+', '-']);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut unscaled = whole.bytes().chain(fraction.bytes()).fold(0_u128, |sum, digit| {
        sum.saturating_mul(10).saturating_add(u128::from(digit.saturating_sub(b'0')))
    });
    let mut scale = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    if is_binary {
        unscaled = unscaled.saturating_mul(1 << exponent);
    } else {
        scale = scale.saturating_sub(exponent);
    }
    if unscaled != 0 {
        unscaled = rescale(unscaled, scale, -NANO);
        scale = -NANO;
    }
    let mut format = format;
    let one = 10_u128.pow(NANO.unsigned_abs());
    if is_binary && scale == -NANO {
        if unscaled > (i64::MAX as u128) * one {
            (unscaled, scale) = (i64::MAX as u128, 0);
        } else if unscaled < one {
            format = DECIMAL_SI;
        }
    }
    InMemory {
        amount: Amount::Big { is_negative: parts.is_negative && unscaled != 0, unscaled, scale },
        text: String::new(),
        format,
    }
}

/// The same amount at another scale, rounded up where digits are lost.
fn rescale(unscaled: u128, from: i32, to: i32) -> u128 {
    let steps = from.abs_diff(to).min(38);
    let factor = 10_u128.pow(steps);
    if to >= from { unscaled.saturating_mul(factor) } else { unscaled.div_ceil(factor) }
}

fn split(text: &str) -> Option<Parts<'_>> {
    let is_negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let significant = unsigned.trim_start_matches('0');
    if significant.is_empty() {
        // Zeros only, or nothing but a sign, which upstream takes for zero.
        return Some(Parts { is_negative, value: "0", whole: "0", fraction: "", suffix: "" });
    }
    let not_digit = |c: char| !c.is_ascii_digit();
    let whole_end = significant.find(not_digit).unwrap_or(significant.len());
    let (whole, rest) = significant.split_at(whole_end);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(not_digit).unwrap_or(rest.len())),
        None => ("", rest),
    };
    Some(Parts {
        is_negative,
        value: &text[..text.len() - suffix.len()],
        whole: if whole.is_empty() { "0" } else { whole },
        fraction,
        suffix,
    })
}

/// Whether the suffix is binary, its exponent, and the name of the notation.
fn interpret(suffix: &str) -> Option<(bool, i32, &'static str)> {
    let decimal = |exponent| Some((false, exponent, DECIMAL_SI));
    let binary = |exponent| Some((true, exponent, BINARY_SI));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some((false, exponent, DECIMAL_EXPONENT))
        }
    }
}
