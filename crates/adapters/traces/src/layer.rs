//! Spans as they open and close: which are traced, whose child each is, and what is known of it.
//!
//! A span without a parent begins a trace, or does not: so many in a million do. Its children
//! follow it. Fields become attributes; four have a meaning of their own: `otel.name` is the span's
//! name, `otel.kind` says `client` or `server`, `otel.error` makes it a failure, and `traceparent`
//! joins it with spans of other processes: as text it names a parent elsewhere, which also decides
//! whether there is a trace; as a [`TraceParent`] it is filled in for children elsewhere.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use ferrolet_ports::{Clock, TRACE_PARENT, TRACED, TraceParent};
use tokio::sync::mpsc;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::proto::{AnyValue, KeyValue, Span, Status, any_value::Value, span::Kind, status::Code};

const MILLION: u32 = 1_000_000;

/// Turns spans into what is sent.
pub struct TraceLayer {
    per_million: u32,
    clock: Arc<dyn Clock>,
    ended: mpsc::Sender<Span>,
}

/// A span that is open; without one inside it is not traced, and neither are its children.
struct Open(Option<Box<Span>>);

impl TraceLayer {
    pub(crate) fn new(per_million: u32, clock: Arc<dyn Clock>, ended: mpsc::Sender<Span>) -> Self {
        Self { per_million, clock, ended }
    }

    fn now(&self) -> u64 {
        let nanos = self.clock.now().0.as_nanosecond();
        u64::try_from(nanos).unwrap_or_default()
    }

    fn is_chosen(&self) -> bool {
        fastrand::u32(..MILLION) < self.per_million
    }
}

impl<S> Layer<S> for TraceLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().target() != TRACED {
            return;
        }
        let parent = match attributes.parent() {
            Some(parent) => context.span(parent),
            None if attributes.is_contextual() => context.lookup_current(),
            None => None,
        };
        let parent = parent.and_then(|parent| {
            let open = parent.extensions();
            let open = open.get::<Open>()?;
            Some(open.0.as_ref().map(|it| (it.trace_id.clone(), it.span_id.clone())))
        });
        let family = match parent {
            Some(Some((trace, parent))) => Some((trace, parent)),
            Some(None) => None,
            None => match remote_parent(attributes) {
                Some(remote) => remote.is_traced.then_some((remote.trace, remote.span)),
                None => self
                    .is_chosen()
                    .then(|| (fastrand::u128(1..).to_be_bytes().to_vec(), Vec::new())),
            },
        };
        let open = family.map(|(trace_id, parent_span_id)| {
            let mut span = Span {
                trace_id,
                span_id: fastrand::u64(1..).to_be_bytes().to_vec(),
                parent_span_id,
                name: attributes.metadata().name().to_owned(),
                kind: Kind::Internal.into(),
                start_time_unix_nano: self.now(),
                ..Span::default()
            };
            attributes.record(&mut Noted(&mut span));
            Box::new(span)
        });
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Open(open));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(Open(Some(open))) = span.extensions_mut().get_mut::<Open>()
        {
            values.record(&mut Noted(open));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else {
            return;
        };
        let open = span.extensions_mut().remove::<Open>();
        if let Some(Open(Some(mut open))) = open {
            open.end_time_unix_nano = self.now();
            // A collector that is slower than we are does not hear everything.
            let _ = self.ended.try_send(*open);
        }
    }
}

/// A parent in another process.
#[derive(Debug, PartialEq, Eq)]
struct Remote {
    trace: Vec<u8>,
    span: Vec<u8>,
    is_traced: bool,
}

impl Remote {
    /// `00-` 32 digits `-` 16 digits `-` flags, of which the last bit says that the parent is
    /// traced. What is not that is ignored.
    fn read(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.trim().split('-').collect();
        let [version, trace, span, flags, ..] = parts[..] else {
            return None;
        };
        // A later version may say more, this one may not.
        if version == "ff" || (version == "00" && parts.len() != 4) {
            return None;
        }
        let (version, flags) = (bytes(version)?, bytes(flags)?);
        let (trace, span) = (bytes(trace)?, bytes(span)?);
        let is_whole = [version.len(), trace.len(), span.len(), flags.len()] == [1, 16, 8, 1];
        let is_named = [&trace, &span].iter().all(|it| it.iter().any(|b| *b != 0));
        (is_whole && is_named).then(|| Self { is_traced: flags[0] & 1 == 1, trace, span })
    }
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(is_hex) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn remote_parent(attributes: &Attributes<'_>) -> Option<Remote> {
    struct Find(Option<Remote>);
    impl Visit for Find {
        fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
        fn record_str(&mut self, field: &Field, text: &str) {
            if field.name() == TRACE_PARENT {
                self.0 = Remote::read(text);
            }
        }
    }
    let mut find = Find(None);
    attributes.record(&mut find);
    find.0
}

/// Writes fields into a span.
struct Noted<'a>(&'a mut Span);

impl Noted<'_> {
    fn add(&mut self, field: &Field, value: Value) {
        let key = field.name().to_owned();
        let value = Some(AnyValue { value: Some(value) });
        self.0.attributes.push(KeyValue { key, value });
    }
}

impl Visit for Noted<'_> {
    fn record_str(&mut self, field: &Field, text: &str) {
        match field.name() {
            "otel.name" => text.clone_into(&mut self.0.name),
            "otel.kind" if text == "server" => self.0.kind = Kind::Server.into(),
            "otel.kind" => self.0.kind = Kind::Client.into(),
            // Read when the span began.
            TRACE_PARENT => {}
            "otel.error" => {
                self.0.status = Some(Status { message: text.to_owned(), code: Code::Error.into() });
            }
            _ => self.add(field, Value::Text(text.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        match value.downcast_ref::<TraceParent>() {
            Some(place) => {
                let (trace, span) = (digits(&self.0.trace_id), digits(&self.0.span_id));
                place.set(format!("00-{trace}-{span}-01"));
            }
            None => self.record_debug(field, &format_args!("{value}")),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::Number(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::Number(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Truth(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_elsewhere_are_read_as_w3c_writes_them() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let check = |text: &str, expected: Option<bool>| {
            let read = Remote::read(text);
            assert_eq!(read.map(|it| it.is_traced), expected, "{text}");
        };
        check(&format!("00-{trace}-b7ad6b7169203331-01"), Some(true));
        check(&format!("00-{trace}-b7ad6b7169203331-00"), Some(false));
        check(&format!("01-{trace}-b7ad6b7169203331-01-more"), Some(true));
        for wrong in [
            String::new(),
            "00".to_owned(),
            format!("00-{trace}-b7ad6b7169203331"),
            format!("00-{trace}-b7ad6b7169203331-01-more"),
            format!("ff-{trace}-b7ad6b7169203331-01"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
            format!("00-{trace}aa-b7ad6b7169203331-01"),
            "00-\u{e9}-b7ad6b7169203331-01".to_owned(),
        ] {
            check(&wrong, None);
        }
    }
}
