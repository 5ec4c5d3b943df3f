//! One call: its deadline, its line in the log, its error.
//!
//! The line (target `cri`, debug level) has the method, how long it took and how it ended. It never
//! has contents: requests hold environments and credentials. A call whose caller went away leaves
//! its line too.

use std::{future::Future, time::Duration};

use ferrolet_ports::{
    RuntimeError, TRACE_PARENT, TRACED, TraceParent,
    metrics::{self, process},
};
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

use crate::error::{deadline_exceeded, runtime_error};

/// A call by its CRI name, with the longest it may take; `None` waits as long as the caller does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) deadline: Option<Duration>,
}

impl Call {
    /// Sends `message` with `send` and waits for the answer.
    pub(crate) async fn run<Q, A, F>(
        self,
        message: Q,
        send: impl FnOnce(Request<Q>) -> F,
    ) -> Result<A, RuntimeError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut line = LogLine::begin(self.method);
        let parent = TraceParent::default();
        let span = tracing::trace_span!(
            target: TRACED,
            "call",
            otel.name = service_method(self.method),
            otel.kind = "client",
            otel.error = tracing::field::Empty,
            traceparent = &parent as &(dyn std::error::Error + 'static),
        );
        let mut request = Request::new(message);
        // A runtime that traces too makes its spans children of this one.
        if let Some(words) = parent.get().and_then(|it| it.parse().ok()) {
            request.metadata_mut().insert(TRACE_PARENT, words);
        }
        let answer = match self.deadline {
            None => send(request).instrument(span.clone()).await,
            Some(deadline) => {
                // The runtime is told too, so that it gives up with us.
                request.set_timeout(deadline);
                let sent = send(request).instrument(span.clone());
                match tokio::time::timeout(deadline, sent).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        let error = deadline_exceeded(self.method);
                        span.record("otel.error", error.kind.code_name());
                        line.end(error.kind.code_name());
                        return Err(error);
                    }
                }
            }
        };
        match answer {
            Ok(answer) => {
                line.end("OK");
                Ok(answer.into_inner())
            }
            Err(status) => {
                let error = runtime_error(self.method, &status);
                span.record("otel.error", error.kind.code_name());
                line.end(error.kind.code_name());
                Err(error)
            }
        }
    }
}

/// A call's name in traces, which has its service in front.
fn service_method(method: &str) -> String {
    let is_about_images = method.contains("Image") && method != "ReopenContainerLog";
    let service = if is_about_images { "ImageService" } else { "RuntimeService" };
    format!("runtime.v1.{service}/{method}")
}

/// Writes its line when it is dropped, so that an abandoned call is told as well.
pub(crate) struct LogLine {
    method: &'static str,
    began: Instant,
    outcome: &'static str,
}

impl LogLine {
    pub(crate) fn begin(method: &'static str) -> Self {
        Self { method, began: Instant::now(), outcome: "abandoned" }
    }

    pub(crate) fn end(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        count(self.method, self.began.elapsed(), self.outcome);
        tracing::debug!(
            target: "cri",
            v = 6,
            method = self.method,
            duration = ?self.began.elapsed(),
            outcome = self.outcome,
            "CRI call"
        );
    }
}

fn count(method: &'static str, took: Duration, outcome: &'static str) {
    let kind = [operation(method).unwrap_or(method)];
    process().add(metrics::KUBELET_RUNTIME_OPERATIONS_TOTAL, kind, 1.0);
    let histogram = metrics::KUBELET_RUNTIME_OPERATIONS_DURATION_SECONDS;
    process().observe(histogram, kind, took.as_secs_f64());
    if outcome != "OK" {
        process().add(metrics::KUBELET_RUNTIME_OPERATIONS_ERRORS_TOTAL, kind, 1.0);
    }
    if method == "RunPodSandbox" {
        process().add(metrics::KUBELET_STARTED_PODS_TOTAL, [], 1.0);
        if outcome != "OK" {
            process().add(metrics::KUBELET_STARTED_PODS_ERRORS_TOTAL, [], 1.0);
        }
    }
}

