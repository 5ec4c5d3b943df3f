//! One look at the node's resolver at start, so that people learn of its faults before pods do.

use std::path::Path;

use ferrolet_ports::{Event, EventKind, EventObject, Events, NodeNames};
use ferrolet_spec::check_resolv_conf;

/// Warns about a `resolvConf` that cannot be read, or that says more than pods can carry. Pods that
/// need it are told again, each when it starts; the agent runs on.
pub async fn check_resolver(path: &Path, domain: &str, names: &dyn NodeNames, events: &dyn Events) {
    let read = names.resolver().await.map_err(|error| error.to_string());
    let read = match &read {
        Ok(text) => Ok(text.as_deref().unwrap_or_default()),
        Err(cause) => Err(cause.as_str()),
    };
    if let Some(notice) = check_resolv_conf(read, &path.display().to_string(), domain) {
        tracing::warn!(path = %path.display(), message = notice.message, "The node's resolver is not as it should be");
        events.record(Event {
            object: EventObject::Node,
            kind: EventKind::Warning,
            reason: notice.reason.to_owned(),
            message: notice.message,
        });
    }
}
