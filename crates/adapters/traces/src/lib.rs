//! Traces: what happened for a pod and how long each part took, sent to a collector by OTLP.
//!
//! ```text
//!  spans with the target `TRACED` ─► TraceLayer ─ when they end ─► a bounded channel ─► Exporter ─ batches ─► collector
//!     podUpdate ─ syncPod ─ RunPodSandbox, CreateContainer, …      whose children in the runtime name the call as their parent
//!     a request to the server, whose caller may be its parent ─ Exec, ListContainers, …
//! ```
//!
//! In: spans of the crate `tracing`. Out: OTLP over gRPC. Exists only where `tracing:` is
//! configured: without it nobody listens to these spans, and opening one is a look at a flag.
//! Refuses: waiting for a collector, and keeping what it does not take.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod export;
mod layer;
mod proto;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ferrolet_ports::Clock;
use tokio::sync::mpsc;

pub use export::{EndpointError, Exporter};
pub use layer::TraceLayer;

/// Spans that wait to be sent; more than this are lost.
const WAITING: usize = 2048;

/// Where traces go, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// `host:port`, `dns:///host:port` or `unix:///path`.
    pub endpoint: String,
    /// How many of a million pod updates and requests are traced for their own sake.
    pub per_million: u32,
    /// Who says all this.
    pub node_name: String,
}

/// A layer for the subscriber and what sends the layer's spans.
pub fn traces(
    settings: TraceSettings,
    clock: Arc<dyn Clock>,
) -> Result<(TraceLayer, Exporter), EndpointError> {
    let (sender, spans) = mpsc::channel(WAITING);
    let layer = TraceLayer::new(settings.per_million, clock, sender);
    let exporter = Exporter::new(&settings.endpoint, settings.node_name, spans)?;
    Ok((layer, exporter))
}
