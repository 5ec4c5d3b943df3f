//! Figures of requests to the API server, in the names of upstream's client.
//!
//! One tally for the process (ADR 0018): clients come and go with certificates, the server stays.
//! In: requests and how they ended. Out: [`figures`]. Labels are bounded: one host per server, the
//! methods that this client has, and the codes that servers answer.

use std::time::Duration;

use ferrolet_ports::Tally;

/// Upstream's bounds, in seconds.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Upstream's bounds, in bytes.
const BYTES: [f64; 11] = [
    64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0,
    16777216.0,
];

static KEPT: Tally = Tally::new();

/// What was asked of the API server.
pub fn figures() -> &'static Tally {
    &KEPT
}

/// A request was answered up to its head, or not at all.
pub(super) fn asked(host: &str, method: &str, code: Option<u16>, n_sent: usize, took: Duration) {
    note(&KEPT, host, method, code, n_sent, took);
}

/// The whole of an answer was read.
pub(super) fn answered(host: &str, method: &str, n_read: usize) {
    let family = "rest_client_response_size_bytes";
    KEPT.observe(family, &[host, method], &BYTES, n_read as f64);
}

/// A request waited for the rate.
pub(super) fn waited(host: &str, method: &str, span: Duration) {
    let family = "rest_client_rate_limiter_duration_seconds";
    KEPT.observe(family, &[host, method], &SECONDS, span.as_secs_f64());
}

fn note(tally: &Tally, host: &str, method: &str, code: Option<u16>, n_sent: usize, took: Duration) {
    let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
    tally.add("rest_client_requests_total", &[&code, host, method], 1.0);
    let labels = [host, method];
    let family = "rest_client_request_duration_seconds";
    tally.observe(family, &labels, &SECONDS, took.as_secs_f64());
    let family = "rest_client_request_size_bytes";
    tally.observe(family, &labels, &BYTES, n_sent as f64);
}

/// The host and port of a server's address.
pub(super) fn host_of(server: &str) -> String {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrolet_ports::Measured as _;

    #[test]
    fn requests_are_counted_by_host_method_and_code() {
        let tally = Tally::new();
        let took = Duration::from_millis(3);
        note(&tally, "h:6443", "GET", Some(200), 0, took);
        note(&tally, "h:6443", "GET", None, 0, took);
        let shown = tally.samples();
        let counted: Vec<String> = shown
            .iter()
            .filter(|it| it.family == "rest_client_requests_total")
            .map(|it| it.labels.join(" "))
            .collect();
        assert_eq!(counted, ["200 h:6443 GET", "<error> h:6443 GET"]);
        assert_eq!(host_of("https://10.0.0.1:6443/base"), "10.0.0.1:6443");
        assert_eq!(host_of("https://[::1]:6443"), "[::1]:6443");
    }
}
