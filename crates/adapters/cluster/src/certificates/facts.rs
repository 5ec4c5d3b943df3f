//! What a certificate says, as far as rotation cares. Pure.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use ferrolet_types::Timestamp;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer as _, X509Certificate},
};

/// Why a certificate cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// It is not PEM, or there is none.
    #[error("no certificate in the PEM text")]
    Pem,
    /// It is not a certificate.
    #[error("not a certificate: {0}")]
    Der(String),
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// From when it holds.
    pub not_before: Timestamp,
    /// Until when.
    pub not_after: Timestamp,
    /// Its common name.
    pub common_name: String,
    /// Its organizations.
    pub organizations: BTreeSet<String>,
    /// The host names it is good for.
    pub dns_names: BTreeSet<String>,
    /// The addresses it is good for.
    pub addresses: BTreeSet<IpAddr>,
}

impl CertificateFacts {
    /// Reads the first certificate of a PEM text.
    pub fn read(pem: &str) -> Result<Self, FactsError> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| FactsError::Pem)?;
        let (_, certificate) =
            X509Certificate::from_der(&der).map_err(|error| FactsError::Der(error.to_string()))?;
        let subject = certificate.subject();
        let text = |value: Result<&str, _>| value.unwrap_or_default().to_owned();
        let mut facts = Self {
            not_before: Timestamp::from_second(certificate.validity().not_before.timestamp()),
            not_after: Timestamp::from_second(certificate.validity().not_after.timestamp()),
            common_name: subject
                .iter_common_name()
                .next()
                .map(|name| text(name.as_str()))
                .unwrap_or_default(),
            organizations: subject.iter_organization().map(|name| text(name.as_str())).collect(),
            dns_names: BTreeSet::new(),
            addresses: BTreeSet::new(),
        };
        let names = certificate.subject_alternative_name().ok().flatten();
        for name in names.into_iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(name) => {
                    facts.dns_names.insert((*name).to_owned());
                }
                GeneralName::IPAddress(bytes) => facts.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        Ok(facts)
    }

    /// The moment to ask for the next one: at 70 to 90 % of its life; `jitter` is between 0 and 1.
    pub fn rotation_deadline(&self, jitter: f64) -> Timestamp {
        let life = self.not_after.since(self.not_before);
        self.not_before.after(life.mul_f64(0.7 + 0.2 * jitter.clamp(0.0, 1.0)))
    }

    /// True when it does not hold any more.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now > self.not_after
    }

    /// How long it has been expired; zero while it holds.
    pub fn expired_for(&self, now: Timestamp) -> Duration {
        now.since(self.not_after)
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}
