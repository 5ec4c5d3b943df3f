//! What to do with an event in view of those before it. Pure: events and times in, verdicts out.
//!
//! Three steps, as in client-go: similar events (same but for the message) are combined once there
//! are ten within ten minutes; equal ones are counted up instead of created; and an object that
//! still says too much is cut off (25 at once, then one every five minutes). Memory is bounded: so
//! many entries of fixed size.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use ferrolet_types::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::{Value, json};

use super::{lru::Lru, object};
use crate::rate::Bucket;

const ENTRIES: usize = 4096;
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
const SPAM_BURST: u32 = 25;
const SPAM_PER_SECOND: f64 = 1.0 / 300.0;
const COMBINED: &str = "(combined from similar events): ";

/// What to do.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Create it.
    Create { event: Event, key: u64 },
    /// It is there already: patch it; if it is not there any more, create it.
    Patch { event: Event, patch: Value, key: u64 },
    /// Nothing: too much was said about this object.
    Drop,
}

/// What is remembered.
#[derive(Debug)]
pub(super) struct Correlator {
    similar: Lru<Similar>,
    observed: Lru<Observed>,
    spam: Lru<Bucket>,
    origin: Option<Timestamp>,
}

#[derive(Debug)]
struct Similar {
    messages: BTreeSet<u64>,
    last: Timestamp,
}

#[derive(Clone, Debug)]
struct Observed {
    count: i32,
    first: Option<Time>,
    name: Option<String>,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self {
            similar: Lru::new(ENTRIES),
            observed: Lru::new(ENTRIES),
            spam: Lru::new(ENTRIES),
            origin: None,
        }
    }

    /// Judges an event that happened at `now`.
    pub(super) fn correlate(&mut self, event: Event, now: Timestamp) -> Verdict {
        let (event, key) = self.combine(event, now);
        let (event, patch) = self.observe(event, key);
        // Filtered last, so that counts stay true even for what is not sent.
        if self.is_spam(&event, now) {
            return Verdict::Drop;
        }
        match patch {
            Some(patch) => Verdict::Patch { event, patch, key },
            None => Verdict::Create { event, key },
        }
    }

    /// The server has stored it like this.
    pub(super) fn stored(&mut self, key: u64, event: &Event) {
        self.observed.insert(key, observation(event));
    }

    /// Replaces the event by a combined one if there were many like it.
    fn combine(&mut self, event: Event, now: Timestamp) -> (Event, u64) {
        let group = hash(&event, Detail::Reason);
        let message = hash(&event, Detail::Everything);
        let recent = self.similar.get(group);
        let recent = recent.filter(|similar| now.since(similar.last) <= SIMILAR_WITHIN);
        let n_messages = match recent {
            Some(similar) => {
                similar.last = now;
                similar.messages.insert(message);
                let n_messages = similar.messages.len();
                if n_messages >= SIMILAR {
                    similar.messages.pop_first();
                }
                n_messages
            }
            None => {
                let messages = BTreeSet::from([message]);
                let last = now;
                self.similar.insert(group, Similar { messages, last });
                1
            }
        };
        if n_messages < SIMILAR {
            return (event, message);
        }
        (combined(event, now), group)
    }

    /// Counts the event up if an equal one was seen.
    fn observe(&mut self, mut event: Event, key: u64) -> (Event, Option<Value>) {
        let last = self.observed.get(key).cloned();
        let patch = last.map(|last| {
            event.metadata.name = last.name;
            event.first_timestamp = last.first;
            event.count = Some(last.count.saturating_add(1));
            json!({
                "count": event.count,
                "lastTimestamp": event.last_timestamp,
                "message": event.message,
            })
        });
        self.observed.insert(key, observation(&event));
        (event, patch)
    }

    fn is_spam(&mut self, event: &Event, now: Timestamp) -> bool {
        let key = hash(event, Detail::Object);
        let passed = now.since(*self.origin.get_or_insert(now));
        if let Some(bucket) = self.spam.get(key) {
            return !bucket.try_take(passed);
        }
        let mut bucket = Bucket::new(SPAM_PER_SECOND, SPAM_BURST);
        let is_spam = !bucket.try_take(passed);
        self.spam.insert(key, bucket);
        is_spam
    }
}

/// One event for many: with the newest message, under a name of its own.
fn combined(event: Event, now: Timestamp) -> Event {
    let object = event.involved_object.name.as_deref().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            name: Some(object::name(object, now)),
            namespace: event.metadata.namespace,
            ..ObjectMeta::default()
        },
        message: Some(format!("{COMBINED}{}", event.message.unwrap_or_default())),
        first_timestamp: Some(Time(now.0)),
        last_timestamp: Some(Time(now.0)),
        count: Some(1),
        involved_object: event.involved_object,
        type_: event.type_,
        reason: event.reason,
        source: event.source,
        ..Event::default()
    }
}

fn observation(event: &Event) -> Observed {
    Observed {
        count: event.count.unwrap_or(1),
        first: event.first_timestamp.clone(),
        name: event.metadata.name.clone(),
    }
}

/// How much of an event makes it the same as another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Detail {
    /// Who says it and what about.
    Object,
    /// And why.
    Reason,
    /// And in which words, about which part.
    Everything,
}

fn hash(event: &Event, detail: Detail) -> u64 {
    let mut hasher = DefaultHasher::new();
    detail.hash(&mut hasher);
    let EventSource { component, host } = event.source.clone().unwrap_or_default();
    (component, host).hash(&mut hasher);
    let object = &event.involved_object;
    let who = (&object.kind, &object.namespace, &object.name);
    (who, &object.uid, &object.api_version, &event.type_).hash(&mut hasher);
    if detail >= Detail::Reason {
        event.reason.hash(&mut hasher);
    }
    if detail == Detail::Everything {
        (&object.field_path, &event.message).hash(&mut hasher);
    }
    hasher.finish()
}
