//! Certificates of pods: how far each request is, and what to do next. [`Certificate`] is pure and
//! kept in the table; [`advance`] asks.
//!
//! ```text
//!  nothing ─ request ─► pending ─ issued ─► bundle ─ due ─ request ─► bundle, pending ─ issued ─► bundle …
//!                          └ denied, failed ─► refused, for good
//! ```
//!
//! Keys are made for each request and live in memory and in the pod's volume only: a new life asks
//! for new ones, as upstream does. Refuses: signing.

use std::{fmt, time::Duration};

use ferrolet_ports::{CertificateAsk, StorageObjects};
use ferrolet_types::{PodUid, Timestamp};
use k8s_openapi::api::certificates::v1::PodCertificateRequest;

use crate::{
    csi::hash_of,
    payload::{Got, Missing},
    table::VolumeTable,
    trust::chain,
};

/// A request that nobody has seen for so long was deleted.
const ASSUMED_DELETED: Duration = Duration::from_secs(600);
/// A refresh that is so late is told of.
const OVERDUE: Duration = Duration::from_secs(600);
/// Refreshes are spread over this time, so that pods that began together do not go on together.
const SPREAD: u64 = 300;
/// How often a pending request is looked at: soon at first, then rarer.
const FIRST_LOOKS: Duration = Duration::from_secs(2);
const LATER_LOOKS: Duration = Duration::from_secs(10);
const FIRST_MINUTE: Duration = Duration::from_secs(60);

/// One source of one volume of one pod.
pub(crate) type CertificateKey = (PodUid, String, usize);

/// A key and the certificates for it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Bundle {
    pub(crate) key: String,
    pub(crate) chain: String,
    refresh_at: Timestamp,
    not_after: Timestamp,
}

// Keys never reach a log.
impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Pending {
    name: String,
    key: String,
    since: Timestamp,
}

/// How far one certificate is.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Certificate {
    bundle: Option<Bundle>,
    pending: Option<Pending>,
    refused: Option<String>,
    is_overdue_told: bool,
    is_expiry_told: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nothing now.
    Wait,
    /// Ask for a certificate.
    Request,
    /// See how far the request of that name is.
    Look(String),
}

