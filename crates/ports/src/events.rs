//! What the node says about its pods and itself.

use std::collections::BTreeMap;

use ferrolet_types::{PodKey, PodUid};

/// One thing that happened, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub object: EventObject,
    /// Good or bad.
    pub kind: EventKind,
    /// One word from upstream's list.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventObject {
    /// A pod, or one of its containers.
    Pod {
        /// Its identity.
        uid: PodUid,
        /// Its namespace and name.
        key: PodKey,
        /// `spec.containers{name}` and its like, when it is about one container.
        field_path: Option<String>,
    },
    /// The node itself.
    Node,
}

/// Good or bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// As expected.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Takes events; never blocks and never fails, since nothing depends on an event being delivered.
pub trait Events: Send + Sync {
    /// Records one event.
    fn record(&self, event: Event);

    /// Records one event with annotations for programs that read events. Whoever only shows events
    /// has no use for them.
    fn record_annotated(&self, event: Event, annotations: BTreeMap<String, String>) {
        let _ = annotations;
        self.record(event);
    }
}
