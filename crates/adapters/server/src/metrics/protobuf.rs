//! Figures as the messages that Prometheus reads when it is told to look for histograms of the
//! newer kind: each family an `io.prometheus.client.MetricFamily` after its length. Pure.
//!
//! In: our own text format, which all endpoints have in common; out: the same in protobuf. Only
//! those who ask for it pay for it. Histograms are those with fixed bounds, which is all that is
//! counted here. Numbers of fields are those of `metrics.proto`.

use std::borrow::Cow;

use crate::protobuf::{delimited, double, message, number};

/// All families of a text.
pub(super) fn families(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut family: Option<Family<'_>> = None;
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            if let Some(last) = family.take() {
                delimited(&last.bytes, &mut out);
            }
            family = Some(Family::begin(head));
        } else if let Some(family) = &mut family {
            match line.strip_prefix("# TYPE ") {
                Some(head) => family.is_of(head),
                None => family.add(line),
            }
        }
    }
    if let Some(last) = family {
        delimited(&last.bytes, &mut out);
    }
    out
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Untyped,
    Histogram,
}

/// One family, as far as it is written.
struct Family<'a> {
    name: &'a str,
    kind: Kind,
    bytes: Vec<u8>,
    /// Of the histogram whose lines are being read.
    buckets: Vec<u8>,
    sum: f64,
}

impl<'a> Family<'a> {
    fn begin(head: &'a str) -> Self {
        let (name, help) = head.split_once(' ').unwrap_or((head, ""));
        let mut bytes = Vec::new();
        message(1, name.as_bytes(), &mut bytes);
        message(2, plain(help).as_bytes(), &mut bytes);
        Self { name, kind: Kind::Untyped, bytes, buckets: Vec::new(), sum: 0.0 }
    }

    fn is_of(&mut self, head: &str) {
        let (kind, value) = match head.rsplit(' ').next() {
            Some("counter") => (Kind::Counter, 0),
            Some("gauge") => (Kind::Gauge, 1),
            Some("histogram") => (Kind::Histogram, 4),
            _ => (Kind::Untyped, 3),
        };
        self.kind = kind;
        number(3, value, &mut self.bytes);
    }

    fn add(&mut self, line: &str) {
        let Some(sample) = Sample::read(line) else {
            return;
        };
        let field = match self.kind {
            Kind::Gauge => 2,
            Kind::Counter => 3,
            Kind::Untyped => 5,
            Kind::Histogram => return self.add_to_histogram(&sample),
        };
        let mut value = Vec::new();
        double(1, sample.value, &mut value);
        self.metric(&sample, field, &value);
    }

    /// Buckets come first, then their sum, and their number last.
    fn add_to_histogram(&mut self, sample: &Sample<'_>) {
        match sample.name.strip_prefix(self.name) {
            Some("_bucket") => {
                let bound = sample.labels.iter().find(|(name, _)| *name == "le");
                let bound = bound.and_then(|(_, bound)| bound.parse::<f64>().ok());
                // What lies above every bound is told by the whole number.
                if let Some(bound) = bound.filter(|it| it.is_finite()) {
                    let mut bucket = Vec::new();
                    number(1, whole(sample.value), &mut bucket);
                    double(2, bound, &mut bucket);
                    message(3, &bucket, &mut self.buckets);
                }
            }
            Some("_sum") => self.sum = sample.value,
            Some("_count") => {
                let mut histogram = Vec::new();
                number(1, whole(sample.value), &mut histogram);
                double(2, self.sum, &mut histogram);
                histogram.append(&mut self.buckets);
                self.metric(sample, 7, &histogram);
            }
            _ => {}
        }
    }

    fn metric(&mut self, sample: &Sample<'_>, field: u32, value: &[u8]) {
        let mut metric = Vec::new();
        for (name, value) in &sample.labels {
            let mut pair = Vec::new();
            message(1, name.as_bytes(), &mut pair);
            message(2, value.as_bytes(), &mut pair);
            message(1, &pair, &mut metric);
        }
        message(field, value, &mut metric);
        if let Some(at) = sample.at {
            number(6, at.cast_unsigned(), &mut metric);
        }
        message(4, &metric, &mut self.bytes);
    }
}