/// Something to say about the pod: reason and sentence.
pub(crate) type Said = (&'static str, String);

impl Certificate {
    pub(crate) fn next(&self, now: Timestamp) -> Act {
        if self.refused.is_some() {
            return Act::Wait;
        }
        match (&self.pending, &self.bundle) {
            (Some(pending), _) => Act::Look(pending.name.clone()),
            (None, Some(bundle)) if now < bundle.refresh_at => Act::Wait,
            (None, _) => Act::Request,
        }
    }

    pub(crate) fn requested(&mut self, name: String, key: String, now: Timestamp) {
        self.pending = Some(Pending { name, key, since: now });
    }

    /// Takes what the API says of the pending request; nothing when it has none of that name.
    pub(crate) fn answered(
        &mut self,
        found: Option<&PodCertificateRequest>,
        spread: Duration,
        now: Timestamp,
    ) -> Option<Said> {
        let pending = self.pending.clone()?;
        let Some(found) = found else {
            if now.since(pending.since) > ASSUMED_DELETED {
                self.pending = None;
            }
            return None;
        };
        let status = found.status.as_ref()?;
        let namespace = found.metadata.namespace.as_deref().unwrap_or_default();
        for condition in status.conditions.iter().flatten() {
            let (reason, message) = (&condition.reason, &condition.message);
            let refused = |word: &str| {
                format!(
                    "PodCertificateRequest was permanently {word}: reason={reason:?} message={message:?}"
                )
            };
            let name = &pending.name;
            match condition.type_.as_str() {
                "Denied" => {
                    self.refused = Some(refused("denied"));
                    let said = format!(
                        "PodCertificateRequest {namespace}/{name} was denied, reason={reason:?}, message={message:?}"
                    );
                    return Some(("Denied", said));
                }
                "Failed" => {
                    self.refused = Some(refused("failed"));
                    let said = format!(
                        "PodCertificateRequest {namespace}/{name} failed, reason={reason:?}, message={message:?}"
                    );
                    return Some(("Failed", said));
                }
                "Issued" => {
                    let time =
                        |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
                            time.as_ref().map_or(now, |it| Timestamp(it.0))
                        };
                    self.bundle = Some(Bundle {
                        key: pending.key,
                        chain: chain(status.certificate_chain.as_deref().unwrap_or_default()),
                        refresh_at: time(&status.begin_refresh_at).after(spread),
                        not_after: time(&status.not_after),
                    });
                    self.pending = None;
                    (self.is_overdue_told, self.is_expiry_told) = (false, false);
                    return None;
                }
                _ => {}
            }
        }
        None
    }

    /// What has to be said about a certificate that is not refreshed in time, each once.
    pub(crate) fn lateness(&mut self, now: Timestamp) -> Vec<Said> {
        let Some(bundle) = &self.bundle else {
            return Vec::new();
        };
        let mut said = Vec::new();
        if now > bundle.refresh_at.after(OVERDUE) && !self.is_overdue_told {
            self.is_overdue_told = true;
            said.push((
                "CertificateOverdueForRefresh",
                "PodCertificate refresh overdue".to_owned(),
            ));
        }
        if now > bundle.not_after && !self.is_expiry_told {
            self.is_expiry_told = true;
            said.push(("CertificateExpired", "PodCertificate expired".to_owned()));
        }
        said
    }

    /// The bundle, or why there is none.
    pub(crate) fn bundle(&self) -> Got<Bundle> {
        let missing = |message: String| Missing { is_absent: false, message };
        if let Some(refused) = &self.refused {
            return Err(missing(refused.clone()));
        }
        let not_yet = || missing("credential bundle is not issued yet".to_owned());
        self.bundle.clone().ok_or_else(not_yet)
    }

    /// When to look again.
    pub(crate) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        if self.refused.is_some() {
            return None;
        }
        if let Some(pending) = &self.pending {
            let is_young = now.since(pending.since) < FIRST_MINUTE;
            return Some(now.after(if is_young { FIRST_LOOKS } else { LATER_LOOKS }));
        }
        self.bundle.as_ref().map(|bundle| bundle.refresh_at)
    }
}

/// Brings one certificate as far as it can be brought now. The caller holds the pod's turn.
pub(crate) async fn advance(
    table: &VolumeTable,
    storage: &dyn StorageObjects,
    key: &CertificateKey,
    ask: &CertificateAsk,
    now: Timestamp,
) -> (Got<Bundle>, Vec<Said>) {
    let (uid, volume, index) = key;
    let mut certificate = table.certificate(uid, volume, *index);
    let mut said = Vec::new();
    let mut fault = None;
    // A request may be answered at once.
    for _ in 0..2 {
        match certificate.next(now) {
            Act::Wait => break,
            Act::Request => match storage.request_certificate(ask).await {
                Ok(made) => certificate.requested(made.name, made.key, now),
                Err(error) => {
                    fault =
                        Some(format!("while creating PodCertificateRequest: {}", error.message));
                    break;
                }
            },
            Act::Look(name) => {
                let namespace = &ask.pod.0.namespace;
                let found = storage.get_certificate_request(namespace, &name).await;
                match found {
                    Ok(found) => {
                        said.extend(certificate.answered(Some(&found), spread(key), now));
                    }
                    Err(error) if error.is_not_found() => {
                        said.extend(certificate.answered(None, spread(key), now));
                    }
                    Err(error) => {
                        fault =
                            Some(format!("while getting PodCertificateRequest: {}", error.message));
                    }
                }
                break;
            }
        }
    }
    said.extend(certificate.lateness(now));
    let bundle = match (certificate.bundle(), fault) {
        // What is there is good until there is better.
        (Ok(bundle), _) => Ok(bundle),
        (Err(_), Some(message)) => Err(Missing { is_absent: false, message }),
        (refused, None) => refused,
    };
    table.keep_certificate(uid, volume, *index, certificate);
    (bundle, said)
}

