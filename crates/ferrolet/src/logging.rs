//! The agent's own log, in upstream's two formats.
//!
//! In: tracing events. Out: one line each, as a rule to standard error, either klog's text
//! (`I1115 21:19:18.123456   12345 file.rs:123] "Message" pod="ns/name"`) or JSON
//! (`{"ts":1763241558123.456,"caller":"file.rs:123","msg":"Message","v":0,"pod":"ns/name"}`, milliseconds as upstream has them).
//! Fields of the spans around an event come before its own, as klog's `WithValues` does; an error is printed with its whole
//! chain of causes.
//!
//! Verbosity is klog's: warnings and errors always appear, other events when their `v` is at most
//! the threshold (`-v N`), or that of their source file (`--vmodule`). An event says its `v` as a field, which is not printed; without one,
//! info counts as 0, debug as 4 and trace as 6. What other people's crates say counts 4 more, so
//! that `-v 6` is about pods and not about HTTP frames.
//!
//! Spans with the target [`TRACED`] are for traces: with a layer for those in place they are
//! opened, without one they are not, and they never appear here.
//!
//! Refuses: files, rotation: whoever runs the agent owns its streams.

use std::error::Error;
use std::fmt::{Debug, Write as _};

use ferrolet_ports::TRACED;
use ferrolet_traces::TraceLayer;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tracing::field::{Field, Visit};
use tracing::subscriber::{Interest, SetGlobalDefaultError};
use tracing::{Event, Level, Metadata, Subscriber, span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

mod control;
mod streams;
#[cfg(test)]
mod tests;

pub use control::{LogControl, Rule};
pub use streams::{LogStreams, Parting};

/// The field that carries an event's verbosity; never printed.
const VERBOSITY_FIELD: &str = "v";
/// Events of our own crates have targets that begin so.
const OWN_TARGET: &str = "ferrolet";

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// klog's text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Sends every event of this process to these streams from now on. Call it once, first thing.
pub fn init(
    control: &LogControl,
    streams: &LogStreams,
    traces: Option<TraceLayer>,
) -> Result<(), SetGlobalDefaultError> {
    let zone = TimeZone::system();
    let now = move || Timestamp::now().to_zoned(zone.clone());
    let mut log = Log::new(control.clone(), now, streams.clone());
    let registry = tracing_subscriber::registry();
    match traces {
        None => tracing::subscriber::set_global_default(registry.with(log)),
        Some(traces) => {
            log.has_traces = true;
            tracing::subscriber::set_global_default(registry.with(log).with(traces))
        }
    }
}

/// The layer that writes lines.
pub struct Log {
    control: LogControl,
    pid: u32,
    now: Box<dyn Fn() -> Zoned + Send + Sync>,
    streams: LogStreams,
    /// Somebody else wants the spans of traces.
    has_traces: bool,
}

impl Log {
    /// A log that asks `now` for the time, in the zone that text lines are to show, and writes to
    /// `streams`.
    pub fn new(
        control: LogControl,
        now: impl Fn() -> Zoned + Send + Sync + 'static,
        streams: LogStreams,
    ) -> Self {
        Self { control, pid: std::process::id(), now: Box::new(now), streams, has_traces: false }
    }

    fn is_loud_enough(&self, metadata: &Metadata<'_>, fields: &Fields) -> bool {
        let is_always = *metadata.level() <= Level::WARN;
        is_always || self.control.hears(verbosity_of(metadata, fields), metadata.file())
    }
}

/// What an event counts as: its own word, else by level, else by origin.
fn verbosity_of(metadata: &Metadata<'_>, fields: &Fields) -> u64 {
    if let Some(v) = fields.verbosity {
        return v;
    }
    let by_level = match *metadata.level() {
        Level::TRACE => 6,
        Level::DEBUG => 4,
        Level::INFO | Level::WARN | Level::ERROR => 0,
    };
    if metadata.target().starts_with(OWN_TARGET) { by_level } else { by_level + 4 }
}

impl<S> Layer<S> for Log
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target() == TRACED {
            // A word of this layer is law for all of them.
            return if self.has_traces { Interest::always() } else { Interest::never() };
        }
        // An event with a verbosity of its own is judged when it happens; all others once and for
        // all, here.
        let has_verbosity = metadata.fields().field(VERBOSITY_FIELD).is_some();
        if has_verbosity || self.is_loud_enough(metadata, &Fields::default()) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        if attributes.metadata().target() == TRACED {
            return;
        }
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut own = Fields::default();
        event.record(&mut own);
        if !self.is_loud_enough(event.metadata(), &own) {
            return;
        }
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|it| it.from_root()) {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.absorb(outer.clone());
            }
        }
        fields.absorb(own);
        let line = match self.control.format() {
            Format::Text => text_line(event.metadata(), &fields, &(self.now)(), self.pid),
            Format::Json => json_line(event.metadata(), &fields, &(self.now)()),
        };
        self.streams.write(*event.metadata().level(), &line);
    }
}

