//! Prometheus' text format, written.

use std::borrow::Cow;
use std::fmt::Write as _;

use ferrolet_ports::{Sample, SampleValue};
use ferrolet_types::Timestamp;

use super::table::Family;

/// A text that grows family by family.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    /// All samples of one family; none, and the family is not shown.
    pub(super) fn family(&mut self, family: &Family, samples: &[&Sample]) {
        if samples.is_empty() {
            // What was never counted has happened no times, and whoever watches for it wants to see
            // that somebody counts.
            if family.counts_all() {
                self.head(family);
                self.number(family, &[], 0.0, None);
            }
            return;
        }
        self.head(family);
        for sample in samples {
            match &sample.value {
                SampleValue::Number(number) => {
                    self.number(family, &sample.labels, *number, None);
                }
                SampleValue::Histogram { buckets, above, sum } => {
                    self.histogram(family, &sample.labels, buckets, *above, *sum)
                }
            }
        }
    }

    /// What a family is.
    pub(super) fn head(&mut self, family: &Family) {
        let Family { name, help, stability, kind, .. } = family;
        self.line(format_args!("# HELP {name} [{}] {help}", stability.word()));
        self.line(format_args!("# TYPE {name} {}", kind.word()));
    }

    /// One number, with the time it was read at if that is not now.
    pub(super) fn number(
        &mut self,
        family: &Family,
        labels: &[String],
        number: f64,
        at: Option<Timestamp>,
    ) {
        let labels = braces(family, labels, None);
        let name = family.name;
        match at {
            Some(at) => {
                let millis = at.0.as_millisecond();
                self.line(format_args!("{name}{labels} {number} {millis}"));
            }
            None => self.line(format_args!("{name}{labels} {number}")),
        }
    }

    fn histogram(
        &mut self,
        family: &Family,
        labels: &[String],
        buckets: &[(f64, u64)],
        above: u64,
        sum: f64,
    ) {
        let name = family.name;
        let mut n = 0;
        for (bound, count) in buckets {
            n += count;
            let labels = braces(family, labels, Some(&bound.to_string()));
            self.line(format_args!("{name}_bucket{labels} {n}"));
        }
        n += above;
        let all = braces(family, labels, Some("+Inf"));
        self.line(format_args!("{name}_bucket{all} {n}"));
        let labels = braces(family, labels, None);
        self.line(format_args!("{name}_sum{labels} {sum}"));
        self.line(format_args!("{name}_count{labels} {n}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a String takes every text");
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

fn braces(family: &Family, values: &[String], bound: Option<&str>) -> String {
    let named = family.labels.iter().zip(values);
    let mut parts: Vec<String> =
        named.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    parts.extend(bound.map(|bound| format!("le=\"{bound}\"")));
    if parts.is_empty() { String::new() } else { format!("{{{}}}", parts.join(",")) }
}

/// A label's value as it is written between quotes; most need no change.
pub(super) fn escaped(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(value);
    }
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::super::table::family;
    use super::*;

    #[test]
    fn samples_are_written_as_prometheus_reads_them() {
        let http = family("kubelet_http_requests_duration_seconds");
        let labels = ["false", "GET", "a\"b\\c\nd", "readonly"];
        let sample = Sample {
            family: http.name,
            labels: labels.iter().map(|it| (*it).to_owned()).collect(),
            value: SampleValue::Histogram {
                buckets: vec![(0.005, 2), (1.0, 1)],
                above: 1,
                sum: 12.5,
            },
        };
        let mut exposition = Exposition::default();
        exposition.family(http, &[&sample]);
        exposition.family(family("kubelet_node_name"), &[]);
        let text = exposition.into_text();
        let labels =
            r#"long_running="false",method="GET",path="a\"b\\c\nd",server_type="readonly""#;
        let name = http.name;
        let expected = format!(
            "# HELP {name} [ALPHA] Time taken to answer HTTP requests.\n# TYPE {name} histogram\n\
             {name}_bucket{{{labels},le=\"0.005\"}} 2\n{name}_bucket{{{labels},le=\"1\"}} 3\n\
             {name}_bucket{{{labels},le=\"+Inf\"}} 4\n{name}_sum{{{labels}}} 12.5\n{name}_count{{{labels}}} 4\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn what_never_happened_is_counted_as_nothing() {
        let check = |name: &str, expected: bool| {
            let mut exposition = Exposition::default();
            exposition.family(family(name), &[]);
            let shown = exposition.into_text().ends_with(&format!("\n{name} 0\n"));
            assert_eq!(shown, expected, "{name}");
        };
        check("kubelet_started_pods_errors_total", true);
        // Of a kind, a figure, and not ours to count.
        check("kubelet_evictions", false);
        check("kubelet_running_pods", false);
        check("process_cpu_seconds_total", false);
    }
}