/// How much later than the earliest moment this certificate is refreshed: always the same for the
/// same one.
fn spread((uid, volume, index): &CertificateKey) -> Duration {
    let digits = hash_of(&format!("{uid}/{volume}/{index}"));
    let number = u64::from_str_radix(&digits[..8], 16).unwrap_or(0);
    Duration::from_secs(number % SPREAD)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second)
    }

    fn request(status: Value) -> PodCertificateRequest {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "req-1"},
            "spec": {"nodeName": "", "nodeUID": "", "podName": "", "podUID": "", "serviceAccountName": "",
                "serviceAccountUID": "", "signerName": "", "stubPKCS10Request": ""},
            "status": status,
        }))
        .unwrap()
    }

    fn condition(kind: &str) -> Value {
        json!([{"type": kind, "status": "True", "reason": "Because", "message": "no",
            "lastTransitionTime": "2023-11-14T22:13:20Z"}])
    }

    fn issued(refresh: i64, end: i64) -> PodCertificateRequest {
        request(json!({
            "conditions": condition("Issued"),
            "certificateChain": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "beginRefreshAt": at(refresh).to_string(),
            "notAfter": at(end).to_string(),
        }))
    }

    fn pending() -> Certificate {
        let mut certificate = Certificate::default();
        assert_eq!(certificate.next(at(0)), Act::Request);
        certificate.requested("req-1".to_owned(), "key-1".to_owned(), at(0));
        certificate
    }

    #[test]
    fn a_certificate_is_asked_for_waited_for_and_refreshed_in_time() {
        let mut certificate = pending();
        let none = Duration::ZERO;
        assert_eq!(certificate.next(at(1)), Act::Look("req-1".to_owned()));
        assert_eq!(certificate.answered(Some(&request(json!({}))), none, at(1)), None);
        assert_eq!(
            certificate.bundle().unwrap_err().message,
            "credential bundle is not issued yet"
        );
        assert_eq!(certificate.due(at(1)), Some(at(3)));
        certificate.answered(Some(&issued(100, 200)), none, at(2));
        assert_eq!(certificate.bundle().unwrap().key, "key-1");
        assert_eq!(certificate.due(at(2)), Some(at(100)));
        assert_eq!(certificate.next(at(99)), Act::Wait);
        assert_eq!(certificate.next(at(100)), Act::Request);
        certificate.requested("req-2".to_owned(), "key-2".to_owned(), at(100));
        // The old one is good until the new one is there.
        assert_eq!(certificate.bundle().unwrap().key, "key-1");
        certificate.answered(Some(&issued(300, 400)), none, at(101));
        assert_eq!(certificate.bundle().unwrap().key, "key-2");
    }

    #[test]
    fn a_refusal_is_for_good_and_told() {
        for (kind, word) in [("Denied", "denied"), ("Failed", "failed")] {
            let mut certificate = pending();
            let found = request(json!({"conditions": condition(kind)}));
            let said = certificate.answered(Some(&found), Duration::ZERO, at(1));
            assert_eq!(said.unwrap().0, kind);
            assert_eq!(certificate.next(at(9999)), Act::Wait);
            assert_eq!(certificate.due(at(2)), None);
            assert_eq!(
                certificate.bundle().unwrap_err().message,
                format!(
                    "PodCertificateRequest was permanently {word}: reason=\"Because\" message=\"no\""
                )
            );
        }
    }

    #[test]
    fn a_request_that_was_deleted_is_made_again_after_a_while() {
        let mut certificate = pending();
        certificate.answered(None, Duration::ZERO, at(600));
        assert_eq!(certificate.next(at(600)), Act::Look("req-1".to_owned()));
        certificate.answered(None, Duration::ZERO, at(601));
        assert_eq!(certificate.next(at(601)), Act::Request);
    }

    #[test]
    fn lateness_is_told_once() {
        let mut certificate = pending();
        certificate.answered(Some(&issued(100, 2000)), Duration::ZERO, at(2));
        let reasons = |said: Vec<Said>| said.into_iter().map(|it| it.0).collect::<Vec<_>>();
        assert!(reasons(certificate.lateness(at(700))).is_empty());
        assert_eq!(reasons(certificate.lateness(at(701))), ["CertificateOverdueForRefresh"]);
        assert_eq!(reasons(certificate.lateness(at(2001))), ["CertificateExpired"]);
        assert!(reasons(certificate.lateness(at(2002))).is_empty());
    }
}
