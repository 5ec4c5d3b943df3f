//! Whose word counts about callers: the certificate authorities of `clientCAFile`, replaceable at
//! any time.
//!
//! In: PEM text; a chain a caller has shown. Out: who that is, read from the certificate's subject
//! as upstream does: the common name is the user, organizations are groups. Refuses: certificates
//! that are not for clients, expired, or of strangers.

use std::sync::{Arc, RwLock};

use ferrolet_ports::Subject;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest as _, Sha256};

use super::serving::{PemError, provider, read_certificates};

/// The user's unchanging identity in a subject, as the API server writes it.
const UID: &str = "1.3.6.1.4.1.57683.2";
/// Tells which certificate it was.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// Why a caller's certificate is not believed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallerError {
    /// It does not lead to one of the authorities, is expired, or not for clients.
    #[error("verify the caller's certificate: {0}")]
    Untrusted(rustls::Error),
    /// It cannot be read.
    #[error("read the caller's certificate")]
    Unreadable,
}

/// Somebody whose certificate is believed.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) subject: Subject,
    /// Until when it holds, in seconds since the epoch.
    ends: i64,
}

impl Caller {
    /// How long the certificate still holds, in seconds.
    pub(crate) fn remaining_seconds(&self) -> f64 {
        let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
        self.ends.saturating_sub(now) as f64
    }
}

/// The authorities, replaceable at any time.
#[derive(Default)]
pub struct ClientAuthorities {
    current: RwLock<Current>,
}

#[derive(Clone, Default)]
struct Current {
    /// Counts replacements, so that what was decided before can be told from what holds now.
    generation: u64,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl ClientAuthorities {
    /// None yet: nobody's certificate is believed.
    pub fn none_yet() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Believes these authorities from now on, and no others; also on connections that are open.
    pub fn set_pem(&self, text: &[u8]) -> Result<(), PemError> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(text).map_err(PemError::Certificates)? {
            roots.add(certificate).map_err(PemError::Pair)?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()))
                .build()
                .map_err(|_no_roots| PemError::NoCertificate)?;
        let mut current = self.current.write().expect("no panic under this lock");
        current.generation += 1;
        current.verifier = Some(verifier);
        Ok(())
    }

    /// Changes whenever the authorities do.
    pub(crate) fn generation(&self) -> u64 {
        self.current().generation
    }

    /// Who showed this chain. `None` for a certificate that is good and names nobody.
    pub(crate) fn caller(
        &self,
        chain: &[CertificateDer<'static>],
    ) -> Result<Option<Caller>, CallerError> {
        let Some((own, others)) = chain.split_first() else {
            return Ok(None);
        };
        let Some(verifier) = self.current().verifier else {
            return Ok(None);
        };
        verifier
            .verify_client_cert(own, others, UnixTime::now())
            .map_err(CallerError::Untrusted)?;
        caller(own)
    }

    fn current(&self) -> Current {
        self.current.read().expect("no panic under this lock").clone()
    }
}

fn caller(certificate: &CertificateDer<'_>) -> Result<Option<Caller>, CallerError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|_unreadable| CallerError::Unreadable)?;
    let mut subject = Subject::default();
    for attribute in parsed.subject().iter_attributes() {
        let Ok(value) = attribute.as_str() else {
            continue;
        };
        match attribute.attr_type().to_id_string().as_str() {
            "2.5.4.3" => subject.name = value.to_owned(),
            "2.5.4.10" => subject.groups.push(value.to_owned()),
            UID if subject.uid.is_empty() => subject.uid = value.to_owned(),
            _ => {}
        }
    }
    if subject.name.is_empty() {
        return Ok(None);
    }
    let digest = Sha256::digest(certificate);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = vec![format!("X509SHA256={digest}")];
    subject.extra.insert(CREDENTIAL.to_owned(), id);
    let ends = parsed.validity().not_after.timestamp();
    Ok(Some(Caller { subject, ends }))
}
