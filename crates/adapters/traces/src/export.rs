//! Sends spans in batches; what a collector does not take in time is dropped.

use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::proto::{
    AnyValue, ExportTraceServiceRequest, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans,
    Span, any_value::Value, trace_service_client::TraceServiceClient,
};

/// Spans are collected this long before they are sent.
const GATHER: Duration = Duration::from_secs(1);
/// A collector that takes longer is not waited for.
const DEADLINE: Duration = Duration::from_secs(10);
/// Spans of one message.
const BATCH: usize = 512;

/// An endpoint that cannot be one.
#[derive(Debug, thiserror::Error)]
#[error("{endpoint:?} is not the address of a collector")]
pub struct EndpointError {
    endpoint: String,
    source: tonic::transport::Error,
}

/// Sends spans until nobody makes any more.
pub struct Exporter {
    endpoint: Endpoint,
    /// The socket, when the collector listens on one.
    socket: Option<String>,
    node_name: String,
    spans: mpsc::Receiver<Span>,
}

impl Exporter {
    pub(crate) fn new(
        endpoint: &str,
        node_name: String,
        spans: mpsc::Receiver<Span>,
    ) -> Result<Self, EndpointError> {
        let socket = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"));
        let host = endpoint.strip_prefix("dns:").unwrap_or(endpoint);
        let address = match socket {
            // The address only fills in HTTP's authority.
            Some(_) => "http://localhost".to_owned(),
            None => format!("http://{}", host.trim_start_matches('/')),
        };
        let parsed = Endpoint::from_shared(address)
            .map_err(|source| EndpointError { endpoint: endpoint.to_owned(), source })?;
        Ok(Self {
            endpoint: parsed.connect_timeout(DEADLINE).timeout(DEADLINE),
            socket: socket.map(str::to_owned),
            node_name,
            spans,
        })
    }

    /// Sends what the layer notes. Ends with the layer.
    pub async fn run(mut self) {
        let mut client = TraceServiceClient::new(self.channel());
        let mut batch = Vec::new();
        // Nothing happens until there is a span, and then a moment for its siblings.
        while self.spans.recv_many(&mut batch, BATCH).await > 0 {
            tokio::time::sleep(GATHER).await;
            while batch.len() < BATCH
                && let Ok(span) = self.spans.try_recv()
            {
                batch.push(span);
            }
            let n = batch.len();
            let message = self.message(std::mem::take(&mut batch));
            let sent = tokio::time::timeout(DEADLINE, client.export(message)).await;
            match sent {
                Ok(Ok(_)) => tracing::debug!(n, v = 6, "Traces are sent"),
                Ok(Err(status)) => tracing::debug!(n, %status, "Traces are refused"),
                Err(_elapsed) => tracing::debug!(n, "The collector does not take traces"),
            }
        }
    }

    fn channel(&self) -> Channel {
        match self.socket.clone() {
            None => self.endpoint.connect_lazy(),
            Some(path) => self.endpoint.connect_with_connector_lazy(service_fn(move |_| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            })),
        }
    }

    fn message(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let attribute = |key: &str, text: &str| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(Value::Text(text.to_owned())) }),
        };
        let resource = Resource {
            attributes: vec![
                attribute("service.name", "kubelet"),
                attribute("service.instance.id", &self.node_name),
            ],
        };
        let scope =
            Scope { name: "ferrolet".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(resource),
                scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
            }],
        }
    }
}
