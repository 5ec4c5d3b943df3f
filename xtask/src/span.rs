//! Spans of time as people type them: `20s`, `2m`, `1m30s`, `500ms`.

use std::time::Duration;

/// Reads a span; the error says what was expected.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a span of time such as 20s, 2m or 1m30s");
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let unit = rest.find(|it: char| it.is_ascii_digit()).unwrap_or(rest.len());
        let millis = match &rest[..unit] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        total += Duration::from_millis(number.checked_mul(millis).ok_or_else(wrong)?);
        rest = &rest[unit..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

/// Short and for people: `7s`, `3m05s`, `2h10m`.
pub(crate) fn brief(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read() {
        let cases = [
            ("20s", Some(20_000)),
            ("1m30s", Some(90_000)),
            ("500ms", Some(500)),
            ("2h", Some(7_200_000)),
            ("", None),
            ("20", None),
            ("s", None),
            ("3 s", None),
            ("1d", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text).ok(), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn spans_are_written_briefly() {
        let cases = [(7, "7s"), (185, "3m05s"), (7800, "2h10m")];
        for (seconds, text) in cases {
            assert_eq!(brief(Duration::from_secs(seconds)), text);
        }
    }
}
