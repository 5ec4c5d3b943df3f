//! Spans as they open and close: which are traced, whose child each is, and what is known of it.
//!
//! A span without a parent begins a trace, or does not: so many in a million do. Its children follow it. Fields become attributes; three
//! have a meaning of their own: `otel.name` is the span's name, `otel.kind` says `client`, `otel.error` makes it a failure.

use std::fmt::Debug;
use std::sync::Arc;

use ferrolet_ports::{Clock, TRACED};
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
        Self {
            per_million,
            clock,
            ended,
        }
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
            Some(
                open.0
                    .as_ref()
                    .map(|it| (it.trace_id.clone(), it.span_id.clone())),
            )
        });
        let family = match parent {
            Some(Some((trace, parent))) => Some((trace, parent)),
            Some(None) => None,
            None => self
                .is_chosen()
                .then(|| (fastrand::u128(1..).to_be_bytes().to_vec(), Vec::new())),
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
            "otel.kind" => self.0.kind = Kind::Client.into(),
            "otel.error" => {
                self.0.status = Some(Status {
                    message: text.to_owned(),
                    code: Code::Error.into(),
                });
            }
            _ => self.add(field, Value::Text(text.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::Number(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(
            field,
            Value::Number(i64::try_from(value).unwrap_or(i64::MAX)),
        );
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Truth(value));
    }
}
