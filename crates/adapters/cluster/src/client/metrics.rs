//! Metrics of requests to the API server, in the names of upstream's client.
//!
//! Counted in the tally of the process: clients come and go with certificates, the server stays. In:
//! requests and how they ended. Labels are bounded: one host per server, the
//! methods that this client has, and the codes that servers answer.

use std::time::Duration;

use ferrolet_ports::{
    Tally,
    metrics::{self, process},
};

/// A request was answered up to its head, or not at all.
pub(super) fn asked(host: &str, method: &str, code: Option<u16>, n_sent: usize, took: Duration) {
    note(process(), host, method, code, n_sent, took);
}

/// The whole of an answer was read.
pub(super) fn answered(host: &str, method: &str, n_read: usize) {
    process().observe(metrics::REST_CLIENT_RESPONSE_SIZE_BYTES, [host, method], n_read as f64);
}

/// A request waited for the rate.
pub(super) fn waited(host: &str, method: &str, span: Duration) {
    process().observe(
        metrics::REST_CLIENT_RATE_LIMITER_DURATION_SECONDS,
        [host, method],
        span.as_secs_f64(),
    );
}

fn note(tally: &Tally, host: &str, method: &str, code: Option<u16>, n_sent: usize, took: Duration) {
    let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
    tally.add(metrics::REST_CLIENT_REQUESTS_TOTAL, [&code, host, method], 1.0);
    let labels = [host, method];
    tally.observe(metrics::REST_CLIENT_REQUEST_DURATION_SECONDS, labels, took.as_secs_f64());
    tally.observe(metrics::REST_CLIENT_REQUEST_SIZE_BYTES, labels, n_sent as f64);
}

/// The host and port of a server's address.
pub(super) fn host_of(server: &str) -> String {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_host_method_and_code() {
        let tally = Tally::new();
        let took = Duration::from_millis(3);
        note(&tally, "h:6443", "GET", Some(200), 0, took);
        note(&tally, "h:6443", "GET", None, 0, took);
        let shown = tally.samples_of(metrics::REST_CLIENT_REQUESTS_TOTAL);
        let counted: Vec<String> = shown.iter().map(|it| it.labels.join(" ")).collect();
        assert_eq!(counted, ["200 h:6443 GET", "<error> h:6443 GET"]);
        assert_eq!(host_of("https://10.0.0.1:6443/base"), "10.0.0.1:6443");
        assert_eq!(host_of("https://[::1]:6443"), "[::1]:6443");
    }
}
