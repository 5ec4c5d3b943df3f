//! Prometheus' text format, written.

use std::borrow::Cow;
use std::fmt::Write as _;

use ferrolet_ports::{Sample, SampleValue, metrics::Family};
use ferrolet_types::Timestamp;

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
    use ferrolet_ports::metrics::{self, Metric};

    use super::*;

    #[test]
    fn samples_are_written_as_prometheus_reads_them() {
        let sizes = metrics::KUBELET_CONTAINERS_PER_POD_COUNT;
        let probes = metrics::PROBER_PROBE_DURATION_SECONDS;
        let mut exposition = Exposition::default();
        exposition.family(sizes.family(), &[&sizes.sample([], &[2, 0, 1, 0, 0], 1, 12.5)]);
        exposition.family(metrics::KUBELET_NODE_NAME.family(), &[]);
        let labels = ["main", "a\"b\\c\nd", "web", "Liveness"];
        exposition.family(probes.family(), &[&probes.sample(labels, &[], 3, 0.5)]);
        let text = exposition.into_text();
        let (size, probe) = (sizes.family().name, probes.family().name);
        let labels = r#"container="main",namespace="a\"b\\c\nd",pod="web",probe_type="Liveness""#;
        let expected = format!(
            "# HELP {size} [ALPHA] Containers of the pods that came to this node.\n# TYPE {size} histogram\n\
             {size}_bucket{{le=\"1\"}} 2\n{size}_bucket{{le=\"2\"}} 2\n{size}_bucket{{le=\"4\"}} 3\n\
             {size}_bucket{{le=\"8\"}} 3\n{size}_bucket{{le=\"16\"}} 3\n{size}_bucket{{le=\"+Inf\"}} 4\n\
             {size}_sum 12.5\n{size}_count 4\n\
             # HELP {probe} [ALPHA] Time a probe took, in seconds.\n# TYPE {probe} histogram\n\
             {probe}_bucket{{{labels},le=\"+Inf\"}} 3\n{probe}_sum{{{labels}}} 0.5\n{probe}_count{{{labels}}} 3\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn what_never_happened_is_counted_as_nothing() {
        fn check(metric: impl Metric, expected: bool) {
            let mut exposition = Exposition::default();
            exposition.family(metric.family(), &[]);
            let name = metric.family().name;
            let shown = exposition.into_text().ends_with(&format!("\n{name} 0\n"));
            assert_eq!(shown, expected, "{name}");
        }
        check(metrics::KUBELET_STARTED_PODS_ERRORS_TOTAL, true);
        // Of a kind, a gauge, and not ours to count.
        check(metrics::KUBELET_EVICTIONS, false);
        check(metrics::KUBELET_RUNNING_PODS, false);
        check(metrics::PROCESS_CPU_SECONDS_TOTAL, false);
    }
}
