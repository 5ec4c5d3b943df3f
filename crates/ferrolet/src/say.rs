//! Events of a node without an API server: they go to the log. And how the log itself feels.

use ferrolet_ports::{Event, EventKind, EventObject, Events, HealthCheck};

/// Writes events to the log.
pub(crate) struct LogEvents;

impl Events for LogEvents {
    fn record(&self, event: Event) {
        let Event { object, kind, reason, message } = event;
        let (object, field) = match object {
            EventObject::Pod { key, field_path, .. } => (key.to_string(), field_path),
            EventObject::Node => ("node".to_owned(), None),
        };
        match kind {
            EventKind::Normal => tracing::info!(object, field, reason, message, "Event occurred"),
            EventKind::Warning => tracing::warn!(object, field, reason, message, "Event occurred"),
        }
    }
}

/// The check `log` of upstream's list, which asks whether lines are stuck in a buffer. Here each is
/// written as it comes, or, where a buffer was asked for, when the loop beside it says so.
pub(crate) struct LogMoves;

impl HealthCheck for LogMoves {
    fn name(&self) -> &'static str {
        "log"
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}