/// What an event or a span says, in order.
#[derive(Clone, Default)]
struct Fields {
    message: String,
    verbosity: Option<u64>,
    pairs: Vec<(&'static str, Value)>,
}

/// A field's value: words are quoted in both formats, numbers and truths in neither.
#[derive(Clone)]
enum Value {
    Words(String),
    Plain(String),
}

impl Fields {
    /// Sets a field; a later word of the same name replaces the earlier one in its place.
    fn set(&mut self, name: &'static str, value: Value) {
        match self.pairs.iter_mut().find(|(it, _)| *it == name) {
            Some((_, old)) => *old = value,
            None => self.pairs.push((name, value)),
        }
    }

    fn absorb(&mut self, inner: Self) {
        self.message = inner.message;
        self.verbosity = inner.verbosity;
        for (name, value) in inner.pairs {
            self.set(name, value);
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            name => self.set(name, Value::Words(value.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        let mut chain = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let _ = write!(chain, ": {error}");
            cause = error.source();
        }
        self.record_str(field, &chain);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            VERBOSITY_FIELD => self.verbosity = Some(value),
            name => self.set(name, Value::Plain(value.to_string())),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match (field.name(), u64::try_from(value)) {
            // A bare number in an event is signed.
            (VERBOSITY_FIELD, value) => self.verbosity = Some(value.unwrap_or(0)),
            (name, _) => self.set(name, Value::Plain(value.to_string())),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), Value::Plain(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no word for the infinite.
        let text = value.to_string();
        let value = if value.is_finite() { Value::Plain(text) } else { Value::Words(text) };
        self.set(field.name(), value);
    }
}

/// `file.rs:12` of the place that logged.
fn caller(metadata: &Metadata<'_>) -> String {
    let file = metadata.file().unwrap_or("???");
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("{name}:{}", metadata.line().unwrap_or(0))
}

/// klog's line. An error comes first among the fields, and text of several lines keeps them.
fn text_line(metadata: &Metadata<'_>, fields: &Fields, now: &Zoned, pid: u32) -> String {
    let severity = match *metadata.level() {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        Level::INFO | Level::DEBUG | Level::TRACE => 'I',
    };
    let mut line = format!(
        "{severity}{:02}{:02} {:02}:{:02}:{:02}.{:06} {pid:>7} {}] {}",
        now.month(),
        now.day(),
        now.hour(),
        now.minute(),
        now.second(),
        now.subsec_nanosecond() / 1000,
        caller(metadata),
        quoted(&fields.message),
    );
    let is_error = |(name, _): &&(&'static str, Value)| *name == "err";
    let errors = fields.pairs.iter().filter(is_error);
    let others = fields.pairs.iter().filter(|it| !is_error(it));
    for (name, value) in errors.chain(others) {
        let _ = match value {
            Value::Plain(text) => write!(line, " {name}={text}"),
            Value::Words(text) if text.contains('\n') => {
                let block = text.trim_end_matches('\n').replace('\n', "\n\t");
                write!(line, " {name}=<\n\t{block}\n >")
            }
            Value::Words(text) => write!(line, " {name}={}", quoted(text)),
        };
    }
    line.push('\n');
    line
}

/// Text in quotes, as Go writes it: what a terminal could take for a command is spelt out.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        let _ = match letter {
            '"' | '\\' => write!(quoted, "\\{letter}"),
            '\n' => write!(quoted, "\\n"),
            '\r' => write!(quoted, "\\r"),
            '\t' => write!(quoted, "\\t"),
            '\0'..='\x1f' | '\x7f' => write!(quoted, "\\x{:02x}", u32::from(letter)),
            _ if letter.is_control() => write!(quoted, "\\u{:04x}", u32::from(letter)),
            _ => write!(quoted, "{letter}"),
        };
    }
    quoted.push('"');
    quoted
}

/// One JSON object. As upstream's, it has `v` unless it is an error, and an error's cause at the
/// end.
fn json_line(metadata: &Metadata<'_>, fields: &Fields, now: &Zoned) -> String {
    let mut line = format!(
        r#"{{"ts":{},"caller":{},"msg":{}"#,
        milliseconds(now.timestamp()),
        json_text(&caller(metadata)),
        json_text(&fields.message),
    );
    if *metadata.level() != Level::ERROR {
        let _ = write!(line, r#","v":{}"#, verbosity_of(metadata, fields));
    }
    let is_error = |(name, _): &&(&'static str, Value)| *name == "err";
    let errors = fields.pairs.iter().filter(is_error);
    let others = fields.pairs.iter().filter(|it| !is_error(it));
    for (name, value) in others.chain(errors) {
        let _ = match value {
            Value::Plain(text) => write!(line, ",{}:{text}", json_text(name)),
            Value::Words(text) => write!(line, ",{}:{}", json_text(name), json_text(text)),
        };
    }
    line.push_str("}\n");
    line
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Milliseconds since the epoch, with a fraction down to the microsecond and no idle zeros.
fn milliseconds(time: Timestamp) -> String {
    let micros = time.as_microsecond();
    let (whole, rest) = (micros.div_euclid(1000), micros.rem_euclid(1000));
    match rest {
        0 => whole.to_string(),
        _ => format!("{whole}.{}", format!("{rest:03}").trim_end_matches('0')),
    }
}
