//! The server's own metrics: requests by method, path and listener, each under way until its answer
//! is sent. Labels are bounded: whatever is unknown is `other` (CVE-2020-8551). Every listener
//! shows those of all of them, as upstream's do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use ferrolet_ports::{
    Measured, Sample,
    metrics::{self, Histogram, Metric as _},
};
use tokio::time::Instant;

use crate::held::Held;

const DURATIONS: Histogram<4> = metrics::KUBELET_HTTP_REQUESTS_DURATION_SECONDS;
/// Upper bounds of durations; a test counts them.
const N_BOUNDS: usize = 11;
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
pub(crate) struct ListenerRequests {
    server_type: &'static str,
    counts: Mutex<BTreeMap<(&'static str, &'static str), Counts>>,
}

#[derive(Clone, Default)]
struct Counts {
    n_begun: u64,
    n_under_way: i64,
    buckets: [u64; N_BOUNDS],
    above: u64,
    sum: f64,
}

/// Every listener's requests.
#[derive(Clone, Default)]
pub struct Requests(Arc<Mutex<Vec<Arc<ListenerRequests>>>>);

impl Requests {
    /// A listener's own, which are shown with the others' from now on.
    pub(crate) fn of(&self, server_type: &'static str) -> Arc<ListenerRequests> {
        let own = ListenerRequests::new(server_type);
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
    State(requests): State<Arc<ListenerRequests>>,
    request: Request,
    next: Next,
) -> Response {
    let labels = bounded(request.method().as_str(), request.uri().path());
    let began = Instant::now();
    let under_way = UnderWay::new(requests, labels, began);
    let answer = next.run(request).await;
    answer.map(|body| Body::new(Held::new(body, under_way)))
}

/// A method and the root of a path, each of a set that no client can enlarge.
pub(crate) fn bounded(asked: &str, at: &str) -> (&'static str, &'static str) {
    (method(asked), path(at))
}

/// One request; a client that goes away ends it too.
struct UnderWay {
    requests: Arc<ListenerRequests>,
    labels: (&'static str, &'static str),
    began: Instant,
}

impl UnderWay {
    fn new(
        requests: Arc<ListenerRequests>,
        labels: (&'static str, &'static str),
        began: Instant,
    ) -> Self {
        requests.change(labels, |counts| {
            counts.n_begun += 1;
            counts.n_under_way += 1;
        });
        Self { requests, labels, began }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.requests.change(self.labels, |counts| counts.end(took));
    }
}

impl Counts {
    fn end(&mut self, took: Duration) {
        self.n_under_way -= 1;
        let took = took.as_secs_f64();
        self.sum += took;
        match DURATIONS.family().bounds.iter().position(|bound| took <= *bound) {
            Some(i) => self.buckets[i] += 1,
            None => self.above += 1,
        }
    }
}

impl ListenerRequests {
    fn new(server_type: &'static str) -> Arc<Self> {
        Arc::new(Self { server_type, counts: Mutex::new(BTreeMap::new()) })
    }

    fn change(&self, labels: (&'static str, &'static str), change: impl FnOnce(&mut Counts)) {
        let mut all = self.counts.lock().expect("no panic under this lock");
        change(all.entry(labels).or_default());
    }
}

impl Measured for ListenerRequests {
    fn samples(&self) -> Vec<Sample> {
        let all = self.counts.lock().expect("no panic under this lock");
        let mut samples = Vec::new();
        for ((method, path), counts) in all.iter() {
            let is_long = ["exec", "attach", "portforward", "debug"].contains(path);
            let labels = [if is_long { "true" } else { "false" }, method, path, self.server_type];
            let (n_under_way, n_begun) = (counts.n_under_way as f64, counts.n_begun as f64);
            samples.extend([
                metrics::KUBELET_HTTP_INFLIGHT_REQUESTS.sample(labels, n_under_way),
                metrics::KUBELET_HTTP_REQUESTS_TOTAL.sample(labels, n_begun),
                DURATIONS.sample(labels, &counts.buckets, counts.above, counts.sum),
            ]);
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
    fn every_bound_has_a_bucket() {
        assert_eq!(DURATIONS.family().bounds.len(), N_BOUNDS);
    }

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
