//! One line as the runtime writes it: `TIME STREAM TAGS TEXT`. Pure.

use ferrolet_types::Timestamp;

/// One line, taken apart. The text keeps its newline, unless the line is a part of a longer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) time: Timestamp,
    pub(super) time_text: &'a str,
    pub(super) is_stderr: bool,
    pub(super) text: &'a [u8],
}

impl<'a> Line<'a> {
    /// `None` when it is not such a line.
    pub(super) fn parse(raw: &'a [u8]) -> Option<Self> {
        let (time_text, rest) = word(raw)?;
        let time_text = std::str::from_utf8(time_text).ok()?;
        let time = Timestamp(time_text.parse().ok()?);
        let (stream, rest) = word(rest)?;
        let is_stderr = match stream {
            b"stdout" => false,
            b"stderr" => true,
            _ => return None,
        };
        let (tags, text) = word(rest)?;
        let is_part = tags.split(|byte| *byte == b':').next() == Some(b"P");
        let text = match text.strip_suffix(b"\n") {
            Some(cut) if is_part => cut,
            _ => text,
        };
        Some(Self { time, time_text, is_stderr, text })
    }

    /// The time with nine digits after the point, as upstream shows it.
    pub(super) fn write_time(&self, out: &mut Vec<u8>) {
        let text = self.time_text;
        let zone =
            text.find('T').and_then(|t| text[t..].find(['Z', '+', '-']).map(|zone| t + zone));
        let (moment, zone) = text.split_at(zone.unwrap_or(text.len()));
        let (seconds, fraction) = moment.split_once('.').unwrap_or((moment, ""));
        let fraction = &fraction[..fraction.len().min(9)];
        out.extend(format!("{seconds}.{fraction:0<9}{zone} ").as_bytes());
    }
}

fn word(raw: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = raw.iter().position(|byte| *byte == b' ')?;
    Some((&raw[..end], &raw[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart_or_refused() {
        let check = |raw: &str, expected: Option<(bool, &str)>| {
            let line = Line::parse(raw.as_bytes());
            let got = line.map(|line| (line.is_stderr, std::str::from_utf8(line.text).unwrap()));
            assert_eq!(got, expected, "{raw:?}");
        };
        let time = "2016-10-06T00:17:09.669794202Z";
        check(&format!("{time} stdout F hello world\n"), Some((false, "hello world\n")));
        check(&format!("{time} stderr F \n"), Some((true, "\n")));
        check(&format!("{time} stdout P part\n"), Some((false, "part")));
        check(&format!("{time} stdout P:x:y part\n"), Some((false, "part")));
        check(&format!("{time} stdout F:P whole\n"), Some((false, "whole\n")));
        check(&format!("{time} stdout F cut off"), Some((false, "cut off")));
        check(&format!("{time} stdin F x\n"), None);
        check(&format!("{time} stdout\n"), None);
        check("yesterday stdout F x\n", None);
        check("{\"log\":\"x\"}\n", None);
        check("", None);
    }

    #[test]
    fn times_are_shown_with_nine_digits() {
        let check = |time: &str, expected: &str| {
            let raw = format!("{time} stdout F x\n");
            let mut out = Vec::new();
            Line::parse(raw.as_bytes()).unwrap().write_time(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{expected} "));
        };
        check("2016-10-06T00:17:09.669794202Z", "2016-10-06T00:17:09.669794202Z");
        check("2016-10-06T00:17:09.6697Z", "2016-10-06T00:17:09.669700000Z");
        check("2016-10-06T00:17:09Z", "2016-10-06T00:17:09.000000000Z");
        check("2016-10-06T00:17:09.5+02:00", "2016-10-06T00:17:09.500000000+02:00");
        check("2016-10-06T00:17:09-07:00", "2016-10-06T00:17:09.000000000-07:00");
    }
}
