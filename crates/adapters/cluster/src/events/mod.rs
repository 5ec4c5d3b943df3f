//! Events for people: taken without waiting, correlated, and delivered one after the other.
//!
//! ```text
//!  record() ─ bounded queue ─► correlate ─► create, or patch the count ─► API server
//!  any thread  full: dropped    (pure)        away: up to 12 tries, 10 s apart, all others wait behind
//! ```
//!
//! Nothing on the node depends on an event being delivered, so nothing here blocks or fails for its
//! caller.

mod correlate;
mod lru;
mod object;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ferrolet_ports::{ApiError, ApiErrorKind, Clock, Event, Events};
use ferrolet_types::Timestamp;
use k8s_openapi::api::core::v1::Event as ApiEvent;
use tokio::{sync::mpsc, time::sleep};

use crate::client::{Client, PatchKind, Place};
use correlate::{Correlator, Verdict};

const QUEUE: usize = 1000;
const TRIES: u32 = 12;
const PAUSE: Duration = Duration::from_secs(10);

/// An event on its way.
struct Told {
    at: Timestamp,
    event: Event,
    annotations: BTreeMap<String, String>,
}

/// Takes events. Clones feed the same queue.
#[derive(Clone)]
pub struct EventSink {
    queue: mpsc::Sender<Told>,
    clock: Arc<dyn Clock>,
}

/// Delivers them.
pub struct EventWriter {
    queue: mpsc::Receiver<Told>,
    client: Client,
    node_name: String,
    correlator: Correlator,
}

/// The two ends: what records and what delivers. The client's rate is the node's `eventRecordQPS`
/// and `eventBurst`.
pub fn channel(
    client: Client,
    node_name: String,
    clock: Arc<dyn Clock>,
) -> (EventSink, EventWriter) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let sink = EventSink { queue: sender, clock };
    let writer = EventWriter { queue, client, node_name, correlator: Correlator::new() };
    (sink, writer)
}

impl Events for EventSink {
    fn record(&self, event: Event) {
        self.record_annotated(event, BTreeMap::new());
    }

    fn record_annotated(&self, event: Event, annotations: BTreeMap<String, String>) {
        let told = Told { at: self.clock.now(), event, annotations };
        if let Err(error) = self.queue.try_send(told) {
            tracing::debug!(%error, "event dropped");
        }
    }
}

impl EventWriter {
    /// Delivers until every sink is gone and the queue is empty.
    pub async fn run(mut self) {
        while let Some(Told { at, event, annotations }) = self.queue.recv().await {
            let mut event = object::build(&event, &self.node_name, at);
            event.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
            match self.correlator.correlate(event, at) {
                Verdict::Drop => {}
                Verdict::Create { event, key } => self.deliver(event, None, key).await,
                Verdict::Patch { event, patch, key } => self.deliver(event, Some(patch), key).await,
            }
        }
    }

    async fn deliver(&mut self, event: ApiEvent, patch: Option<serde_json::Value>, key: u64) {
        for attempt in 1..=TRIES {
            match write(&self.client, &event, patch.as_ref()).await {
                Ok(stored) => {
                    self.correlator.stored(key, &stored);
                    return;
                }
                Err(error) if !may_pass(&error) => {
                    tracing::debug!(%error, reason = event.reason, "event refused");
                    return;
                }
                Err(error) if attempt == TRIES => {
                    tracing::warn!(%error, reason = event.reason, "event given up");
                }
                Err(error) => {
                    tracing::debug!(%error, attempt, "event waits");
                    // The first pause varies, so that nodes do not come back all at once.
                    let part = if attempt == 1 { fastrand::f64() } else { 1.0 };
                    sleep(PAUSE.mul_f64(part)).await;
                }
            }
        }
    }
}

/// Creates the event, or counts it up; one that has expired meanwhile is created anew.
async fn write(
    client: &Client,
    event: &ApiEvent,
    patch: Option<&serde_json::Value>,
) -> Result<ApiEvent, ApiError> {
    let namespace = event.metadata.namespace.as_deref();
    if let Some(patch) = patch {
        let name = event.metadata.name.as_deref().unwrap_or_default();
        let place = Place::one::<ApiEvent>(namespace, name);
        let patched = client.patch(&place, PatchKind::StrategicMerge, patch).await;
        match patched {
            Err(error) if error.is_not_found() => {}
            other => return other,
        }
    }
    client.create(&Place::all::<ApiEvent>(namespace), event).await
}

/// Only silence is worth another try: a server that answers has decided.
fn may_pass(error: &ApiError) -> bool {
    error.code.is_none() && error.kind != ApiErrorKind::BadRequest
        || matches!(error.kind, ApiErrorKind::TooManyRequests { .. })
}