/// A count that was written as a number.
fn whole(value: f64) -> u64 {
    format!("{value:.0}").parse().unwrap_or(0)
}

/// One line: `name{label="value",…} number time`, of which labels and time may be missing.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    value: f64,
    at: Option<i64>,
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(mut inside) = rest.strip_prefix('{') {
            while !inside.starts_with('}') {
                let (label, value) = inside.split_once("=\"")?;
                let end = closing_quote(value)?;
                labels.push((label, plain(&value[..end])));
                inside = &value[end + 1..];
                inside = inside.strip_prefix(',').unwrap_or(inside);
            }
            rest = &inside[1..];
        }
        let mut words = rest.split_whitespace();
        Some(Self {
            name,
            labels,
            value: words.next()?.parse().ok()?,
            at: words.next().and_then(|it| it.parse().ok()),
        })
    }
}

/// Where a value ends: at the first quote that is not escaped.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

/// A text without the escapes that it is written with.
fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => plain.push('\\'),
            },
            other => plain.push(other),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let check = |line: &str, labels: &[(&str, &str)], value: f64, at: Option<i64>| {
            let sample = Sample::read(line).unwrap();
            let got: Vec<(&str, &str)> = sample.labels.iter().map(|(n, v)| (*n, &**v)).collect();
            assert_eq!(sample.name, "a", "{line}");
            assert_eq!(got, labels, "{line}");
            assert_eq!((sample.value, sample.at), (value, at), "{line}");
        };
        check("a 1", &[], 1.0, None);
        check("a{} 1", &[], 1.0, None);
        check("a 1.5e-3 1700", &[], 0.0015, Some(1700));
        check(r#"a{b="c",d="e f,}"} -2 -7"#, &[("b", "c"), ("d", "e f,}")], -2.0, Some(-7));
        check(r#"a{b="x\"y\\z\n"} 0"#, &[("b", "x\"y\\z\n")], 0.0, None);
        check("a +Inf", &[], f64::INFINITY, None);
        for broken in ["", "a", "a{b=\"c 1", "a{b} 1", "a x"] {
            assert!(Sample::read(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn families_become_messages() {
        let text = "# HELP a A.\n# TYPE a gauge\na{x=\"1\"} 2 5\n# HELP b\n# TYPE b counter\nb 0\n";
        let mut expected = vec![32, 0x0a, 1, b'a', 0x12, 2, b'A', b'.', 0x18, 1, 0x22, 21];
        expected.extend([0x0a, 6, 0x0a, 1, b'x', 0x12, 1, b'1']);
        expected.extend([0x12, 9, 0x09, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x30, 5]);
        expected.extend([20, 0x0a, 1, b'b', 0x12, 0, 0x18, 0, 0x22, 11, 0x1a, 9, 0x09]);
        expected.extend([0; 8]);
        assert_eq!(families(text), expected);
        assert_eq!(families(""), [0u8; 0]);
    }

    #[test]
    fn lines_of_a_histogram_become_one_message() {
        let text = "# HELP h H\n# TYPE h histogram\nh_bucket{le=\"0.5\"} 3\nh_bucket{le=\"+Inf\"} 4\nh_sum 2\nh_count 4\n";
        let mut histogram = vec![0x08, 4, 0x11];
        histogram.extend(2f64.to_le_bytes());
        histogram.extend([0x1a, 11, 0x08, 3, 0x11]);
        histogram.extend(0.5f64.to_le_bytes());
        let mut metric = vec![0x3a, 24];
        metric.extend(histogram);
        let mut expected = vec![36, 0x0a, 1, b'h', 0x12, 1, b'H', 0x18, 4, 0x22, 26];
        expected.extend(metric);
        assert_eq!(families(text), expected);
        assert_eq!(whole(18_014_398_509_481_984.0), 18_014_398_509_481_984);
    }
}
