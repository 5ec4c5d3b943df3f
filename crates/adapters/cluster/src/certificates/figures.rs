//! Figures of the node's certificates, in upstream's names.
//!
//! One set for the process (ADR 0018). In: what [`Rotation`](super::Rotation) has and how its
//! attempts went. Out: [`CertificateFigures`], which tells at each scrape how long each certificate
//! still holds. A certificate that nobody rotates is not shown.

use std::sync::{Arc, Mutex, PoisonError};

use ferrolet_ports::{Clock, Measured, Sample, SampleValue, Tally};
use ferrolet_types::Timestamp;

use super::{CertificateFacts, PairName};

/// Upstream's bounds for the age of a certificate when it is replaced: a minute to four years, in
/// seconds.
const AGES: [f64; 10] = [
    60.0,
    3600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

static KEPT: Tally = Tally::new();
static ENDS: Mutex<Vec<(PairName, Timestamp)>> = Mutex::new(Vec::new());

/// Certificates of this node, by the clock.
pub struct CertificateFigures {
    clock: Arc<dyn Clock>,
}

impl CertificateFigures {
    /// Shown by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }
}

impl Measured for CertificateFigures {
    fn samples(&self) -> Vec<Sample> {
        let now = self.clock.now().0.as_second();
        let mut samples = KEPT.samples();
        let ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        samples.extend(ends.into_iter().map(|(name, end)| Sample {
            family: names(name).ttl,
            labels: Vec::new(),
            // Negative once it has expired, as upstream has it.
            value: SampleValue::Number((end.0.as_second() - now) as f64),
        }));
        samples
    }
}

struct Names {
    errors: &'static str,
    ttl: &'static str,
}

fn names(name: PairName) -> Names {
    match name {
        PairName::Client => Names {
            errors: "kubelet_certificate_manager_client_expiration_renew_errors",
            ttl: "kubelet_certificate_manager_client_ttl_seconds",
        },
        PairName::Server => Names {
            errors: "kubelet_server_expiration_renew_errors",
            ttl: "kubelet_certificate_manager_server_ttl_seconds",
        },
    }
}

/// This is the certificate in use.
pub(super) fn in_use(name: PairName, facts: Option<&CertificateFacts>) {
    KEPT.add(names(name).errors, &[], 0.0);
    let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    ends.retain(|(other, _)| *other != name);
    ends.extend(facts.map(|facts| (name, facts.not_after)));
}

/// Another took its place.
pub(super) fn replaced(name: PairName, old: Option<&CertificateFacts>, now: Timestamp) {
    if let (PairName::Server, Some(old)) = (name, old) {
        let age = now.since(old.not_before).as_secs_f64();
        let family = "kubelet_certificate_manager_server_rotation_seconds";
        KEPT.observe(family, &[], &AGES, age);
    }
}

/// An attempt to get another failed.
pub(super) fn failed(name: PairName) {
    KEPT.add(names(name).errors, &[], 1.0);
}
