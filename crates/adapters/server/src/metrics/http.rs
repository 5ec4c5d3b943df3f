//! The server's own figures: requests by method, path and listener, each under way until its answer
//! is sent. Labels are bounded: whatever is unknown is `other` (CVE-2020-8551). Every listener
//! shows the figures of all of them, as upstream's do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use ferrolet_ports::{Measured, Sample, SampleValue};
use tokio::time::Instant;

use crate::held::Held;

/// Prometheus' usual bounds, in seconds.
const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const METHODS: [&str; 8] = ["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"];
const PATHS: [&str; 20] = [
    "healthz",
    "pods",
    "stats",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "run",
    "exec",
    "attach",
    "portForward",
    "containerLogs",
    "configz",
    "allocatedPods",
    "runningpods",
    "checkpoint",
    "flagz",
    "statusz",
    "logs",
    "debug",
];

/// Roots of paths that have a label of their own.
#[cfg(test)]
pub(crate) fn known_paths() -> [&'static str; 20] {
    PATHS
}

/// Requests of one listener.
pub(crate) struct HttpFigures {
    server_type: &'static str,
    kept: Mutex<BTreeMap<(&'static str, &'static str), Kept>>,
}

#[derive(Clone, Default)]
struct Kept {
    n_begun: u64,
    n_under_way: i64,
    buckets: [u64; BOUNDS.len()],
    above: u64,
    sum: f64,
}

/// Every listener's requests.
#[derive(Clone, Default)]
pub struct Requests(Arc<Mutex<Vec<Arc<HttpFigures>>>>);

impl Requests {
    /// A listener's own, which are shown with the others' from now on.
    pub(crate) fn of(&self, server_type: &'static str) -> Arc<HttpFigures> {
        let own = HttpFigures::new(server_type);
        let mut all = self.0.lock().expect("no panic under this lock");
        all.push(own.clone());
        own
    }
}

impl Measured for Requests {
    fn samples(&self) -> Vec<Sample> {
        let all = self.0.lock().expect("no panic under this lock");
        all.iter().flat_map(|it| it.samples()).collect()
    }
}

/// Counts a request and how long its answer took to the end.
pub(crate) async fn count(
    State(figures): State<Arc<HttpFigures>>,
    request: Request,
    next: Next,
) -> Response {
    let labels = bounded(request.method().as_str(), request.uri().path());
    let began = Instant::now();
    let under_way = UnderWay::new(figures, labels, began);
    let answer = next.run(request).await;
    answer.map(|body| Body::new(Held::new(body, under_way)))
}

/// A method and the root of a path, each of a set that no client can enlarge.
pub(crate) fn bounded(asked: &str, at: &str) -> (&'static str, &'static str) {
    (method(asked), path(at))
}

/// One request; a client that goes away ends it too.
struct UnderWay {
    figures: Arc<HttpFigures>,
    labels: (&'static str, &'static str),
    began: Instant,
}

impl UnderWay {
    fn new(
        figures: Arc<HttpFigures>,
        labels: (&'static str, &'static str),
        began: Instant,
    ) -> Self {
        figures.change(labels, |kept| {
            kept.n_begun += 1;
            kept.n_under_way += 1;
        });
        Self { figures, labels, began }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.figures.change(self.labels, |kept| kept.end(took));
    }
}

impl Kept {
    fn end(&mut self, took: Duration) {
        self.n_under_way -= 1;
        let took = took.as_secs_f64();
        self.sum += took;
        match BOUNDS.iter().position(|bound| took <= *bound) {
            Some(i) => self.buckets[i] += 1,
            None => self.above += 1,
        }
    }
}

impl HttpFigures {
    fn new(server_type: &'static str) -> Arc<Self> {
        Arc::new(Self { server_type, kept: Mutex::new(BTreeMap::new()) })
    }

    fn change(&self, labels: (&'static str, &'static str), change: impl FnOnce(&mut Kept)) {
        let mut kept = self.kept.lock().expect("no panic under this lock");
        change(kept.entry(labels).or_default());
    }
}

impl Measured for HttpFigures {
    fn samples(&self) -> Vec<Sample> {
        let kept = self.kept.lock().expect("no panic under this lock");
        let mut samples = Vec::new();
        for ((method, path), kept) in kept.iter() {
            let is_long = ["exec", "attach", "portforward", "debug"].contains(path);
            let labels = [if is_long { "true" } else { "false" }, method, path, self.server_type];
            let mut add = |family, value| {
                let labels = labels.iter().map(|it| (*it).to_owned()).collect();
                samples.push(Sample { family, labels, value });
            };
            add("kubelet_http_inflight_requests", SampleValue::Number(kept.n_under_way as f64));
            add("kubelet_http_requests_total", SampleValue::Number(kept.n_begun as f64));
            let buckets = BOUNDS.into_iter().zip(kept.buckets).collect();
            add(
                "kubelet_http_requests_duration_seconds",
                SampleValue::Histogram { buckets, above: kept.above, sum: kept.sum },
            );
        }
        samples
    }
}

fn method(method: &str) -> &'static str {
    METHODS.into_iter().find(|known| *known == method).unwrap_or("other")
}

/// The first part of a path, or two for metrics, as upstream counts.
fn path(path: &str) -> &'static str {
    let mut parts = path.trim_start_matches('/').split('/');
    let first = parts.next().unwrap_or_default();
    let root = match parts.next() {
        Some(second) if first == "metrics" => format!("metrics/{second}"),
        _ => first.to_owned(),
    };
    PATHS.into_iter().find(|known| *known == root).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded() {
        let check = |asked: &str, expected: &str| assert_eq!(path(asked), expected, "{asked}");
        check("/pods", "pods");
        check("/exec/a/b/c", "exec");
        check("/metrics", "metrics");
        check("/metrics/cadvisor", "metrics/cadvisor");
        check("/metrics/cadvisor/x", "metrics/cadvisor");
        // As upstream counts it.
        check("/metrics/slis", "other");
        check("/metrics/nothing", "other");
        check("/", "other");
        check("/anything-9999", "other");
        assert_eq!((method("GET"), method("JUNK")), ("GET", "other"));
    }
}
