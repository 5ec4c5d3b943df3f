//! Durations as Go writes them: `1m30s`, `100ms`, `0s`.
//!
//! In: text from files and flags. Out: signed nanoseconds, so that a negative value can be reported
//! as such and not as a syntax error; [`std::time::Duration`] appears only in the validated
//! configuration.

const NANOS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration; `None` when it is not one or does not fit 64 bits of nanoseconds.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_end);
        let (_, nanos) = NANOS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(scaled(number, *nanos)?)?;
        rest = next;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// `number` (digits with at most one point) times `nanos`, the part below a nanosecond dropped.
fn scaled(number: &str, nanos: u64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(i128::from(nanos))?;
    let mut unit = i128::from(nanos);
    let mut part: i128 = 0;
    let mut scale: i128 = 1;
    for digit in fraction.bytes().take(18) {
        part = part * 10 + i128::from(digit - b'0');
        scale *= 10;
    }
    unit *= part;
    total = total.checked_add(unit / scale)?;
    Some(total)
}

/// Writes a duration the way Go prints one, so that what we show can be compared with upstream.
pub(crate) fn format(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".to_owned();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let text = match n {
        0..1_000 => format!("{n}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", decimal(n, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(n, 1_000_000)),
        _ => {
            let (minutes, rest) = (n / 60_000_000_000, n % 60_000_000_000);
            let seconds = decimal(rest, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

fn decimal(n: u64, unit: u64) -> String {
    let (whole, rest) = (n / unit, n % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{rest:0width$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write_as_in_go() {
        for (text, nanos, written) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("1m", 60_000_000_000, "1m0s"),
            ("4h", 14_400_000_000_000, "4h0m0s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("100ms", 100_000_000, "100ms"),
            ("1500us", 1_500_000, "1.5ms"),
            ("-5s", -5_000_000_000, "-5s"),
            (".5s", 500_000_000, "500ms"),
            ("300s", 300_000_000_000, "5m0s"),
        ] {
            assert_eq!(parse(text), Some(nanos), "{text}");
            assert_eq!(format(nanos), written, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in ["", "5", "s", "1 m", "1x", "1..5s", ".s", "-", "999999999999h", "1m-5s"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
