//! Spans of a pod's start, received by a collector in this process over a real socket.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ferrolet_ports::{Clock, TRACED, TraceParent};
use ferrolet_testkit::World;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::codegen::Service as _;
use tonic::{Request, Response, Status};
use tracing::trace_span;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::proto::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, ResourceSpans, Span, any_value::Value,
    span::Kind,
};
use crate::{TraceSettings, traces};

mod server {
    #![expect(unreachable_pub, clippy::allow_attributes, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/server/opentelemetry.proto.collector.trace.v1.rs"));
}
use server::trace_service_server::{TraceService, TraceServiceServer};

/// The service behind a [`Collecting`].
struct Collector(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).unwrap();
        Ok(Response::new(ExportTraceServiceResponse {}))
    }
}

async fn serve(listener: UnixListener, collector: Arc<Collector>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let collector = collector.clone();
        let service = hyper::service::service_fn(move |request: http::Request<_>| {
            let mut server = TraceServiceServer::from_arc(collector.clone());
            async move {
                let answer = server.call(request).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(|never| match never {}))
            }
        });
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await
            .ok();
    }
}

/// A collector on a socket, and an exporter that sends to it what a subscriber's layer sees.
struct Collecting {
    received: mpsc::UnboundedReceiver<ExportTraceServiceRequest>,
    collector: JoinHandle<()>,
    exporting: JoinHandle<()>,
    _held: tempfile::TempDir,
}

impl Collecting {
    /// Everything that `traced` does, of which so many in a million are traced for their own sake.
    fn of(per_million: u32, traced: impl FnOnce()) -> Collecting {
        let held = tempfile::tempdir().unwrap();
        let path = held.path().join("collector.sock");
        let (sender, received) = mpsc::unbounded_channel();
        let listener = UnixListener::bind(&path).unwrap();
        let collector = tokio::spawn(serve(listener, Arc::new(Collector(sender))));
        let endpoint = format!("unix://{}", path.display());
        let (layer, exporter) = traces(settings(&endpoint, per_million), clock()).unwrap();
        let exporting = tokio::spawn(exporter.run());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), traced);
        Collecting { received, collector, exporting, _held: held }
    }

    /// The first spans that arrive, with whose they are; nothing is sent after them.
    async fn spans(mut self) -> ResourceSpans {
        let message = tokio::time::timeout(Duration::from_secs(20), self.received.recv());
        let mut message = message.await.unwrap().unwrap();
        // The layer went with its subscriber, and the exporter with the layer.
        self.exporting.await.unwrap();
        self.collector.abort();
        message.resource_spans.remove(0)
    }
}

fn find<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap()
}

fn settings(endpoint: &str, per_million: u32) -> TraceSettings {
    TraceSettings { endpoint: endpoint.to_owned(), per_million, node_name: "node-1".to_owned() }
}

fn clock() -> Arc<dyn Clock> {
    World::new().clock()
}

/// What the agent's parts open while a pod starts.
fn start_a_pod() {
    let update = trace_span!(target: TRACED, parent: None, "podUpdate", source = "file");
    let turn = trace_span!(target: TRACED, parent: &update, "syncPod", k8s.pod.name = "web");
    let _entered = turn.enter();
    let call = trace_span!(
        target: TRACED,
        "call",
        otel.name = "runtime.v1.RuntimeService/RunPodSandbox",
        otel.kind = "client",
        otel.error = tracing::field::Empty,
    );
    call.record("otel.error", "no network");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_receives_the_tree_of_a_pods_start() {
    let resource = Collecting::of(1_000_000, start_a_pod).spans().await;
    let named = &resource.resource.as_ref().unwrap().attributes[0];
    let is_kubelet = Some(Value::Text("kubelet".to_owned()));
    assert_eq!(named.key, "service.name");
    assert_eq!(named.value.as_ref().unwrap().value, is_kubelet);
    let spans = &resource.scope_spans[0].spans;
    let update = find(spans, "podUpdate");
    let turn = find(spans, "syncPod");
    let call = find(spans, "runtime.v1.RuntimeService/RunPodSandbox");
    assert_eq!(spans.len(), 3);
    assert!(update.parent_span_id.is_empty());
    assert_eq!(turn.parent_span_id, update.span_id);
    assert_eq!(call.parent_span_id, turn.span_id);
    for span in spans {
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
        assert_eq!(span.trace_id, update.trace_id);
        assert!(span.start_time_unix_nano > 0);
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    }
    assert_eq!(call.kind(), Kind::Client);
    assert_eq!(call.status.as_ref().unwrap().message, "no network");
    assert_eq!(turn.attributes[0].key, "k8s.pod.name");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_the_child_of_whoever_sent_it_and_the_parent_of_what_it_calls() {
    let sent = |flags: &str| format!("00-{}-b7ad6b7169203331-{flags}", "0af7".repeat(8));
    let (traced, untraced) = (TraceParent::default(), TraceParent::default());
    // Nothing is traced for its own sake: the caller decides.
    let collecting = Collecting::of(0, || {
        for (flags, place) in [("00", &untraced), ("01", &traced)] {
            let request = trace_span!(
                target: TRACED,
                parent: None,
                "request",
                otel.kind = "server",
                traceparent = sent(flags).as_str(),
            );
            let _entered = request.enter();
            let _call = trace_span!(
                target: TRACED,
                "call",
                traceparent = place as &(dyn std::error::Error + 'static),
            );
        }
    });
    let resource = collecting.spans().await;
    let spans = &resource.scope_spans[0].spans;
    assert_eq!(spans.len(), 2, "{spans:?}");
    let (request, call) = (find(spans, "request"), find(spans, "call"));
    assert_eq!(request.kind(), Kind::Server);
    assert_eq!(request.trace_id, [0x0a, 0xf7].repeat(8));
    assert_eq!(request.parent_span_id[..2], [0xb7, 0xad]);
    assert!(request.attributes.is_empty(), "{:?}", request.attributes);
    assert_eq!(call.parent_span_id, request.span_id);
    let span: String = call.span_id.iter().map(|it| format!("{it:02x}")).collect();
    let expected = format!("00-{}-{span}-01", "0af7".repeat(8));
    assert_eq!(traced.get(), Some(expected.as_str()));
    assert_eq!(untraced.get(), None);
}

#[tokio::test]
async fn at_a_rate_of_zero_nothing_is_sent() {
    let (layer, exporter) = traces(settings("localhost:4317", 0), clock()).unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..100 {
            start_a_pod();
        }
    });
    // Ends at once: there is nothing to send and nobody left to make more.
    exporter.run().await;
}

#[test]
fn addresses_are_taken_in_upstreams_forms() {
    let check = |endpoint: &str, is_good: bool| {
        let made = traces(settings(endpoint, 1), clock());
        assert_eq!(made.is_ok(), is_good, "{endpoint}");
    };
    check("localhost:4317", true);
    check("dns:///collector.example:4317", true);
    check("unix:///run/collector.sock", true);
    check("two words", false);
}
