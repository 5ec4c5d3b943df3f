//! Our own log and our own traces.

use std::time::Duration;

use serde_json::Value;

use super::reader::{Reader, words};

words! {
    /// How log lines look.
    LogFormat {
        /// Upstream's text.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

/// Another verbosity for some source files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbosityRule {
    /// Which files.
    pub file_pattern: String,
    /// How talkative they are.
    pub verbosity: u32,
}

/// Where lines of one format go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOutput {
    /// Errors to one stream, the rest to the other.
    pub split_stream: bool,
    /// Bytes of buffer for the rest.
    pub info_buffer_size: u64,
}

/// Everything about our log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// How lines look.
    pub format: LogFormat,
    /// How long a line may sit in a buffer.
    pub flush_frequency: Duration,
    /// How talkative we are.
    pub verbosity: u32,
    /// Exceptions from that.
    pub rules: Vec<VerbosityRule>,
    /// Output of the text format.
    pub text: LogOutput,
    /// Output of the JSON format.
    pub json: LogOutput,
}

pub(super) fn read_logging(r: &Reader<'_>) -> Logging {
    let format = r.word("logging.format");
    let rules = read_rules(r);
    if format == LogFormat::Json {
        r.needs_gate("logging.format", "LoggingBetaOptions");
        if !rules.is_empty() {
            r.refuse("logging.vmodule", "works with the text format only");
        }
    }
    Logging {
        format,
        flush_frequency: r.period("logging.flushFrequency"),
        verbosity: r.within("logging.verbosity", 0..=i64::from(i32::MAX)),
        rules,
        text: read_output(r, "logging.options.text"),
        json: read_output(r, "logging.options.json"),
    }
}

fn read_rules(r: &Reader<'_>) -> Vec<VerbosityRule> {
    let items = r.get("logging.vmodule").and_then(Value::as_array).into_iter().flatten();
    let rules = items.enumerate().map(|(i, item)| {
        let pattern = item.get("filePattern").and_then(Value::as_str).unwrap_or_default();
        let verbosity = item.get("verbosity").and_then(Value::as_i64).unwrap_or(0);
        if pattern.is_empty() || pattern.contains(['=', ',']) {
            let message = "must not be empty and must hold neither = nor a comma";
            r.fault(&format!("logging.vmodule[{i}].filePattern"), format!("{pattern:?}"), message);
        }
        if verbosity > i64::from(i32::MAX) {
            r.fault(
                &format!("logging.vmodule[{i}].verbosity"),
                verbosity,
                format!("must not be more than {}", i32::MAX),
            );
        }
        VerbosityRule {
            file_pattern: pattern.to_owned(),
            verbosity: u32::try_from(verbosity).unwrap_or(0),
        }
    });
    rules.collect()
}

fn read_output(r: &Reader<'_>, path: &str) -> LogOutput {
    let (split, buffer) = (format!("{path}.splitStream"), format!("{path}.infoBufferSize"));
    let size = r.quantity(&buffer, &r.text(&buffer)).value();
    for (path, used) in [(&split, r.flag(&split)), (&buffer, size != 0)] {
        if used {
            r.needs_gate(path, "LoggingAlphaOptions");
        }
    }
    LogOutput { split_stream: r.flag(&split), info_buffer_size: u64::try_from(size).unwrap_or(0) }
}

/// Where traces go, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// The collector.
    pub endpoint: String,
    /// How many of a million requests are traced for their own sake.
    pub sampling_rate_per_million: u32,
}

pub(super) fn read_tracing(r: &Reader<'_>) -> Option<Tracing> {
    r.get("tracing")?;
    let endpoint = r.optional_text("tracing.endpoint");
    let scheme = endpoint
        .as_deref()
        .and_then(|endpoint| endpoint.split_once("//"))
        .map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| !["dns:", "unix:", "unix-abstract:"].contains(&scheme)) {
        r.refuse("tracing.endpoint", "must have no scheme, or one of dns, unix, unix-abstract");
    }
    Some(Tracing {
        endpoint: endpoint.unwrap_or_else(|| "localhost:4317".to_owned()),
        sampling_rate_per_million: r.within("tracing.samplingRatePerMillion", 0..=1_000_000),
    })
}
