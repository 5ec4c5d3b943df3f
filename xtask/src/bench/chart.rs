//! The rows that a reader cares for as a bar chart, in SVG. Pure.
//!
//! Each row has its own scale: the longer of its two bars fills the width, so that ratios can be
//! compared by eye and seconds never stand beside megabytes. Noisy rows stay out and are named
//! below.

use std::fmt::Write;

use super::score::{Row, Verdict};

const WIDTH: f64 = 760.0;
/// Where bars begin, and how long the longest one is.
const BARS_AT: f64 = 300.0;
const BAR_WIDTH: f64 = 330.0;
const ROW_HEIGHT: f64 = 46.0;
const BAR_HEIGHT: f64 = 14.0;
const HEAD: f64 = 56.0;

/// What the chart shows of one race: endings of keys, because sizes are part of them.
const SHOWN: [&str; 9] = [
    "start_ready",
    "rate_p50",
    "_p50",
    "_last",
    "_cpu",
    "restart_ready",
    "full_rss",
    "full_cpu",
    "idle_rss",
];

/// The chart for the biggest burst of `n_pods`.
pub(super) fn svg(rows: &[Row], n_pods: usize) -> String {
    let shown: Vec<&Row> = rows.iter().filter(|row| is_shown(row, n_pods)).collect();
    let (noisy, bars): (Vec<&Row>, Vec<&Row>) =
        shown.into_iter().partition(|row| matches!(row.verdict, Verdict::Noisy { .. }));
    let n_rows = f64::from(u32::try_from(bars.len()).unwrap_or(u32::MAX));
    let foot = if noisy.is_empty() { 10.0 } else { 34.0 };
    let height = HEAD + n_rows * ROW_HEIGHT + foot;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"Ferrolet and the upstream kubelet, shorter is better\">\n\
         <style>\n\
         text {{ font: 13px system-ui, sans-serif; fill: #24292f }}\n\
         .ours {{ fill: #c2571a }} .upstream {{ fill: #8c959f }} .value {{ font-size: 12px }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .upstream {{ fill: #6e7681 }} }}\n\
         </style>\n"
    );
    for (class, name, x) in
        [("ours", "Ferrolet", BARS_AT), ("upstream", "upstream kubelet", BARS_AT + 110.0)]
    {
        rect(&mut out, class, (x, 20.0), 14.0);
        text(&mut out, "", (x + 20.0, 32.0), name);
    }
    text(&mut out, "", (10.0, 32.0), "shorter is better");
    let mut y = HEAD;
    for row in &bars {
        let longest = row.ours.max(row.upstream).max(f64::MIN_POSITIVE);
        text(&mut out, "", (10.0, y + 20.0), &row.figure.label);
        for (class, value, y) in
            [("ours", row.ours, y), ("upstream", row.upstream, y + BAR_HEIGHT + 2.0)]
        {
            let width = (value / longest * BAR_WIDTH).max(1.0);
            rect(&mut out, class, (BARS_AT, y), width);
            let at = (BARS_AT + width + 6.0, y + BAR_HEIGHT - 3.0);
            text(&mut out, "value", at, &row.figure.unit.show(value));
        }
        y += ROW_HEIGHT;
    }
    if !noisy.is_empty() {
        let labels: Vec<&str> = noisy.iter().map(|it| it.figure.label.as_str()).collect();
        let line = format!("too noisy to show: {}", labels.join("; "));
        text(&mut out, "value", (10.0, y + 16.0), &line);
    }
    out.push_str("</svg>\n");
    out
}

fn is_shown(row: &Row, n_pods: usize) -> bool {
    let key = row.figure.key.as_str();
    let burst = format!("burst_{n_pods}");
    if let Some(ending) = key.strip_prefix(&burst) {
        return SHOWN.contains(&ending);
    }
    key == format!("delete_{n_pods}") || SHOWN.contains(&key)
}

fn rect(out: &mut String, class: &str, (x, y): (f64, f64), width: f64) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{x:.0}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" rx=\"2\"/>"
    );
}

fn text(out: &mut String, class: &str, (x, y): (f64, f64), words: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(out, "<text{class} x=\"{x:.0}\" y=\"{y:.0}\">{}</text>", escape(words));
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::score::tests::sample;
    use super::*;

    #[test]
    fn each_row_that_holds_has_two_bars_and_noisy_ones_are_named() {
        let chart = svg(&sample(), 100);
        // Two bars for the start, two squares for the legend.
        assert_eq!(chart.matches("<rect").count(), 4);
        assert!(chart.contains("class=\"upstream\" x=\"300\" y=\"72\" width=\"330.0\""));
        assert!(chart.contains("class=\"ours\" x=\"300\" y=\"56\" width=\"103.1\""));
        assert!(chart.contains("too noisy to show: burst of 100, create to Ready, p50"));
        assert_eq!(chart.matches("<text").count(), chart.matches("</text>").count());
    }

    #[test]
    fn words_cannot_break_the_picture() {
        assert_eq!(escape("a < b & c > d"), "a &lt; b &amp; c &gt; d");
    }
}
