//! The certificate this server shows. Replacing it needs no restart: every handshake takes the one
//! that is current then.

use std::sync::{Arc, RwLock};

use ferrolet_ports::Pair;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio::sync::watch;

/// PEM text that cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// The certificates cannot be read.
    #[error("read the certificates")]
    Certificates(#[source] pem::Error),
    /// There is none.
    #[error("there is no certificate")]
    NoCertificate,
    /// The key cannot be read.
    #[error("read the private key")]
    Key(#[source] pem::Error),
    /// Key and certificate do not belong together, or the key is of a kind we cannot use.
    #[error("use the key with its certificate")]
    Pair(#[source] rustls::Error),
}

/// The certificate that is shown to callers, replaceable at any time.
#[derive(Debug, Default)]
pub struct ServingCertificate {
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl ServingCertificate {
    /// None yet: handshakes fail until one is set, as upstream's do while the first certificate is
    /// being requested.
    pub fn none_yet() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Shows this chain from now on. Both texts may be the same file that holds everything.
    pub fn set_pem(&self, certificates: &[u8], key: &[u8]) -> Result<(), PemError> {
        let chain = read_certificates(certificates).map_err(PemError::Certificates)?;
        if chain.is_empty() {
            return Err(PemError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(PemError::Key)?;
        let provider = provider();
        let pair = CertifiedKey::from_der(chain, key, &provider).map_err(PemError::Pair)?;
        let mut current = self.current.write().expect("no panic under this lock");
        *current = Some(Arc::new(pair));
        Ok(())
    }

    /// Shows the newest pair, if there is one.
    pub fn show(&self, pairs: &watch::Receiver<Option<Pair>>) -> Result<(), PemError> {
        match &*pairs.borrow() {
            Some(pair) => self.set_pem(pair.certificate.as_bytes(), pair.key.as_bytes()),
            None => Ok(()),
        }
    }

    /// Shows each new pair. A certificate that nobody renews any more is shown for ever.
    pub async fn keep_showing(self: Arc<Self>, mut pairs: watch::Receiver<Option<Pair>>) {
        while pairs.changed().await.is_ok() {
            match self.show(&pairs) {
                Ok(()) => tracing::info!("Serving with a new certificate"),
                Err(error) => tracing::error!(%error, "The new serving certificate cannot be used"),
            }
        }
        std::future::pending().await
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().expect("no panic under this lock").clone()
    }
}

/// All certificates of a PEM text, in order.
pub(super) fn read_certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_slice_iter(text).collect()
}

/// Our cryptography, named here and nowhere else in this crate, so that no process-wide default is
/// needed.
pub(super) fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}
