//! Metrics of the node's certificates.
//!
//! In: what [`Rotation`](super::Rotation) has and how its attempts went, which is counted in the
//! tally of the process. Out: [`CertificateMetrics`], which tells at each scrape how long each certificate
//! still holds. A certificate that nobody rotates is not shown.

use std::sync::{Arc, Mutex, PoisonError};

use ferrolet_ports::{
    Clock, Measured, Sample,
    metrics::{self, Counter, Gauge, process},
};
use ferrolet_types::Timestamp;

use super::{CertificateFacts, PairName};

static ENDS: Mutex<Vec<(PairName, Timestamp)>> = Mutex::new(Vec::new());

/// Certificates of this node, by the clock.
pub struct CertificateMetrics {
    clock: Arc<dyn Clock>,
}

impl CertificateMetrics {
    /// Shown by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }
}

impl Measured for CertificateMetrics {
    fn samples(&self) -> Vec<Sample> {
        let now = self.clock.now().0.as_second();
        let ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Negative once it has expired, as upstream has it.
        let left = |end: Timestamp| (end.0.as_second() - now) as f64;
        ends.into_iter().map(|(name, end)| of(name).ttl.sample([], left(end))).collect()
    }
}

struct OfPair {
    errors: Counter<0>,
    ttl: Gauge<0>,
}

fn of(name: PairName) -> OfPair {
    match name {
        PairName::Client => OfPair {
            errors: metrics::KUBELET_CERTIFICATE_MANAGER_CLIENT_EXPIRATION_RENEW_ERRORS,
            ttl: metrics::KUBELET_CERTIFICATE_MANAGER_CLIENT_TTL_SECONDS,
        },
        PairName::Server => OfPair {
            errors: metrics::KUBELET_SERVER_EXPIRATION_RENEW_ERRORS,
            ttl: metrics::KUBELET_CERTIFICATE_MANAGER_SERVER_TTL_SECONDS,
        },
    }
}

/// This is the certificate in use.
pub(super) fn in_use(name: PairName, facts: Option<&CertificateFacts>) {
    process().add(of(name).errors, [], 0.0);
    let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    ends.retain(|(other, _)| *other != name);
    ends.extend(facts.map(|facts| (name, facts.not_after)));
}

/// Another took its place.
pub(super) fn replaced(name: PairName, old: Option<&CertificateFacts>, now: Timestamp) {
    if let (PairName::Server, Some(old)) = (name, old) {
        let age = now.since(old.not_before).as_secs_f64();
        process().observe(metrics::KUBELET_CERTIFICATE_MANAGER_SERVER_ROTATION_SECONDS, [], age);
    }
}

/// An attempt to get another failed.
pub(super) fn failed(name: PairName) {
    process().add(of(name).errors, [], 1.0);
}
