//! What happened to a pod, in upstream's words: the one place where the events of workers are
//! phrased.

use ferrolet_lifecycle::{Hold, StepEvent};
use ferrolet_pod::{EndReason, Ending, WaitingReason, kind_of_container};
use ferrolet_ports::{Event, EventKind, EventObject, Events, HookMoment};
use ferrolet_types::{
    ContainerName, Pod, PodKey, PodUid,
    pod::{ContainerKind, PodView},
};

use crate::{World, resizing::Said};

/// Says things about one container.
pub(crate) struct ContainerEvents<'a> {
    events: &'a dyn Events,
    uid: PodUid,
    key: PodKey,
    field_path: Option<String>,
}

/// Something that happened to a container.
#[derive(Clone, Debug)]
pub(crate) enum Happened {
    ImagePresent {
        image: String,
        /// Whether the pod had to prove that it may use it.
        is_checked: bool,
    },
    Pulling(String),
    StillPulling(String),
    Pulled {
        image: String,
        took: String,
        with_wait: String,
        size: u64,
    },
    PullFailed(String),
    InspectFailed(String),
    NeverPull(String),
    Failed(String),
    Created,
    Started,
    Killing(String),
    RestartBackOff(String),
    PullBackOff(String),
    HookFailed(HookMoment),
}

impl<'a> ContainerEvents<'a> {
    pub(crate) fn new(
        events: &'a dyn Events,
        pod: &Pod,
        kind: ContainerKind,
        container: &str,
    ) -> Self {
        let list = match kind {
            ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
            ContainerKind::Regular => "containers",
            ContainerKind::Ephemeral => "ephemeralContainers",
        };
        Self {
            events,
            uid: pod.uid(),
            key: pod.key(),
            field_path: Some(format!("spec.{list}{{{container}}}")),
        }
    }

    /// Says things about a container whose pod is known by its name only.
    pub(crate) fn of_orphan(
        events: &'a dyn Events,
        (uid, key): (&PodUid, &PodKey),
        container: &str,
    ) -> Self {
        Self {
            events,
            uid: uid.clone(),
            key: key.clone(),
            field_path: Some(format!("spec.containers{{{container}}}")),
        }
    }

    /// Says the same things about the pod as a whole: the images of its volumes belong to no
    /// container.
    pub(crate) fn of_pod(events: &'a dyn Events, pod: &Pod) -> Self {
        Self { events, uid: pod.uid(), key: pod.key(), field_path: None }
    }

    pub(crate) fn say(&self, happened: Happened) {
        use EventKind::{Normal, Warning};
        let (kind, reason, message) = match happened {
            Happened::ImagePresent { image, is_checked } => {
                let more = if is_checked { " and can be accessed by the pod" } else { "" };
                let message = format!("Container image {image:?} already present on machine{more}");
                (Normal, "Pulled", message)
            }
            Happened::StillPulling(message) => (Normal, "Pulling", message),
            Happened::Pulling(image) => (Normal, "Pulling", format!("Pulling image {image:?}")),
            Happened::Pulled { image, took, with_wait, size } => {
                let message = format!(
                    "Successfully pulled image {image:?} in {took} ({with_wait} including waiting). Image size: {size} bytes."
                );
                (Normal, "Pulled", message)
            }
            Happened::PullFailed(message) => (Warning, "Failed", message),
            Happened::InspectFailed(message) => (Warning, "InspectFailed", message),
            Happened::NeverPull(message) => (Warning, "ErrImageNeverPull", message),
            Happened::Failed(cause) => (Warning, "Failed", format!("Error: {cause}")),
            Happened::Created => (Normal, "Created", "Container created".to_owned()),
            Happened::Started => (Normal, "Started", "Container started".to_owned()),
            Happened::Killing(message) => (Normal, "Killing", message),
            Happened::RestartBackOff(message) => (Warning, "BackOff", message),
            Happened::PullBackOff(message) => (Normal, "BackOff", message),
            Happened::HookFailed(moment) => {
                (Warning, moment.failure_reason(), moment.failure_message().to_owned())
            }
        };
        self.events.record(Event {
            object: EventObject::Pod {
                uid: self.uid.clone(),
                key: self.key.clone(),
                field_path: self.field_path.clone(),
            },
            kind,
            reason: reason.to_owned(),
            message,
        });
    }
}

/// Says something about a pod as a whole.
pub(crate) fn say_of_pod(
    events: &dyn Events,
    pod: &Pod,
    kind: EventKind,
    reason: &str,
    message: String,
) {
    events.record(of_pod(pod, kind, reason, message));
}

fn of_pod(pod: &Pod, kind: EventKind, reason: &str, message: String) -> Event {
    Event {
        object: EventObject::Pod { uid: pod.uid(), key: pod.key(), field_path: None },
        kind,
        reason: reason.to_owned(),
        message,
    }
}

/// Says what a step gives to tell.
pub(crate) fn say_step(events: &dyn Events, pod: &Pod, event: &StepEvent) {
    let of = |container: &ContainerName| {
        let kind = kind_of_container(pod, container.as_str());
        ContainerEvents::new(events, pod, kind, container.as_str())
    };
    match event {
        StepEvent::Ends(Ending { reason, message, annotations, .. }) => {
            let kind = match reason {
                EndReason::DeadlineExceeded => EventKind::Normal,
                // That the machine goes down is said of the node, not of each pod.
                EndReason::Terminated => return,
                EndReason::Evicted | EndReason::Preempting | EndReason::Other(_) => {
                    EventKind::Warning
                }
            };
            let event = of_pod(pod, kind, reason.as_str(), message.clone());
            events.record_annotated(event, annotations.clone());
        }
        StepEvent::RestartBackOff { container } => {
            of(container).say(Happened::RestartBackOff(format!(
                "Back-off restarting failed container {container} in pod {}",
                pod_in_words(pod)
            )));
        }
        StepEvent::PullBackOff { container, image } => {
            let tell = of(container);
            tell.say(Happened::PullBackOff(format!("Back-off pulling image {image:?}")));
            tell.say(Happened::Failed(WaitingReason::ImagePullBackOff.to_string()));
        }
        StepEvent::Held(Hold::NetworkNotReady(trouble)) => {
            let message = format!("network is not ready: {trouble}");
            say_of_pod(events, pod, EventKind::Warning, "NetworkNotReady", message);
        }
    }
}

/// Says how far a pod's resize is.
pub(crate) fn say_resize(world: &World, pod: &Pod, said: Said) {
    let kind = if said.is_warning { EventKind::Warning } else { EventKind::Normal };
    say_of_pod(world.events.as_ref(), pod, kind, said.reason, said.message);
}

/// A pod in event messages: `name_namespace(uid)`.
fn pod_in_words(pod: &Pod) -> String {
    let key = pod.key();
    format!("{}_{}({})", key.name, key.namespace, pod.uid())
}