/// Upstream's name for a call.
fn operation(method: &str) -> Option<&'static str> {
    Some(match method {
        "Version" => "version",
        "Status" => "status",
        "CreateContainer" => "create_container",
        "StartContainer" => "start_container",
        "StopContainer" => "stop_container",
        "RemoveContainer" => "remove_container",
        "ListContainers" => "list_containers",
        "ContainerStatus" => "container_status",
        "UpdateContainerResources" => "update_container",
        "ReopenContainerLog" => "reopen_container_log",
        "ExecSync" => "exec_sync",
        "Exec" => "exec",
        "Attach" => "attach",
        "PortForward" => "port_forward",
        "RunPodSandbox" => "run_podsandbox",
        "StopPodSandbox" => "stop_podsandbox",
        "RemovePodSandbox" => "remove_podsandbox",
        "PodSandboxStatus" => "podsandbox_status",
        "ListPodSandbox" => "list_podsandbox",
        "ListContainerStats" => "list_container_stats",
        "UpdatePodSandboxResources" => "update_podsandbox_resources",
        "UpdateRuntimeConfig" => "update_runtime_config",
        "RuntimeConfig" => "runtime_config",
        "ListImages" => "list_images",
        "ImageStatus" => "image_status",
        "PullImage" => "pull_image",
        "RemoveImage" => "remove_image",
        "ImageFsInfo" => "image_fs_info",
        "CheckpointContainer" => "checkpoint_container",
        "GetContainerEvents" => "get_container_events",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Somebody who traces everything.
    struct Tracer;

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Tracer {
        fn on_new_span(
            &self,
            attributes: &tracing::span::Attributes<'_>,
            _: &tracing::span::Id,
            _: tracing_subscriber::layer::Context<'_, S>,
        ) {
            attributes.record(&mut Names);
        }
    }

    struct Names;

    impl tracing::field::Visit for Names {
        fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}

        fn record_error(
            &mut self,
            field: &tracing::field::Field,
            value: &(dyn std::error::Error + 'static),
        ) {
            if let Some(place) = value.downcast_ref::<TraceParent>() {
                assert_eq!(field.name(), TRACE_PARENT);
                place.set("00-11-22-01".to_owned());
            }
        }
    }

    #[tokio::test]
    async fn the_runtime_is_told_whose_child_its_work_is() {
        use tracing_subscriber::layer::SubscriberExt as _;
        let told = async || {
            let call = Call { method: "Version", deadline: None };
            let answer = call.run((), async |request: Request<()>| {
                let told = request.metadata().get(TRACE_PARENT);
                let told = told.map(|it| it.to_str().unwrap().to_owned());
                Ok(Response::new(told))
            });
            answer.await.unwrap()
        };
        let subscriber = tracing_subscriber::registry().with(Tracer);
        // With one subscriber alone the first thread that comes along, which may be another test's,
        // decides for all what is of interest.
        let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        let _guard = tracing::subscriber::set_default(subscriber);
        assert_eq!(told().await.as_deref(), Some("00-11-22-01"));
    }

    #[tokio::test(start_paused = true)]
    async fn every_call_leaves_one_line_without_its_contents() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writer.clone())
            .without_time()
            .with_ansi(false)
            .finish();
        // With one subscriber alone the first thread that comes along, which may be another test's,
        // decides for all what is of interest.
        let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
        let _guard = tracing::subscriber::set_default(subscriber);
        let call = |method| Call { method, deadline: Some(Duration::from_secs(2)) };
        let answered = call("A").run("hunter2", async |_| Ok(Response::new("hunter2")));
        assert_eq!(answered.await, Ok("hunter2"));
        let refused = call("B")
            .run("hunter2", async |_| Err::<Response<()>, _>(Status::not_found("hunter2")));
        assert!(refused.await.is_err());
        let hung = call("C").run("hunter2", |_| std::future::pending::<Result<Response<()>, _>>());
        assert!(hung.await.is_err());
        let mut abandoned = Box::pin(
            call("D").run("hunter2", |_| std::future::pending::<Result<Response<()>, _>>()),
        );
        assert!(futures::poll!(&mut abandoned).is_pending());
        drop(abandoned);
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| line.contains("CRI call")).collect();
        let check = |line: &str, method: &str, outcome: &str| {
            assert!(line.trim_start().starts_with("DEBUG cri: CRI call"), "{line}");
            assert!(line.contains(&format!("method=\"{method}\"")), "{line}");
            assert!(line.contains(&format!("outcome=\"{outcome}\"")), "{line}");
        };
        assert_eq!(lines.len(), 4);
        check(lines[0], "A", "OK");
        check(lines[1], "B", "NotFound");
        check(lines[2], "C", "DeadlineExceeded");
        check(lines[3], "D", "abandoned");
        assert!(lines[2].contains("duration=2s"), "{}", lines[2]);
        assert!(!text.contains("hunter2"), "{text}");
    }
}
