//! What the probes and hooks tell people, in upstream's words.

use ferrolet_ports::{Event, EventKind, EventObject};
use ferrolet_types::Pod;
use ferrolet_types::pod::{ContainerKind, PodView as _};

use crate::plan::Target;
use crate::prober::Outcome;

/// The event that follows from an outcome; a success goes without saying.
pub(crate) fn of_probe(target: &Target, outcome: &Outcome) -> Option<Event> {
    let kind = target.kind_in_words();
    let (reason, message) = match outcome {
        Outcome::Success => return None,
        Outcome::Warning(output) => ("ProbeWarning", format!("{kind} probe warning: {output}")),
        Outcome::Failure(output) => ("Unhealthy", format!("{kind} probe failed: {output}")),
        Outcome::Error { state, cause } => {
            let message = format!("{kind} probe errored and resulted in {state} state: {cause}");
            ("Unhealthy", message)
        }
    };
    let found = target.pod.find_container(target.container.as_str());
    let list = match found?.0 {
        ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
        ContainerKind::Regular | ContainerKind::Ephemeral => "containers",
    };
    let field_path = format!("spec.{list}{{{}}}", target.container);
    Some(warning(&target.pod, Some(field_path), reason, message))
}

/// A warning about a pod or a part of it.
pub(crate) fn warning(
    pod: &Pod,
    field_path: Option<String>,
    reason: &str,
    message: String,
) -> Event {
    Event {
        object: EventObject::Pod { uid: pod.uid(), key: pod.key(), field_path },
        kind: EventKind::Warning,
        reason: reason.to_owned(),
        message,
    }
}

/// A pod in messages: `name_namespace(uid)`.
pub(crate) fn pod_in_words(pod: &Pod) -> String {
    let key = pod.key();
    format!("{}_{}({})", key.name, key.namespace, pod.uid())
}
