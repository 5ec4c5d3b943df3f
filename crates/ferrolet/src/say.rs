//! Events of a node without an API server: they go to the log.

use ferrolet_ports::{Event, EventKind, EventObject, Events};

/// Writes events to the log.
pub(crate) struct LogEvents;

impl Events for LogEvents {
    fn record(&self, event: Event) {
        let Event {
            object,
            kind,
            reason,
            message,
        } = event;
        let (object, field) = match object {
            EventObject::Pod {
                key, field_path, ..
            } => (key.to_string(), field_path),
            EventObject::Node => ("node".to_owned(), None),
        };
        match kind {
            EventKind::Normal => tracing::info!(object, field, reason, message, "Event occurred"),
            EventKind::Warning => tracing::warn!(object, field, reason, message, "Event occurred"),
        }
    }
}
