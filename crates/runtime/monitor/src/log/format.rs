//! The lines of a container's log, as CRI has them: a time, a stream, a tag, the text.
//!
//! ```text
//! 2026-11-18T01:02:03.000000004Z stdout F a whole line
//! 2026-11-18T01:02:03.000000004Z stderr P the first 16 kB of a longer one
//! ```
//!
//! Pure: bytes and a time in, bytes out. A line that is not finished waits for its end, up to the
//! 16 kB that a line may have; what a stream leaves unfinished at its end is marked `P`.

/// As much text as one line holds.
pub(crate) const MAX_LINE: usize = 16 * 1024;

/// Which stream of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Stdout => b" stdout ",
            Self::Stderr => b" stderr ",
        }
    }
}

/// A moment of the wall clock, as a log line begins with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp([u8; 30]);

impl Stamp {
    pub(crate) fn new(seconds: i64, nanoseconds: u32) -> Self {
        let (date, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(date);
        let mut text = *b"0000-00-00T00:00:00.000000000Z";
        digits(&mut text[0..4], year);
        digits(&mut text[5..7], month);
        digits(&mut text[8..10], day);
        digits(&mut text[11..13], time / 3600);
        digits(&mut text[14..16], time / 60 % 60);
        digits(&mut text[17..19], time % 60);
        digits(&mut text[20..29], nanoseconds.into());
        Self(text)
    }

    /// As rotated logs are named: `20261118-010203`.
    pub(crate) fn suffix(&self) -> String {
        let digits: String = self.0[..19]
            .iter()
            .filter(|it| it.is_ascii_digit())
            .map(|it| char::from(*it))
            .collect();
        format!("{}-{}", &digits[..8], &digits[8..])
    }
}

fn digits(place: &mut [u8], mut number: i64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number.rem_euclid(10)).unwrap_or(0);
        number /= 10;
    }
}

/// Year, month and day of a number of days since 1970, by Howard Hinnant's method: years begin in
/// March, so that the odd day is the last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Where lines go, many at a time.
pub(crate) trait Lines {
    /// Takes the pieces of one line, its newline included.
    fn line(&mut self, pieces: &[&[u8]]);
}

/// One stream's unfinished line. Empty, it holds no memory.
#[derive(Debug)]
pub(crate) struct Splitter {
    stream: Stream,
    begun: Vec<u8>,
}

impl Splitter {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, begun: Vec::new() }
    }

    /// Takes what was read.
    pub(crate) fn push(&mut self, mut bytes: &[u8], stamp: &Stamp, out: &mut impl Lines) {
        while !bytes.is_empty() {
            let room = MAX_LINE - self.begun.len();
            // One byte beyond the room, because a newline takes none.
            let window = &bytes[..bytes.len().min(room + 1)];
            if let Some(end) = window.iter().position(|byte| *byte == b'\n') {
                self.line(stamp, b"F ", &bytes[..end], out);
                self.begun = Vec::new();
                bytes = &bytes[end + 1..];
            } else if bytes.len() > room {
                self.line(stamp, b"P ", &bytes[..room], out);
                self.begun = Vec::new();
                bytes = &bytes[room..];
            } else {
                self.begun.extend_from_slice(bytes);
                return;
            }
        }
    }

    /// The stream has ended.
    pub(crate) fn finish(&mut self, stamp: &Stamp, out: &mut impl Lines) {
        if !self.begun.is_empty() {
            self.line(stamp, b"P ", &[], out);
            self.begun = Vec::new();
        }
    }

    fn line(&self, stamp: &Stamp, tag: &[u8], rest: &[u8], out: &mut impl Lines) {
        out.line(&[&stamp.0, self.stream.name(), tag, &self.begun, rest, b"\n"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Lines for Vec<u8> {
        fn line(&mut self, pieces: &[&[u8]]) {
            self.extend(pieces.concat());
        }
    }

    fn stamp() -> Stamp {
        Stamp::new(1_795_395_723, 4)
    }

    fn logged(reads: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut splitter = Splitter::new(Stream::Stdout);
        for read in reads {
            splitter.push(read, &stamp(), &mut out);
        }
        splitter.finish(&stamp(), &mut out);
        let text = String::from_utf8(out).unwrap();
        text.replace("2026-11-23T01:02:03.000000004Z stdout ", "")
    }

    #[test]
    fn times_are_written_to_the_nanosecond() {
        let cases = [
            ((0, 0), "1970-01-01T00:00:00.000000000Z"),
            ((951_868_799, 999_999_999), "2000-02-29T23:59:59.999999999Z"),
            ((951_868_800, 1), "2000-03-01T00:00:00.000000001Z"),
            ((4_107_542_399, 0), "2100-02-28T23:59:59.000000000Z"),
            ((-1, 0), "1969-12-31T23:59:59.000000000Z"),
        ];
        for ((seconds, nanoseconds), text) in cases {
            assert_eq!(Stamp::new(seconds, nanoseconds).0, *text.as_bytes(), "{text}");
        }
        assert_eq!(stamp().suffix(), "20261123-010203");
    }

    #[test]
    fn a_line_waits_for_its_end() {
        assert_eq!(logged(&[b"one\ntw", b"o\n", b"\n"]), "F one\nF two\nF \n");
    }

    #[test]
    fn what_is_unfinished_at_the_end_is_partial() {
        assert_eq!(logged(&[b"one\ntwo"]), "F one\nP two\n");
        assert_eq!(logged(&[]), "");
    }

    #[test]
    fn a_long_line_is_cut() {
        let exact = "x".repeat(MAX_LINE);
        assert_eq!(logged(&[exact.as_bytes(), b"\n"]), format!("F {exact}\n"));
        let more = format!("{exact}y\n");
        assert_eq!(logged(&[more.as_bytes()]), format!("P {exact}\nF y\n"));
        assert_eq!(logged(&[exact.as_bytes(), b"y", b"\n"]), format!("P {exact}\nF y\n"));
    }

    proptest! {
        /// Whatever the pieces, the text comes back.
        #[test]
        fn nothing_is_lost(pieces in prop::collection::vec((0_usize..20_000, 0_usize..3), 0..5)) {
            let reads: Vec<String> =
                pieces.iter().map(|(n, lines)| "a".repeat(*n) + &"\n".repeat(*lines)).collect();
            let reads: Vec<&[u8]> = reads.iter().map(|it| it.as_bytes()).collect();
            let mut text = String::new();
            for line in logged(&reads).lines() {
                let (tag, rest) = line.split_at(2);
                prop_assert!(rest.len() <= MAX_LINE);
                text.push_str(rest);
                if tag == "F " {
                    text.push('\n');
                }
            }
            prop_assert_eq!(text.as_bytes(), reads.concat());
        }
    }
}
