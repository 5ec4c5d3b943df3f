//! CRI calls as the agent's log tells them, and the times in it.
//!
//! A line such as `I1115 21:52:43.313226 42 calls.rs:7] "CRI call" method="RunPodSandbox"
//! duration="81.2ms"` is written when a call ends. Log times are local and have no year, so they
//! are compared within a quarter of an hour: every time zone differs from UTC by a multiple of
//! that.

const QUARTER: f64 = 900.0;

/// One finished call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    /// Seconds into the quarter of an hour.
    end: f64,
    seconds: f64,
    /// The whole line, to find a pod's name in.
    line: String,
}

impl Call {
    /// Whether the line says that the call was made for this pod.
    pub(super) fn names(&self, pod: &str) -> bool {
        self.line.contains(&format!("{pod}-"))
    }
}

/// All calls in a log; the event stream is no call.
pub(super) fn calls(log: &str) -> Vec<Call> {
    log.lines()
        .filter(|line| line.contains("\"CRI call\"") && !line.contains("GetContainerEvents"))
        .filter_map(call)
        .collect()
}

/// When the runtime told that a container had ended, in seconds after `from` (since 1970): the
/// first such line of a log within `length`.
pub(super) fn told_end(log: &str, (from, to): (f64, f64)) -> Option<f64> {
    log.lines()
        .filter(|line| line.contains("\"Container event\"") && line.contains("kind=\"Stopped\""))
        .filter_map(clock)
        .map(|at| (at - from).rem_euclid(QUARTER))
        .filter(|after| *after < to - from)
        .min_by(f64::total_cmp)
}

/// Seconds of `span` (since 1970) during which at least one of the calls was under way.
pub(super) fn covered<'a>(calls: impl Iterator<Item = &'a Call>, (from, to): (f64, f64)) -> f64 {
    let length = to - from;
    let mut pieces: Vec<(f64, f64)> = calls
        .filter_map(|call| {
            // How long after `from` the call ended, looking a quarter of an hour ahead.
            let end = (call.end - from).rem_euclid(QUARTER);
            let start = end - call.seconds;
            let piece = (start.max(0.0), end.min(length));
            (start < length && piece.0 < piece.1).then_some(piece)
        })
        .collect();
    pieces.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut sum = 0.0;
    let mut reached = 0.0_f64;
    for (start, end) in pieces {
        sum += (end - start.max(reached)).max(0.0);
        reached = reached.max(end);
    }
    sum
}

/// The time of a line, in seconds into the quarter of an hour.
fn clock(line: &str) -> Option<f64> {
    let clock = line.split_whitespace().nth(1)?;
    let mut parts = clock.splitn(3, ':').map(str::parse::<f64>);
    let (_, minutes, seconds) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    Some((minutes * 60.0 + seconds).rem_euclid(QUARTER))
}

fn call(line: &str) -> Option<Call> {
    let duration = line.split("duration=").nth(1)?.trim_start_matches('"');
    let duration = duration.split(['"', ' ']).next()?;
    Some(Call { end: clock(line)?, seconds: parse_duration(duration)?, line: line.to_owned() })
}

/// `81.2ms`, `1.5s`, `640µs`.
pub(super) fn parse_duration(text: &str) -> Option<f64> {
    let at = text.find(|it: char| !it.is_ascii_digit() && it != '.')?;
    let number: f64 = text[..at].parse().ok()?;
    let unit = match &text[at..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" | "us" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    Some(number * unit)
}

/// `2026-11-15T21:52:43.313226491Z`, with any offset, as seconds since 1970.
pub(super) fn parse_rfc3339(text: &str) -> Option<f64> {
    let (date, rest) = text.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i32>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone = rest.find(['Z', '+', '-'])?;
    let mut clock = rest[..zone].splitn(3, ':').map(|part| part.parse::<f64>().ok());
    let seconds = clock.next()?? * 3600.0 + clock.next()?? * 60.0 + clock.next()??;
    let offset = match &rest[zone..] {
        "Z" => 0.0,
        shift => {
            let (hours, minutes) = shift[1..].split_once(':')?;
            let size = hours.parse::<f64>().ok()? * 3600.0 + minutes.parse::<f64>().ok()? * 60.0;
            if shift.starts_with('-') { -size } else { size }
        }
    };
    Some(f64::from(days_since_1970(year, month, day)) * 86_400.0 + seconds - offset)
}

/// Counts years from March, so that the leap day is the last of its year.
fn days_since_1970(year: i32, month: i32, day: i32) -> i32 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, month) = (year.div_euclid(400), (month + 9) % 12);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_zone() {
        let cases = [
            ("1970-01-01T00:00:00Z", Some(0.0)),
            ("2000-03-01T00:00:00.5Z", Some(951_868_800.5)),
            ("2026-11-15T21:52:43+02:00", Some(1_794_779_563.0 - 7_200.0)),
            ("2026-11-15T21:52:43-00:30", Some(1_794_779_563.0 + 1_800.0)),
            ("yesterday", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_rfc3339(text), expected, "{text}");
        }
    }

    #[test]
    fn calls_are_found_and_the_event_stream_is_not_one() {
        let log = "I1115 21:52:43.500000 42 a.rs:7] \"CRI call\" method=\"RunPodSandbox\" duration=\"81.2ms\" pod=\"x\"\n\
                   I1115 21:52:44.000000 42 a.rs:7] \"CRI call\" method=GetContainerEvents duration=9s\n\
                   I1115 21:52:44.000000 42 a.rs:7] \"Something else\" duration=\"1s\"\n\
                   I1115 21:07:44.000000 42 a.rs:7] \"CRI call\" method=Version duration=640µs\n";
        let found: Vec<(f64, f64)> =
            calls(log).into_iter().map(|it| (it.end, (it.seconds * 1e6).round())).collect();
        assert_eq!(found, [(463.5, 81_200.0), (464.0, 640.0)]);
    }

    #[test]
    fn the_runtimes_word_is_the_first_one_within_the_span() {
        let log = "I1115 21:52:42.000000 42 a.rs:7] \"Container event\" id=\"c\" kind=\"Stopped\"\n\
                   I1115 21:52:43.250000 42 a.rs:7] \"Container event\" id=\"c\" kind=\"Created\"\n\
                   I1115 21:52:43.500000 42 a.rs:7] \"Container event\" id=\"c\" kind=\"Stopped\"\n\
                   I1115 21:52:44.000000 42 a.rs:7] \"Container event\" id=\"s\" kind=\"Stopped\"\n";
        // 463 s into a quarter.
        for (length, expected) in [(2.0, Some(0.5)), (0.4, None)] {
            assert_eq!(told_end(log, (9_463.0, 9_463.0 + length)), expected);
        }
    }

    #[test]
    fn overlapping_calls_count_once_and_only_inside_the_span() {
        let call = |end: f64, seconds: f64| Call { end, seconds, line: String::new() };
        // The span begins 100 s into a quarter and is 10 s long.
        let span = (9_100.0, 9_110.0);
        let cases = [
            (vec![call(103.0, 2.0), call(104.0, 2.0)], 3.0),
            (vec![call(101.0, 5.0)], 1.0),
            (vec![call(115.0, 10.0)], 5.0),
            (vec![call(200.0, 1.0), call(99.0, 1.0)], 0.0),
        ];
        for (calls, expected) in cases {
            assert!((covered(calls.iter(), span) - expected).abs() < 1e-9, "{calls:?}");
        }
    }
}
